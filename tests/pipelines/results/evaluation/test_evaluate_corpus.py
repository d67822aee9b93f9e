"""From a scored folder to results: what is graded, what isn't and why, which benchmark it is, and what is written."""

import hashlib
import json
import math
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock
from xml.etree import ElementTree

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

import assay
from actors.errors import GateFailed, OutputError, RunStopped, SettingsError, SourceError
from pipelines.cli.app import cli
from pipelines.data.formats import RowShape
from pipelines.folders.run_folder.manifest import read_manifest
from pipelines.folders.run_folder.part import Counts
from pipelines.folders.run_folder.parts import Parts
from pipelines.folders.scored_corpus.summary import summarise
from pipelines.results.evaluation import evaluate_corpus
from pipelines.results.evaluation.evaluate_corpus import evaluate
from pipelines.results.evaluation.gate import BaselineComparison, Drift, compare
from pipelines.results.evaluation.results import Figure
from pipelines.results.evaluation.saved_results import SavedEvaluation, is_results, read_evaluations, read_results
from pipelines.results.filtering.filter_corpus import keep
from pipelines.settings.evaluate_settings import EvaluateSettings
from pipelines.settings.filter_settings import FilterSettings
from pipelines.settings.options import build
from tests.support.candidates import judged_corpus, scored_corpus
from tests.support.corpora import lines, settings, write
from tests.support.lost_leases import take_over

Rewards = Sequence[Sequence[float | None]]
GOOD = [(2.0, 1.0)] * 18 + [(1.0, 2.0)] * 2
WORSE = [*[(2.0, 1.0)] * 16, (1.0, 1.5), (1.0, 1.5), *[(1.0, 2.0)] * 2]


def preferences(folder: Path, rewards: Rewards, **fields: Sequence[object]) -> str:
    """A scored corpus of a chosen and a rejected response a row, with these rewards."""
    rows = [
        {
            "prompt": f"p{index}",
            "chosen": "good",
            "rejected": "bad",
            **{name: values[index] for name, values in fields.items()},
        }
        for index in range(len(rewards))
    ]
    return judged_corpus(folder, rows, rewards, RowShape("preference"), parquet=True)


def run(*scored: str, **options: object) -> Any:
    return evaluate(build(EvaluateSettings, {"scored": scored, **options}))


def figures(folder: Path) -> Mapping[str, float | None]:
    (evaluation,) = read_results(str(folder))
    return {figure.name: figure.value for figure in evaluation.figures}


def test_results_that_are_there_are_made_again_only_for_other_settings_or_scores(tmp_path: Path) -> None:
    scored, output, notes = preferences(tmp_path / "s", GOOD), tmp_path / "e", list[str]()
    first = run(scored, output=str(output))
    written = {file: file.stat().st_mtime_ns for file in output.glob("*.*")}
    again = evaluate(build(EvaluateSettings, {"scored": scored, "output": str(output)}), notes.append)
    assert [each.figures for each in again] == [each.figures for each in first]
    assert notes == [f"evaluate: nothing to do: {output} has these results already"]
    assert {file: file.stat().st_mtime_ns for file in output.glob("*.*")} == written
    with pytest.raises(OutputError, match="--overwrite replaces it"):
        run(scored, output=str(output), resampling_seed=1)
    shutil.rmtree(scored)
    preferences(tmp_path / "s", GOOD[1:])
    with pytest.raises(OutputError, match="--overwrite replaces it"):
        run(scored, output=str(output))


def test_models_of_one_benchmark_are_called_by_what_tells_them_apart(tmp_path: Path) -> None:
    folders = [preferences(tmp_path / name, GOOD) for name in "ab"]
    for folder in folders:
        file = Path(folder, "manifest.json")
        manifest = json.loads(file.read_text())
        manifest["identity"]["model"] = f"{folder}/final"
        file.write_text(json.dumps(manifest))
    results = run(*folders)
    assert [each.label for each in results] == ["a/final", "b/final"]
    assert [each.model for each in results] == [f"{folder}/final" for folder in folders]
    assert str(tmp_path) not in results.markdown()
    assert str(results) == results.markdown(), "for a prompt, and for a notebook"


def test_every_item_is_graded_or_listed_with_its_reason(tmp_path: Path) -> None:
    scored = preferences(tmp_path / "s", [(2.0, 1.0), (1.0, 2.0), (3.0, None), (1.0, 1.0)])
    (evaluation,) = run(scored, output=str(tmp_path / "e"))
    (counts,) = evaluation.subsets.values()
    assert (counts.items, counts.graded, counts.tied, counts.reasons) == (4, 3, 1, {"rejected: too_long": 1})
    assert (evaluation.coverage, evaluation.tie_rate) == (0.75, 1 / 3)
    assert figures(tmp_path / "e")["accuracy"] == pytest.approx(1 / 3), "of those with a grade: never silently wrong"
    items = pq.read_table(tmp_path / "e" / "items-00000.parquet").to_pylist()
    grades = [(item["in_order"], item["reason"]) for item in items]
    assert grades == [(1.0, None), (0.0, None), (None, "rejected: too_long"), (0.0, None)]
    assert dict(items[0]["rewards"]) == {"chosen": 2.0, "rejected": 1.0}
    table = (tmp_path / "e" / "table.md").read_text()
    assert "Coverage 75.0%, ties 33.3%" in table
    assert "Without a grade: 1 of all: rejected: too_long" in table


def with_noise(scored: str, largest: float) -> str:
    """A scored corpus whose run has measured the noise of batching."""
    manifest = Path(scored) / "manifest.json"
    document = json.loads(manifest.read_text())
    document["summary"] = {**(document["summary"] or {}), "work": {"noise": {"largest": largest, "responses": 22}}}
    manifest.write_text(json.dumps(document))
    return scored


def test_the_items_that_the_noise_of_batching_may_decide_are_counted_and_named(tmp_path: Path) -> None:
    rewards = [(2.0, 1.0), (1.0, 1.0 + 3e-6), (3.0, None), (1.0, 1.0), (1.0, 1.0 + 5e-6), (2.0 + 1e-6, 2.0)]
    scored = with_noise(preferences(tmp_path / "s", rewards), 1e-6)
    (evaluation,) = run(scored, output=str(tmp_path / "e"))
    rows = pq.read_table(tmp_path / "e" / "items-00000.parquet").to_pylist()
    assert [row["closest"] for row in rows] == pytest.approx([1.0, 3e-6, None, 0.0, 5e-6, 1e-6])
    assert evaluation.noise.names == (rows[1]["row"], rows[5]["row"])
    note = (
        "2 of 5 items are decided by 4e-06 or less, the noise of batching in this run (22 responses were asked twice, and "
        f"their rewards differ by up to 1e-06): {', '.join(evaluation.noise.names)}"
    )
    assert note in evaluation.caveats
    assert note in (tmp_path / "e" / "table.md").read_text()
    (saved,) = json.loads((tmp_path / "e" / "results.json").read_text())["evaluations"]
    assert (saved["noise"]["items"], saved["noise"]["difference"]) == (2, 4e-6)
    (decided,) = run(with_noise(preferences(tmp_path / "t", [(2.0, 1.0)] * 3), 1e-6))
    assert decided.caveats[0].startswith("No item is decided by 4e-06 or less")
    (unmeasured,) = run(preferences(tmp_path / "u", [(2.0, 1.0), (1.0, 1.0 + 1e-9)]))
    assert (unmeasured.noise, unmeasured.caveats) == (None, [])


def test_a_reward_that_is_no_number_is_no_grade(tmp_path: Path) -> None:
    """NaN > 1 is false, and would count as wrong. Runs of Assay don't write such rewards; what was made otherwise may."""
    (evaluation,) = run(preferences(tmp_path / "s", [(2.0, 1.0), (math.nan, 1.0), (math.inf, 1.0)]))
    (counts,) = evaluation.subsets.values()
    assert (counts.graded, counts.reasons, counts.failed) == (1, {"failed: not_finite": 2}, 2)
    assert evaluation.figures[0].value == 1.0


@pytest.mark.parametrize("benchmark", ["pairs", "reward-bench", "reward-bench-2", "rmb"])
def test_a_pair_whose_sides_answer_different_prompts_has_no_grade(benchmark: str, tmp_path: Path) -> None:
    def side(question: str, answer: str) -> list[dict[str, str]]:
        return [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]

    rows = [{"chosen": side("p", f"good {index}"), "rejected": side("q" * (index < 3) or "p", "bad")} for index in range(10)]
    scored = scored_corpus(settings(write(tmp_path / "c.jsonl", lines(rows)), tmp_path / "s"))
    (evaluation,) = run(scored, benchmark=benchmark, partial=True, output=str(tmp_path / "e"))
    (counts,) = evaluation.subsets.values()
    assert (counts.items, counts.graded) == (10, 7)
    assert counts.reasons == {"not compared: rejected answers another prompt than chosen": 3}
    labels = summarise(Parts(scored), read_manifest(scored).columns, Counts(10, 20)).labels  # type: ignore[union-attr]
    assert labels["pairs"] == counts.graded, "as `score` counts the labels"


def test_each_subset_has_its_counts_and_its_figure(tmp_path: Path) -> None:
    rewards = [(2.0, 1.0), (1.0, 1.0), (3.0, None), (1.0, 2.0), (2.0, 0.0)]
    scored = preferences(tmp_path / "s", rewards, subset=["x", "x", "x", "y", "x"])
    run(scored, output=str(tmp_path / "e"))
    (evaluation,) = json.loads((tmp_path / "e" / "results.json").read_text())["evaluations"]
    counts = {"items": 4, "expected": None, "graded": 3, "tied": 1, "rejected": 1, "failed": 0, "coverage": 0.75}
    figure = {"value": pytest.approx(2 / 3), "low": pytest.approx(0.208, abs=1e-3), "high": pytest.approx(0.939, abs=1e-3)}
    assert evaluation["subsets"]["x"] == {
        **counts,
        **figure,
        "reasons": {"rejected: too_long": 1},
        "correct": pytest.approx(2),
        "convention": "a tie is wrong",
    }
    assert (evaluation["subsets"]["y"]["correct"], evaluation["subsets"]["y"]["coverage"]) == (0, 1)
    (alone,) = run(preferences(tmp_path / "t", rewards))
    assert alone.subsets["all"].correct == pytest.approx(2)
    assert alone.subsets["all"].value == alone.figures[0].value, "the headline is that of the only subset"


def test_another_number_of_items_than_the_published_files_is_said(tmp_path: Path) -> None:
    row = {"question": "?", "response_A": "a", "response_B": "b", "label": "A>B", "response_model": "m"}
    counts = {"mmlu-pro-law": 154, "livebench-reasoning": 98, "livebench-math": 56, "livecodebench": 42}
    rows = [
        {**row, "source": source, "pair_id": f"{source}{index}"}
        for source, count in counts.items()
        for index in range(count)
    ]

    def evaluated(name: str, rows: Sequence[dict[str, Any]]) -> Any:
        rewards, shape = [(1.0, 0.0)] * len(rows), RowShape("judgebench")
        scored = judged_corpus(tmp_path / name, rows, rewards, shape, parquet=True, part_rows=400)
        return run(scored, output=str(tmp_path / f"{name}-results"))[0]

    whole, lacking = evaluated("whole", rows), evaluated("lacking", rows[:-1])
    assert (whole.split, whole.caveats) == ("gpt", [])
    note = (
        "The numbers of items are those of no published file: gpt (coding 41 instead of 42), claude (coding 41 instead "
        "of 31, math 56 instead of 34, reasoning 98 instead of 51)."
    )
    assert (lacking.split, lacking.caveats) == (None, [note])
    assert note in (tmp_path / "lacking-results" / "table.md").read_text()


def test_results_tell_what_was_evaluated_and_that_rewards_are_made_up(tmp_path: Path) -> None:
    data = lines([{"prompt": "p", "chosen": "good", "rejected": "bad"}])
    corpus = write(tmp_path / "c.jsonl", data)
    run(scored_corpus(settings(corpus, tmp_path / "s")), output=str(tmp_path / "e"))
    (evaluation,) = json.loads((tmp_path / "e" / "results.json").read_text())["evaluations"]
    fingerprint = f"blake2b:{hashlib.blake2b(data, digest_size=16).hexdigest()}"
    sha256 = hashlib.sha256(data).hexdigest()
    file = {"name": "c.jsonl", "size": len(data), "fingerprint": fingerprint, "sha256": sha256, "published": None}
    assert evaluation["files"] == [file]
    assert evaluation["model"] == evaluation["identity"]["model"] == "tiny-attributes"
    assert "made up" in (tmp_path / "e" / "table.md").read_text()
    shown = CliRunner().invoke(cli, ["evaluate", str(tmp_path / "e"), "--against", str(tmp_path / "e")])
    assert shown.exit_code == 0, shown.output
    assert "made up" in shown.output
    corpus.write_bytes(data + data)
    (evaluation,) = run(str(tmp_path / "s"))
    assert evaluation.files[0]["sha256"] is None, "another file lies there now"


def test_a_figure_near_chance_says_so(tmp_path: Path) -> None:
    right, wrong = (2.0, 1.0), (1.0, 2.0)
    (guess,) = run(preferences(tmp_path / "g", [right, wrong] * 20))
    (knows,) = run(preferences(tmp_path / "k", [right] * 39 + [wrong]))
    assert guess.figures[0].near_chance
    assert not knows.figures[0].near_chance
    assert knows.figures[0].low > 0.85


def test_a_missing_subset_is_an_error_with_its_name(tmp_path: Path) -> None:
    scored = preferences(tmp_path / "s", [(2.0, 1.0)], subset=["math-prm"], chosen_model=["m"])
    with pytest.raises(SourceError, match=r"has no items of .*alpacaeval-easy.*, which reward-bench has; --partial"):
        run(scored)


def test_a_benchmark_is_found_by_its_rows_or_named(tmp_path: Path) -> None:
    scored = preferences(tmp_path / "s", [(2.0, 1.0)])
    assert run(scored)[0].benchmark == "pairs"
    with pytest.raises(SettingsError, match=r"--as rmbench: there is no such benchmark; there are helpsteer2, "):
        run(scored, benchmark="rmbench")
    answers = judged_corpus(tmp_path / "a", [{"prompt": "p", "response": "r"}], [[1.0]], RowShape("prompt-response"))
    with pytest.raises(SettingsError, match=r"doesn't say which benchmark it is .*prompt-response.*give --as"):
        run(answers)


def test_results_of_a_run_that_took_the_folder_over_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scored, out, names = preferences(tmp_path / "s", [(2.0, 1.0)]), tmp_path / "e", ("evaluate.json", "results.json")
    evaluate_all = evaluate_corpus._evaluate_all

    def suspended(*arguments: Any) -> Any:
        results = evaluate_all(*arguments)
        take_over(out)
        for name in names:
            (out / name).write_text("the other's")
        return results

    monkeypatch.setattr(evaluate_corpus, "_evaluate_all", suspended)
    with pytest.raises(RunStopped, match="another run has taken"):
        run(scored, output=str(out))
    assert {(out / name).read_text() for name in names} == {"the other's"}


def test_results_are_replaced_only_on_request(tmp_path: Path) -> None:
    scored = preferences(tmp_path / "s", [(2.0, 1.0)])
    run(scored, output=str(tmp_path / "e"))
    with pytest.raises(OutputError, match="--overwrite"):
        run(scored, output=str(tmp_path / "e"), partial=True)
    run(scored, output=str(tmp_path / "e"), overwrite=True)


def test_one_that_is_stopped_leaves_no_earlier_results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scored, output = preferences(tmp_path / "s", [(2.0, 1.0)]), str(tmp_path / "e")
    run(scored, output=output)
    monkeypatch.setattr(evaluate_corpus, "_evaluate_all", Mock(side_effect=KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        run(scored, output=output, overwrite=True)
    assert not is_results(output)


def test_a_part_of_a_corpus_is_called_so(tmp_path: Path) -> None:
    scored = preferences(tmp_path / "s", [(2.0, 1.0), (1.0, 3.0)])
    assert run(scored)[0].caveats == []
    keep(FilterSettings(scored=scored, output=str(tmp_path / "f"), where="reward < 3"))
    (kept,) = run(str(tmp_path / "f"))
    assert (kept.figures[0].value, kept.coverage) == (1.0, 0.5)
    assert kept.caveats == [
        "Only what a filter kept (where: reward < 3) counts: neither figures nor coverage are of the whole corpus."
    ]
    manifest = tmp_path / "s" / "manifest.json"
    document = json.loads(manifest.read_text())
    manifest.write_text(json.dumps({**document, "identity": {**document["identity"], "limit": 2}}))
    assert run(scored)[0].caveats == ["Scored with --limit 2: the rows after these count in no figure, nor in the coverage."]


def test_rows_that_are_there_twice_are_counted_each_and_said(tmp_path: Path) -> None:
    row = {"prompt": "p", "chosen": "good", "rejected": "bad", "id": 1}
    rows = [row, {**row, "id": 2}, {**row, "chosen": "bad", "rejected": "good"}, {**row, "prompt": "q"}, row]
    (evaluation,) = run(scored_corpus(settings(write(tmp_path / "c.jsonl", lines(rows)), tmp_path / "s")))
    assert (evaluation.repeated, evaluation.figures[0].n) == (2, 5), "the one with another id, and the last one"
    note = "2 of 5 rows repeat an earlier row's prompt, responses and labels; each counts, as in the benchmarks' own codes"
    assert note in CliRunner().invoke(cli, ["evaluate", str(tmp_path / "s")]).output
    (unknown,) = run(preferences(tmp_path / "n", [(2.0, 1.0)] * 2))
    assert unknown.repeated is None, "without the responses' texts (`text: false`) nobody can tell"
    assert unknown.caveats == []
    row = {"question": "?", "response_A": "a", "response_B": "b", "source": "livebench-math", "response_model": "m"}
    corpus = write(tmp_path / "l.jsonl", lines([{**row, "label": label} for label in ("A>B", "B>A", "A>B")]))
    (labelled,) = run(scored_corpus(settings(corpus, tmp_path / "l")), partial=True)
    assert labelled.repeated == 1, "a row with another label is another item"


def test_from_python_it_returns_the_results(tmp_path: Path) -> None:
    scored = preferences(tmp_path / "s", GOOD)
    (evaluation,) = assay.evaluate(scored)
    assert evaluation.figures[0].value == 0.9
    results_of_two = assay.evaluate(
        [scored, preferences(tmp_path / "t", WORSE)], str(tmp_path / "e"), benchmark="pairs", resampling_seed=3
    )
    assert results_of_two.paired[0].splits[0].first_ahead == 2
    assert json.loads((tmp_path / "e" / "results.json").read_text())["settings"]["resampling_seed"] == 3
    with pytest.raises(SettingsError, match=r"against is a gate .* `assay evaluate`"):
        assay.evaluate(scored, against="x")
    with pytest.raises(SettingsError, match=r"endpoint needs --model"):
        assay.evaluate(f"pairs={scored}", endpoint="http://127.0.0.1:9/v1")


# --- The gate -------------------------------------------------------------------------------------------------------


def results(tmp_path: Path, name: str, rewards: Rewards, **fields: Sequence[object]) -> Path:
    run(preferences(tmp_path / f"s-{name}", rewards, **fields), output=str(tmp_path / name))
    return tmp_path / name


def compared(now: Path, before: Path) -> BaselineComparison:
    (comparison,) = compare(read_evaluations(str(now)), read_evaluations(str(before)))
    return comparison


def test_a_gate_passes_what_is_as_good_and_lists_what_flipped(tmp_path: Path) -> None:
    before, worse = results(tmp_path, "before", GOOD), results(tmp_path, "worse", WORSE)
    same = compared(before, before)
    assert same.drift is not None
    assert (same.failures(0.0, 1.0), same.flips, same.drift.largest) == ([], [], 0.0)
    comparison = compared(worse, before)
    assert comparison.failures(10.0, 0.0) == [], "it fell by ten points"
    (failure,) = comparison.failures(9.9, 0.0)
    assert "accuracy fell from 90.00% to 80.00%, by more than 9.9 points" in failure
    assert [(flip["before"], flip["now"]) for flip in comparison.flips] == [(1.0, 0.0)] * 2
    drift = comparison.drift
    assert drift is not None
    assert (drift.responses, round(drift.largest, 9), drift.compared, drift.rank_flips) == (40, 1.0, 20, 2)


def test_drift_is_by_subset(tmp_path: Path) -> None:
    subsets = {"subset": ["x", "x", "y"]}
    before = results(tmp_path, "before", [(2.0, 1.0), (2.0, 1.0), (2.0, 1.0)], **subsets)
    now = results(tmp_path, "now", [(2.0, 1.0), (2.0, 1.5), (2.0, 3.0)], **subsets)
    drift = compared(now, before).drift
    assert drift is not None
    assert drift.subsets == [Drift("x", 4, 0.125, 0.5, 2, 0), Drift("y", 2, 1.0, 2.0, 1, 1)]
    assert replace(drift, subsets=(), mean=round(drift.mean, 9)) == Drift(None, 6, round(2.5 / 6, 9), 2.0, 3, 1)
    shown = CliRunner().invoke(cli, ["evaluate", str(now), "--against", str(before), "--max-drop", "100"])
    assert (
        "Rewards of 6 responses: mean difference 0.417, largest 2; 1 of 3 pairs of responses rank otherwise" in shown.output
    )
    assert "y: 2 responses, mean difference 1, largest 2; 1 of 1 pairs" in shown.output


def test_a_headline_that_only_one_of_the_results_has_fails_the_gate(tmp_path: Path) -> None:
    (saved,) = read_evaluations(str(results(tmp_path, "before", GOOD)))
    accuracy, half = saved.evaluation.figures

    def with_figures(*figures: Figure) -> SavedEvaluation:
        return saved._replace(evaluation=replace(saved.evaluation, figures=figures))

    (vanished,) = compare([with_figures(half)], [saved])
    assert vanished.failures(100.0, 0.0) == [
        "m on pairs: accuracy isn't there any more, and was 90.00% before; --max-drop needs it in both results"
    ]
    assert [(change.name, change.now) for change in vanished.changes] == [("accuracy", None), ("accuracy (half)", 0.9)]
    (added,) = compare([saved], [with_figures(half)])
    assert (added.changes[0].name, added.failures(0.0, 1.0)) == ("accuracy (half)", []), "the headline of the baseline"
    (empty,) = compare([saved], [with_figures(replace(accuracy, value=None))])
    assert "accuracy has no value in the baseline" in empty.failures(100.0, 0.0)[0]


def test_a_flip_is_any_change_of_an_items_credit(tmp_path: Path) -> None:
    def matrix(name: str, rewards: Rewards) -> Path:
        rows = [
            {"id": f"chat/{index}", "prompt": "p", "chosen": ["a"] * 3, "rejected": ["b"] * 3}
            for index in range(len(rewards))
        ]
        corpus = judged_corpus(tmp_path / f"s-{name}", rows, rewards, RowShape("rm-bench"), parquet=True)
        run(corpus, benchmark="rm-bench", output=str(tmp_path / name))
        return tmp_path / name

    before, now = matrix("before", [[3, 3, 3, 1, 1, 1]] * 2), matrix("now", [[3, 3, 3, 1, 1, 1], [3, 3, 3, 1, 1, 4]])
    (flip,) = compared(now, before).flips
    assert (flip["before"], flip["now"]) == pytest.approx((1, 6 / 9)), "though its first comparison is as before"


def scored_pairs(tmp_path: Path, name: str, rows: Sequence[dict[str, Any]]) -> Path:
    """The results of these pairs on the fake engine, whose rewards are those of the texts."""
    corpus = write(tmp_path / name / "c.jsonl", lines(rows))
    run(scored_corpus(settings(corpus, tmp_path / name / "s")), output=str(tmp_path / name / "e"))
    return tmp_path / name / "e"


def test_a_gate_compares_the_same_items_wherever_they_stand(tmp_path: Path) -> None:
    rows = [{"prompt": "p", "chosen": f"good {index}", "rejected": f"bad {index}"} for index in range(30)]
    before, now = scored_pairs(tmp_path, "before", rows), scored_pairs(tmp_path, "now", rows[::-1])
    comparison = compared(now, before)
    assert (comparison.flips, comparison.unmatched, comparison.coverage) == ([], "", 1.0)
    assert (comparison.drift.responses, comparison.drift.largest) == (60, 0.0)  # type: ignore[union-attr]
    more = scored_pairs(tmp_path, "more", [{"prompt": "p", "chosen": "new", "rejected": "old"}, *rows[:28]])
    shown = CliRunner().invoke(cli, ["evaluate", str(more), "--against", str(before), "--max-drop", "100"])
    assert "Items of one alone: 2 of the baseline, in c.jsonl; 1 of now, in c.jsonl." in shown.output
    assert "93.5% of all items have a grade now" in str(shown.exception)
    other = scored_pairs(tmp_path, "other", [{**row, "prompt": "q"} for row in rows[5:]] + rows[:5])
    with pytest.raises(SettingsError, match=r"5 of 30 items of c\.jsonl are among the 30 of c\.jsonl"):
        compared(other, before)


def test_items_without_a_grade_or_gone_fail_the_gate_and_other_data_is_refused(tmp_path: Path) -> None:
    before, sparse = results(tmp_path, "before", GOOD), results(tmp_path, "sparse", [*GOOD[:10], *[(2.0, None)] * 10])
    (failure,) = compared(sparse, before).failures(100.0, 0.99)
    assert "50.0% of all items have a grade now, fewer than 99.0%" in failure
    comparison = compared(results(tmp_path, "half", GOOD[:10]), before)
    assert comparison.coverage == 0.5, "half of the baseline's items, though all that are left have a grade"
    assert len(comparison.flips) == 10
    (saved,) = read_evaluations(str(before))
    rows = pa.array([f"elsewhere:{index}" for index in range(len(GOOD))])
    message = r"0 of 20 items of c \(scored with `text: false`: known by place alone\) are among the 20 of c"
    with pytest.raises(SettingsError, match=message):
        compare([saved._replace(items=saved.items.set_column(0, "row", rows))], [saved])


def llmbar(tmp_path: Path) -> str:
    rows = [{"instruction": "i", "input": "i", "output_1": "a", "output_2": "b", "label": 1}]
    return judged_corpus(tmp_path / "l", rows, [(2.0, 1.0)], RowShape("llmbar"), parquet=True)


def gate(*arguments: object) -> Any:
    return CliRunner().invoke(cli, ["evaluate", *map(str, arguments)])


def test_a_benchmark_that_only_the_baseline_has_fails_the_gate(tmp_path: Path) -> None:
    pairs = preferences(tmp_path / "p", GOOD)
    run(llmbar(tmp_path), pairs, output=str(tmp_path / "both"))
    run(pairs, output=str(tmp_path / "now"))
    failed = gate(tmp_path / "now", "--against", tmp_path / "both", "--junit", tmp_path / "j.xml")
    assert isinstance(failed.exception, GateFailed)
    advice = "evaluate it, too, or compare with a baseline without it"
    assert str(failed.exception) == f"m on llmbar: it is in the baseline and not in these results; {advice}"
    assert "m on llmbar, against m: it isn't in these results" in failed.output
    suite = ElementTree.parse(tmp_path / "j.xml").getroot()
    assert (suite.get("tests"), suite.get("failures")) == ("2", "1")


def test_results_of_another_version_are_refused_with_words(tmp_path: Path) -> None:
    folder = results(tmp_path, "before", GOOD)
    whole = json.loads((folder / "results.json").read_text())
    older = [{name: value for name, value in whole["evaluations"][0].items() if name != "files"}]
    for document in ({**whole, "evaluations": older}, {**whole, "assay_results": 0}, [whole], {**whole, "evaluations": [1]}):
        (folder / "results.json").write_text(json.dumps(document))
        with pytest.raises(SourceError, match=r"results.json was written by another version of Assay.*evaluate .* again"):
            read_results(str(folder))
    (folder / "results.json").write_text(json.dumps(whole))
    items = folder / "items-00000.parquet"
    pq.write_table(pq.read_table(items).drop_columns(["half_for_ties"]), items)
    with pytest.raises(SourceError, match=r"items of m on pairs were graded by another version of Assay"):
        compared(folder, folder)
    unknown = {**whole, "evaluations": [{**whole["evaluations"][0], "benchmark": "x"}]}
    (folder / "results.json").write_text(json.dumps(unknown))
    with pytest.raises(SourceError, match="items of m on x were graded by another version of Assay"):
        compared(folder, folder)


def test_the_gate_as_a_command_and_as_junit(tmp_path: Path) -> None:
    before, worse = results(tmp_path, "before", GOOD), results(tmp_path, "worse", WORSE)
    options = ["--against", before, "--junit", tmp_path / "reports" / "junit.xml"]
    passed = gate(worse, *options, "--max-drop", "10")
    assert passed.exit_code == 0, passed.output
    assert "2 items have another grade" in passed.output
    (case,) = ElementTree.parse(tmp_path / "reports" / "junit.xml").getroot()
    assert list(case) == []
    assert isinstance(gate(worse, *options).exception, GateFailed)
    suite = ElementTree.parse(tmp_path / "reports" / "junit.xml").getroot()
    assert (suite.get("tests"), suite.get("failures")) == ("1", "1")
    (failure,) = suite.iter("failure")
    assert "accuracy fell from 90.00% to 80.00%" in failure.attrib["message"]
    assert isinstance(gate(worse, "--junit", tmp_path / "junit.xml").exception, SettingsError)


def test_several_folders_of_results_are_all_compared(tmp_path: Path) -> None:
    other, pairs, worse = llmbar(tmp_path), preferences(tmp_path / "p", GOOD), preferences(tmp_path / "w", WORSE)
    run(other, pairs, output=str(tmp_path / "base"))
    run(other, output=str(tmp_path / "first"))
    run(worse, output=str(tmp_path / "second"))
    failed = gate(tmp_path / "first", tmp_path / "second", "--against", tmp_path / "base")
    assert isinstance(failed.exception, GateFailed)
    assert "m on pairs: accuracy fell from 90.00% to 80.00%" in str(failed.exception)
    mixed = gate(tmp_path / "first", worse, "--against", tmp_path / "base")
    assert isinstance(mixed.exception, SettingsError)
    assert f"{worse} holds no results of an evaluation, and {tmp_path / 'first'} does" in str(mixed.exception)
