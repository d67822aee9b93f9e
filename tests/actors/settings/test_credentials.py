"""No setting takes a credential, of those that there are and of those that will be."""

import importlib
import itertools
import json
import pkgutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

import actors
import deploy
import pipelines
from actors.errors import SettingsError
from actors.settings.base import Settings
from actors.settings.credentials import check_no_credentials
from pipelines.settings.options import build, leaves, validate
from pipelines.settings.run_settings import ScoreSettings
from tests.support.commands import assay

SECRET = "hunter2hunter2"
PLANTED = [
    f"https://{SECRET}@host/v1",
    f"http://me:{SECRET}@host:8000/v1",
    f"https://host/v1?api-key={SECRET}",
    f"https://host/v1?a=b&key={SECRET}",
    f"https://host/corpus.jsonl?X-Amz-Signature={SECRET}&X-Amz-Date=1",
    f"https://account.blob.host/corpus.jsonl?sv=1&sig={SECRET}",
    f"s3://me:{SECRET}@bucket/corpus",
    f"s3://bucket/corpus?secret_key={SECRET}",
    {"hf_token": SECRET},
    {"apiKey": SECRET},
    {"model_loader_extra_config": {"aws_secret_access_key": SECRET}},
    {"headers": [{"Authorization": SECRET}]},
]
HARMLESS = [
    "http://host:8000/v1",
    "https://host/v1?version=2&page=3",
    "s3://bucket/corpus?endpoint_override=127.0.0.1:5000&scheme=http",
    "abfs://container@account.dfs.core.windows.net/corpus",
    "hf://datasets/org/name@main/corpus.jsonl",
    "mail me@host, or see http://host/a@b",
    {"max_num_batched_tokens": 8192, "tokenizer_mode": "slow", "hf_token": True, "token": None},
    {"helpfulness": 0.3, "tokens": "x"},
]


def kinds() -> list[type[Settings]]:
    """Every kind of settings in any module."""
    for package in (actors, pipelines, deploy):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if "settings" in module.name or module.name.endswith("recipe"):
                importlib.import_module(module.name)
    return sorted(set(_below(Settings)), key=lambda kind: kind.__qualname__)


def _below(kind: type[Settings]) -> Iterator[type[Settings]]:
    for below in kind.__subclasses__():
        yield below
        yield from _below(below)


def test_no_setting_takes_a_credential() -> None:
    """In a field that there is, in a section of it, and in a list."""
    for kind in kinds():
        for leaf, planted in itertools.product(leaves(kind), PLANTED):
            for value in (planted, [planted], {"a": planted}):
                nested: Any = {leaf.name: value}
                for section in reversed(leaf.sections):
                    nested = {section: nested}
                with pytest.raises(SettingsError) as refused:
                    validate(kind, nested)
                message = str(refused.value)
                assert (leaf.name in message, "environment" in message, SECRET in message) == (True, True, False)
                with pytest.raises(ValidationError) as raised:
                    kind(**nested)
                assert SECRET not in str(raised.value)


def test_what_is_no_credential_passes_and_is_as_it_was() -> None:
    """Nothing is changed in it, so that a run's identity stays what it was."""
    for value in HARMLESS:
        check_no_credentials({"setting": value})
    arguments = {"hf_token": True, "max_num_seqs": 4}
    settings = build(
        ScoreSettings, {"inputs": ["s3://bucket/a"], "output": "out", "model": "tiny-attributes", "engine_args": arguments}
    )
    assert settings.engine.engine_args == arguments
    assert settings.corpus.inputs == ("s3://bucket/a",)


def test_a_command_leaves_no_trace_of_one(tmp_path: Path) -> None:
    corpus = tmp_path / "corpus.jsonl"
    corpus.write_text('{"prompt": "a"}\n')
    arguments = json.dumps({"hf_token": SECRET})
    judge = ("--model", "tiny-attributes", "--engine", "fake")
    wrong = assay("score", corpus, tmp_path / "out", *judge, "--set", f"engine.engine_args.{arguments}")
    assert (wrong.returncode, SECRET in wrong.stderr) == (2, False)
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(f"score:\n  inputs: [a]\n  output: b\n  model: {{model: m}}\n  engine: {{engine_args: {arguments}}}\n")
    for command in (
        ("score", corpus, tmp_path / "out", *judge, "--set", f"engine.engine_args.hf_token={SECRET}"),
        ("sample", corpus, tmp_path / "out", "--judge", "tiny-attributes", "--policy", f"http://me:{SECRET}@127.0.0.1:1/v1"),
        ("run", recipe),
    ):
        done = assay(*command)
        assert done.returncode == 2
        assert "environment" in done.stderr
        assert SECRET not in done.stdout + done.stderr
    assert not (tmp_path / "out").exists()
