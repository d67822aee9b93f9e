"""What a card says of the judge and of its rewards, for any kind of judge."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from assay import filter
from pipelines.data.formats import RowShape
from pipelines.folders.run_folder.manifest import read_manifest
from pipelines.results.hub.hub_card import hub_card, read_result
from tests.support.candidates import judged_corpus
from tests.support.corpora import chat

NAMED = "nvidia/Llama-3.1-Nemotron-70B-Reward-HF"
QUANTILES = [-1.0, -0.5, 0.25, 2.0, 3.5, 4.25, 5.0]


def card(tmp_path: Path, identity: dict[str, Any]) -> str:
    """The card of what is kept of a corpus with another identity and with quantiles in its manifest."""
    scored = judged_corpus(tmp_path / "scored", [chat("q", "a")], [[3.0]], RowShape("messages"))
    manifest = read_manifest(scored)
    assert manifest is not None
    summary = {**(manifest.summary or {}), "quantiles": {"reward": QUANTILES}}
    replace(manifest, identity={**manifest.identity, **identity}, summary=summary).write(scored)
    filter(scored, str(tmp_path / "kept"), "reward > 0")
    return hub_card(read_result(str(tmp_path / "kept")), "team/kept")


def test_quantiles_of_the_corpus_stand_under_their_shares(tmp_path: Path) -> None:
    title, heading, _, row = card(tmp_path, {}).partition("## Quantiles of ")[2].replace("\n\n", "\n").splitlines()[:4]
    assert title == "the scored corpus"
    assert heading == "| output | 0% | 5% | 25% | 50% | 75% | 95% | 100% |"
    assert row == "| reward | -1 | -0.5 | 0.25 | 2 | 3.5 | 4.25 | 5 |"


def test_quantiles_of_another_run_and_of_what_cant_be_read_are_not_taken(tmp_path: Path) -> None:
    card(tmp_path, {})
    manifest = read_manifest(str(tmp_path / "scored"))
    assert manifest is not None
    replace(manifest, identity={**manifest.identity, "model": "another"}).write(str(tmp_path / "scored"))
    assert "Quantiles" not in hub_card(read_result(str(tmp_path / "kept")), "team/kept")
    (tmp_path / "scored" / "manifest.json").write_text("{")
    assert "Quantiles" not in hub_card(read_result(str(tmp_path / "kept")), "team/kept")


def test_a_published_judge_has_its_licence_and_a_fake_one_is_named(tmp_path: Path) -> None:
    text = card(tmp_path, {"model": NAMED, "family": "first-logit", "weights": "sha256:1", "engine": "fake"})
    assert f"of responses scored by `{NAMED}`" in text
    assert "| weights | sha256:1 |" in text
    assert "| licence of the model | Llama 3.1 Community License Agreement |" in text
    assert "The rewards are made up" in text


@pytest.mark.parametrize("model", ["/srv/secret/my-rm", "./secret/my-rm/", "s3://secret/place/my-rm"])
def test_of_a_model_in_a_folder_the_name_alone_is_shown(tmp_path: Path, model: str) -> None:
    text = card(tmp_path, {"model": model, "adapter": "/srv/secret/my-adapter"})
    assert "scored by `my-rm`" in text
    assert "| adapter | my-adapter |" in text
    assert "secret" not in text


def test_every_model_of_an_ensemble_is_shown(tmp_path: Path) -> None:
    members = {name: {"identity": {"model": name, "weights": f"sha256:{name}"}, "run": None} for name in ("first", "second")}
    text = card(tmp_path, {"members": members})
    assert "scored by `first`, `second`" in text
    assert all(f"## Scored by {name}\n\n|  |  |\n|---|---|\n| weights | sha256:{name} |" in text for name in members)
