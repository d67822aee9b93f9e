"""What a job is sent, and what of a recipe changes on the way."""

import typing
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from ray._private.ray_constants import get_runtime_env_default_excludes
from ray._private.runtime_env.packaging import create_package

from actors.errors import ModelError, SettingsError
from actors.settings.base import Settings
from pipelines.run.runtime.job_package import FOLDERS, MODELS, TEXTS, JobPackage, job_package
from pipelines.settings.recipe import Recipe, read_recipe
from tests.conftest import REPOSITORY
from tests.support.corpora import write

SCORE: dict[str, Any] = {
    "corpus": {"inputs": ["/data/c.jsonl"]},
    "output": "/data/scored",
    "model": {"model": "owner/model"},
}


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def package(**steps: Any) -> JobPackage:
    return job_package(Recipe.model_validate(steps))


def names(packed: JobPackage, folder: Path) -> list[str]:
    packed.write(folder / "job.zip")
    return zipfile.ZipFile(folder / "job.zip").namelist()


def sent(packed: JobPackage, folder: Path) -> Any:
    """The recipe that the job runs."""
    packed.write(folder / "job.zip")
    return yaml.safe_load(zipfile.ZipFile(folder / "job.zip").read("recipe.yaml"))


def test_it_holds_our_code_and_the_recipe_alone(tmp_path: Path) -> None:
    actual_names = names(package(score=SCORE), tmp_path)
    ours = {
        str(path.relative_to(REPOSITORY))
        for name in ("actors", "assay", "pipelines")
        for path in (REPOSITORY / name).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert len(actual_names) == len(set(actual_names))
    assert set(actual_names) == ours | {"recipe.yaml"}
    assert (tmp_path / "job.zip").stat().st_size < 1.2e6


def test_the_built_in_models_that_are_named_go_with_it(tmp_path: Path) -> None:
    sample = {**SCORE, "model": {"model": "tiny-r3", "adapter": "tiny-r3-lora"}, "policy": {"policy": "tiny-policy"}}
    several = {"models": ["tiny-scalar", {"model": "tiny-attributes"}], "output": "/data/b", "corpus": SCORE["corpus"]}
    actual_names = names(package(sample=sample, ensemble=several), tmp_path)
    models = {name.split("/")[1] for name in actual_names if name.startswith("tiny_models/")}
    assert models == {"r3", "r3-lora", "policy", "scalar", "attributes"}
    assert "tiny_models/r3-lora/adapter_config.json" in actual_names
    assert "tiny_models/scalar/model.safetensors" in actual_names
    with pytest.raises(ModelError, match=r"no built-in model 'tiny-atributes'; there are .*tiny-attributes"):
        package(score={**SCORE, "model": {"model": "tiny-atributes"}})


def test_relative_paths_are_those_seen_from_here(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    corpus = {"inputs": ["in/*.jsonl", "s3://bucket/in", "/data/c.jsonl"]}
    packed = package(
        score={
            "corpus": corpus,
            "output": "../out",
            "model": {"model": "mine", "adapter": "./lora", "read": {"principles": {"output": "as short as possible"}}},
        },
        filter={"scored": "../out", "output": "s3://bucket/kept", "rest": "rest", "where": "reward > 0"},
    )
    here, above = str(tmp_path), str(tmp_path.parent)
    assert sent(packed, tmp_path) == {
        "score": {
            "corpus": {"inputs": [f"{here}/in/*.jsonl", "s3://bucket/in", "/data/c.jsonl"]},
            "output": f"{above}/out",
            "model": {
                "model": f"{here}/mine",
                "adapter": f"{here}/lora",
                "read": {"principles": {"output": "as short as possible"}},
            },
        },
        "filter": {"scored": f"{above}/out", "output": "s3://bucket/kept", "rest": f"{here}/rest", "where": "reward > 0"},
    }
    assert packed.moved == {
        "in/*.jsonl": f"{here}/in/*.jsonl",
        "../out": f"{above}/out",
        "mine": f"{here}/mine",
        "./lora": f"{here}/lora",
        "rest": f"{here}/rest",
    }


def test_rubrics_prompts_and_a_plan_go_with_it(tmp_path: Path) -> None:
    (tmp_path / "rubric.yaml").write_text("{prompt: '{{ response }}', pattern: '([0-9])', low: 0, high: 9}")
    (tmp_path / "mine.jinja").write_text("What of {{ response }}?")
    refine = {
        **SCORE,
        "model": {"model": "owner/model", "judge": {"rubric": "rubric.yaml"}},
        "policy": {"policy": "owner/policy"},
        "refining": {"feedback_prompt": "mine.jinja"},
    }
    packed = package(refine=refine)
    actual_refine = sent(packed, tmp_path)["refine"]
    assert actual_refine["model"]["judge"]["rubric"]["pattern"] == "([0-9])"
    assert actual_refine["refining"]["feedback_prompt"] == "feedback_prompt.jinja"
    assert zipfile.ZipFile(tmp_path / "job.zip").read("feedback_prompt.jinja") == b"What of {{ response }}?"
    with pytest.raises(SettingsError, match=r"edit_prompt: none.jinja is no file"):
        package(refine={**refine, "refining": {"edit_prompt": "none.jinja"}})


def test_a_text_that_is_no_path_may_be_longer_than_one(tmp_path: Path) -> None:
    sample = {**SCORE, "policy": {"policy": "tiny-policy", "policy_system": "Be brief. " * 1000}}
    assert sent(package(sample=sample), tmp_path)["sample"]["policy"]["policy_system"] == "Be brief. " * 1000


def test_the_recipe_that_is_sent_means_the_same(tmp_path: Path) -> None:
    (tmp_path / "recipe.yaml").write_text(
        yaml.safe_dump({"score": SCORE, "pairs": {"scored": "/data/scored", "output": "/p"}})
    )
    recipe = read_recipe("recipe.yaml")
    packed = job_package(recipe)
    assert packed.recipe == recipe
    assert packed.moved == {}, "there are no relative paths in it"
    assert Recipe.model_validate(sent(packed, tmp_path)) == recipe


def test_files_of_benchmarks_keep_the_names_of_these(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "day=1").mkdir()
    evaluate = package(evaluate={"scored": ["rm-bench=a=b.json", "pairs=/data/p.jsonl", "day=1"], "model": "tiny-scalar"})
    assert sent(evaluate, tmp_path)["evaluate"]["scored"] == [
        f"rm-bench={tmp_path}/a=b.json",
        "pairs=/data/p.jsonl",
        f"{tmp_path}/day=1",
    ]


def test_the_same_recipe_is_the_same_archive(tmp_path: Path) -> None:
    for name in ("one", "other"):
        package(score=SCORE).write(tmp_path / name)
    assert (tmp_path / "one").read_bytes() == (tmp_path / "other").read_bytes()
    package(score={**SCORE, "prefix": "a_"}).write(tmp_path / "another")
    assert (tmp_path / "one").read_bytes() != (tmp_path / "another").read_bytes()


def test_every_setting_that_is_text_is_known_to_name_a_place_or_not() -> None:
    """A new one that names a file would be read in the folder of the job, unless it is made absolute."""
    neither = {
        *("prefix", "format", "prompt_column", "response_column", "conversation_column", "system_column"),
        *("reference_column", "criteria_column", "name", "family", "benchmark", "endpoint"),
        *("chat_template", "policy_chat_template", "choices"),
        *("answer_pattern", "reference_pattern", "answer_regex"),
        *("revision", "policy_revision", "policy_name", "policy_system", "policy_stop", "by", "where", "voters"),
        *("trainer", "system", "prompt", "pattern", "after", "positive", "negative", "log", "hub"),
        *("chat_template", "policy_chat_template", "endpoint", "benchmark"),  # of a template its text
    }
    assert _texts(Recipe) == neither | FOLDERS | MODELS | TEXTS


def _texts(settings: type[Settings]) -> set[str]:
    result = set()
    for name, field in settings.model_fields.items():
        kinds = list(_kinds(field.annotation))
        result |= {name} if str in kinds else set()
        result |= {
            text
            for kind in kinds
            if isinstance(kind, type) and issubclass(kind, Settings) and kind is not settings
            for text in _texts(kind)
        }
    return result


def _kinds(annotation: Any) -> Iterator[Any]:
    if typing.get_origin(annotation) is dict:  # its keys and values are the user's own
        return
    yield annotation
    for kind in typing.get_args(annotation):
        yield from _kinds(kind)


def test_ray_sends_the_code_of_a_checkout_alone(tmp_path: Path) -> None:
    """With `ray job submit --working-dir .`, by `.gitignore` and `.rayignore`."""
    checkout = tmp_path / "checkout"
    for name in (".gitignore", ".rayignore"):
        write(checkout / name, (REPOSITORY / name).read_bytes())
    code = {"actors/a.py", "tiny_models/scalar/model.safetensors", "deploy/web/page/index.html", "rubrics/mine.yaml"}
    others = {".venv/lib/x.py", ".git/HEAD", "demo/scored/manifest.json", "tests/conftest.py", "docs/page.png", "bench/m.py"}
    data = {"corpus.jsonl", "corpus/a.jsonl.gz", "corpus/b.parquet", "corpus/c.jsonl.zst", "scored/manifest.json"}
    caches = {".mypy_cache/x.json", "actors/__pycache__/a.pyc", ".pytest_cache/x", ".ruff_cache/x", ".hypothesis/x"}
    for name in code | others | data | caches:
        write(checkout / name, b"{}")
    archive = tmp_path / "checkout.zip"
    create_package(str(checkout), archive, include_gitignore=True, excludes=get_runtime_env_default_excludes())
    sent_names = {name for name in zipfile.ZipFile(archive).namelist() if not name.endswith("/")}
    assert sent_names == code | {".gitignore", ".rayignore"}
