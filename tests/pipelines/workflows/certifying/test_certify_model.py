"""Certificates on the fake engine, whose rewards are a hash of the tokens: equal rewards are of equal prompts."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from actors.errors import OutputError, SettingsError, SourceError
from bench.certify import VERBOSE, sums
from pipelines.results.certificates.certificate import Certificate, Effect, Finding
from pipelines.run.scoring.score_corpus import score
from pipelines.settings.certify_settings import CertifySettings
from pipelines.settings.options import build
from pipelines.workflows.certifying.certify_model import Question, certify, original_rewards, pair_rewards
from tests.pipelines.workflows.certifying.test_changes import request
from tests.support import corpora
from tests.support.commands import refusal_of
from tests.support.corpora import chat, lines, scored, write
from tests.support.ensembles import written
from tests.support.local_ray import run_here

POLITE = "Great question! I'd be glad to help.\n\n"


def settings(rows: Path, output: Path, **options: Any) -> CertifySettings:
    flat = {"model": "tiny-attributes", "engine": "fake", **options}
    return build(CertifySettings, {"inputs": (str(rows),), "output": str(output), **flat})


def effects_of(certificate: Certificate) -> dict[str, Effect]:
    return {effect.name: effect for effect in certificate.effects}


def corpus(folder: Path, count: int = 60) -> Path:
    rows = [chat(f"What is {n} + 1?", f"It is {n + 1}. Count on.", id=n) for n in range(count)]
    return write(folder / "c.jsonl", lines(rows))


@pytest.mark.usefixtures("local_ray")
def test_originals_and_changes_are_scored_as_by_hand(tmp_path: Path) -> None:
    rows = corpus(tmp_path)
    polite = lines([chat(f"What is {n} + 1?", f"{POLITE}It is {n + 1}. Count on.") for n in range(60)])
    certificate = certify(settings(rows, tmp_path / "out"))
    score(corpora.settings(rows, tmp_path / "plain"))
    score(corpora.settings(write(tmp_path / "polite.jsonl", polite), tmp_path / "polite"))
    before, after = (np.array([row["reward"] for row in scored(tmp_path / name)]) for name in ("plain", "polite"))
    effect = effects_of(certificate)["polite"]
    assert certificate.deviation == pytest.approx(before.std(ddof=1))
    assert effect.pairs == 60
    assert effect.change == pytest.approx((after - before).mean())
    document = json.loads((tmp_path / "out" / "certificate.json").read_text())
    assert document["assay_certificate"] == 1
    assert document["effects"][3]["change"] == pytest.approx(effect.change)
    assert document["identity"]["model"] == "tiny-attributes"
    assert document["made_up"]


@pytest.mark.usefixtures("local_ray")
def test_every_row_is_a_question_or_counted_and_every_question_a_pair_or_counted(tmp_path: Path) -> None:
    conversations = [
        *(chat(f"What is {n} + 1?", f"It is {n + 1}.") for n in range(40)),
        *(chat(f"Write {n} as JSON.", f"It is {n}.") for n in range(5)),
        *(chat(f"Write code for {n}.", f"```\n{n}\n```") for n in range(4)),
        chat("What is 1 + 1?", "Two <extra_id_1> here"),
        chat("What is 1 + 1?", ""),
        {"messages": [{"role": "system", "content": "Add."}, *chat("1 + 2?", "Three.")["messages"]]},
        {"messages": [*chat("1 + 2?", "Three.")["messages"], *chat("And 2 + 2?", "Four.")["messages"]]},
    ]
    certificate = certify(settings(write(tmp_path / "c.jsonl", lines([*conversations, "x"])), tmp_path / "out"))
    assert certificate.left == {"control_token": 1, "empty_content": 1, "not_an_object": 1}
    assert certificate.questions == 51
    for effect in certificate.effects:
        assert effect.pairs + sum(effect.left.values()) == 51, effect
    effects = effects_of(certificate)
    assert effects["length"].left == {"form_asked": 5, "not_prose": 4}
    assert effects["white_space"].left == {"not_prose": 4}
    assert (effects["order"].finding, effects["order"].left) == (Finding.NOT_SHOWN, {"one_response": 51})
    assert (effects["seed"].finding, effects["seed"].left) == (Finding.NOT_SHOWN, {"not_sampled": 51})
    # A head sees one response at a time: their order is the same prompts, and no measurement.
    pairs = [{"prompt": f"What is {n} + 1?", "chosen": f"{n + 1}", "rejected": f"{n}"} for n in range(40)]
    of_pairs = certify(settings(write(tmp_path / "p.jsonl", lines(pairs)), tmp_path / "pairs"))
    order = effects_of(of_pairs)["order"]
    assert (order.finding, order.left) == (Finding.NOT_SHOWN, {"same_prompt": 40})
    assert effects_of(of_pairs)["length"].verdicts == 40


@pytest.mark.usefixtures("local_ray")
def test_a_scored_corpus_gives_the_certificate_of_its_rows(tmp_path: Path) -> None:
    pairs = [{"prompt": f"What is {n} + 1?", "chosen": f"{n + 1}", "rejected": f"{n}", "id": n} for n in range(40)]
    rows = write(tmp_path / "p.jsonl", lines(pairs))
    score(corpora.settings(rows, tmp_path / "scored", model="tiny-scalar"))
    of_rows, of_scored = (certify(settings(tmp_path / name, tmp_path / f"of-{name}")) for name in ("p.jsonl", "scored"))
    assert of_scored.effects == of_rows.effects
    # As they were read: its first 35 rows, by columns of its own, though the rows have a shape that is known.
    named = lines([{**row, "better": f"It is {n + 1}."} for n, row in enumerate(pairs)])
    read = {"prompt_column": "prompt", "response_column": ("better", "rejected"), "limit": 35}
    score(corpora.settings(write(tmp_path / "n.jsonl", named), tmp_path / "scored-named", model="tiny-scalar", **read))
    of_named = certify(settings(tmp_path / "n.jsonl", tmp_path / "of-named", **read))
    assert of_named.effects != of_rows.effects
    assert certify(settings(tmp_path / "scored-named", tmp_path / "of-scored-named")).effects == of_named.effects


@pytest.mark.usefixtures("local_ray")
def test_a_rubrics_fields_go_along_and_a_judge_that_compares_and_samples_has_order_and_seed(tmp_path: Path) -> None:
    pairs = [{"prompt": f"What is {n} + 1?", "chosen": f"{n + 1}", "rejected": f"{n}", "why": f"so {n}"} for n in range(40)]
    rows = write(tmp_path / "p.jsonl", lines(pairs))
    judge = {"model": "tiny-genrm", "votes": 1, "temperature": 1.0}
    effects = effects_of(certify(settings(rows, tmp_path / "judge", **judge)))
    assert (effects["order"].pairs, effects["seed"].pairs) == (40, 40)
    assert effects["order"].flipped == pytest.approx(0.5, abs=0.25)  # made-up verdicts
    assert {path.name for path in (tmp_path / "judge").glob("scored-*")} == {"scored-rows", "scored-seed"}
    singles = effects_of(certify(settings(corpus(tmp_path, 40), tmp_path / "singles", **judge)))["order"]
    assert (singles.finding, singles.left) == (Finding.TOO_FEW, {"one_response": 40})  # of the rows, and not of the judge
    text = "shows: one\nprompt: '{{ response }} {{ why }}'\npattern: '([0-9])'\nlow: 0\nhigh: 9\n"
    rubric = write(tmp_path / "r.yaml", text.encode())
    score(corpora.settings(rows, tmp_path / "plain", model="tiny-genrm", rubric=str(rubric), field={"why": "why"}))
    certify(settings(rows, tmp_path / "rubric", model="tiny-genrm", rubric=str(rubric), field={"why": "why"}))
    before = [row["reward"] for row in scored(tmp_path / "plain")]
    of_rows = [row for row in scored(tmp_path / "rubric" / "scored-rows") if row["change"] == "original"]
    assert [row["reward"] for row in of_rows] == before


@pytest.mark.usefixtures("local_ray")
def test_of_a_scored_folder_fields_are_read_from_the_columns_that_were_named_for_them(tmp_path: Path) -> None:
    pairs = [{"prompt": f"What is {n} + 1?", "response": f"{n + 1}", "why": "no", "because": f"so {n}"} for n in range(3)]
    rows = write(tmp_path / "p.jsonl", lines(pairs))
    text = "shows: one\nprompt: '{{ response }} {{ why }}'\npattern: '([0-9])'\nlow: 0\nhigh: 9\n"
    judge = {"model": "tiny-genrm", "rubric": str(write(tmp_path / "r.yaml", text.encode()))}
    score(corpora.settings(rows, tmp_path / "scored", field={"why": "because"}, **judge))
    certify(settings(rows, tmp_path / "of-rows", field={"why": "because"}, **judge))
    certify(settings(tmp_path / "scored", tmp_path / "of-scored", **judge))
    of_rows, of_scored = ((tmp_path / name / "rows.jsonl").read_bytes() for name in ("of-rows", "of-scored"))
    assert b"so 2" in of_rows
    assert of_scored == of_rows
    # A model that reads no such field isn't refused for what was named for another.
    plain = settings(tmp_path / "scored", tmp_path / "plain")
    assert certify(plain).effects == certify(settings(rows, tmp_path / "plain-of-rows")).effects


@pytest.mark.usefixtures("local_ray")
def test_a_certificate_resumes_and_other_rows_are_refused(tmp_path: Path) -> None:
    rows, out = corpus(tmp_path), tmp_path / "out"
    first = certify(settings(rows, out))
    before = written(out / "scored-rows")
    assert certify(settings(rows, out)) == first
    assert written(out / "scored-rows") == before
    with pytest.raises(OutputError, match="certificate on other rows; --overwrite replaces it"):
        certify(settings(rows, out, limit=40))
    assert certify(settings(rows, out, limit=40, overwrite=True)).questions == 40
    theirs = corpus(tmp_path).rename(tmp_path / "rows.jsonl")
    held = theirs.read_bytes()
    with pytest.raises(OutputError, match=r"rows\.jsonl isn't of a certificate, and would be replaced"):
        certify(settings(theirs, tmp_path, overwrite=True))
    assert theirs.read_bytes() == held


def test_what_cant_be_certified_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="exact-match compares by code"):
        certify(settings(corpus(tmp_path), tmp_path / "out", model="exact-match"))
    refused = write(tmp_path / "r.jsonl", lines([chat("What?", "<extra_id_1>")] * 3))
    with pytest.raises(SourceError, match="could be judged: 3 control_token"):
        certify(settings(refused, tmp_path / "out"))


def test_pairs_that_lose_a_reward_are_counted_with_the_reason() -> None:
    questions = {number: Question(request("a", "b"), 1) for number in range(4)}
    whole = [(1.0, None), (2.0, None)]
    rewards: dict[tuple[int, str], list[tuple[float | None, str | None]]] = {
        (0, "original"): [*whole],
        (1, "original"): [*whole],
        (2, "original"): [*whole],
        (3, "original"): [(1.0, None), (None, "no_verdict")],
        (0, "length"): [(1.0, None), (5.0, None)],
        (1, "length"): [(1.0, None), (None, "too_long")],
        (2, "length"): [(None, "broken_json")],
        (3, "length"): [*whole],
        (0, "order"): [(2.5, None), (None, "cut_off")],
    }
    trial = pair_rewards("length", "", questions, rewards, Counter({"not_prose": 7}))
    assert [pair.after for pair in trial.pairs] == [[1.0, 5.0]]
    missing = {"changed too_long": 1, "changed broken_json": 1, "original no_verdict": 1}
    assert trial.left == {"not_prose": 7, **missing}
    order = pair_rewards("order", "", questions, rewards, Counter())
    assert (order.pairs, order.left, order.impossible) == ([], {"changed cut_off": 1}, False)
    assert original_rewards(rewards) == [1.0, 2.0] * 3 + [1.0]


@pytest.mark.usefixtures("local_ray")
def test_the_command_says_effects_and_a_gate_ends_it_with_5(tmp_path: Path) -> None:
    rows, out = corpus(tmp_path), tmp_path / "out"
    done = run_here(
        "certify", "tiny-attributes", "--on", rows, "--out", out, "--set", "engine.engine=fake", "--max-effect", 0.05
    )
    assert done.returncode == 5, done.stderr
    assert "isn't shown to be within 0.05" in done.stderr
    assert "60 questions; effects are mean changes in standard deviations of the reward" in done.stdout
    assert "Questions without a pair: 60 one_response, of order" in done.stdout
    assert "These rewards are made up" in done.stdout
    page = tmp_path / "page.html"
    assert run_here("report", out, "--out", page).returncode == 0
    shown = page.read_text()
    assert "Certificate of <bdi>tiny-attributes</bdi>" in shown
    assert "the responses come in reversed order" in shown
    assert "60 one_response" in shown
    assert "give two of a kind" in refusal_of("report", out, tmp_path, "--out", page, run=run_here)


@pytest.mark.long
@pytest.mark.usefixtures("local_ray")
def test_real_models_with_planted_biases_are_caught(tmp_path: Path) -> None:
    """A head whose reward is the verbosity that it reads, and a judge of pairs that is asked in one order only."""
    wordy = corpus(tmp_path, 90)
    verbose = certify(settings(wordy, tmp_path / "v", engine="vllm", weights=VERBOSE))
    length = effects_of(verbose)["length"]
    assert (length.finding, verbose.made_up) == (Finding.SEEN, False)
    assert length.size is not None
    assert length.size > 0.5
    pairs = write(tmp_path / "p.jsonl", lines(sums()))
    judged = certify(settings(pairs, tmp_path / "g", model="tiny-genrm", engine="vllm", votes=1, temperature=1.5))
    effects = effects_of(judged)
    assert effects["order"].pairs + sum(effects["order"].left.values()) == judged.questions
    assert effects["seed"].finding is Finding.SEEN
    settled = certify(settings(pairs, tmp_path / "b", model="tiny-genrm", engine="vllm", votes=2, temperature=0.0))
    assert effects_of(settled)["order"].finding is Finding.NOT_SHOWN  # it is asked in both orders
    assert effects_of(settled)["seed"].finding is Finding.NOT_SHOWN
