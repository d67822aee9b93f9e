"""Several models on one corpus, on the fake engine: killed and gone on, refused by name, filtered as any scored corpus."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import assay
from actors.errors import OutputError, SettingsError, SourceError
from pipelines.cli.status import status
from pipelines.folders.run_folder.manifest import read_manifest
from pipelines.folders.run_folder.parts import Parts
from pipelines.results.filtering.filter_corpus import keep
from pipelines.run.runtime.progress import Progress
from pipelines.settings.filter_settings import FilterSettings
from pipelines.settings.options import build
from pipelines.settings.run_settings import EnsembleSettings
from pipelines.workflows.ensembles.members import members, score_fields
from pipelines.workflows.ensembles.score_ensemble import EnsembleSummary, ensemble
from tests.support.commands import sets, summary
from tests.support.corpora import chat, lines, outcome_of, rows, scored, write
from tests.support.ensembles import written, z_scores
from tests.support.judges import judge_folder
from tests.support.local_ray import run_here

MODELS: tuple[Any, ...] = ("tiny-scalar", "tiny-attributes")
NAMES = ("tiny_scalar", "tiny_attributes")


def answers(prompts: int, each: int) -> list[dict[str, Any]]:
    """Several responses to each prompt, rows apart from each other."""
    return [
        chat(f"What is {of} + 1?", f"It is {of + number}.", id=of * each + number)
        for number in range(each)
        for of in range(prompts)
    ]


def settings(inputs: Path | Sequence[Path], output: Path, **options: Any) -> EnsembleSettings:
    paths = (inputs,) if isinstance(inputs, Path) else inputs
    flat = {"models": MODELS, "engine": "fake", **options}
    return build(EnsembleSettings, {"inputs": tuple(map(str, paths)), "output": str(output), **flat})


def run(inputs: Path | Sequence[Path], output: Path, progress: Any = None, **options: Any) -> EnsembleSummary:
    return ensemble(settings(inputs, output, **options), progress)


def of_members(parts: dict[str, tuple[int, int]]) -> dict[str, tuple[int, int]]:
    return {name: stamp for name, stamp in parts.items() if name.startswith("models")}


class Kill(Exception):
    """What no code of ours catches."""


class KilledAt(Progress):
    """Dies when so many parts of the member of this number are done."""

    def __init__(self, number: int, parts: int) -> None:
        self._number, self._parts, self._is_reached = number, parts, False

    def member(self, name: str, model: str, number: int, count: int) -> None:
        self._is_reached = number == self._number
        self._die_if_done(0)

    def part_done(self, part: object) -> None:
        self._die_if_done(1)

    def _die_if_done(self, parts: int) -> None:
        if self._is_reached:
            self._parts -= parts
            if self._parts == 0:
                raise Kill


# --- runs ----------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("local_ray")
def test_the_same_rows_come_out_with_what_every_member_said(tmp_path: Path) -> None:
    corpus = [write(tmp_path / "in" / name, lines(answers(20, 4))) for name in ("a.jsonl", "b.jsonl.gz")]
    result = run(corpus, tmp_path / "out", part_rows=7, unit_bytes=3000)
    assert (result.combined.rows, result.combined.scored) == (160, 160)
    ours = scored(tmp_path / "out")
    by_member = [scored(tmp_path / "out" / "models" / name) for name in NAMES]
    for row, first, second in zip(ours, *by_member, strict=True):
        carried = ("record", "id", "row", "response_name", "prompt_hash")
        assert [row[name] for name in carried] == [first[name] for name in carried] == [second[name] for name in carried]
        assert [row["scores"][name] for name in NAMES] == [first["reward"], second["reward"]]
        assert row["prompt_tokens"] == first["prompt_tokens"] + second["prompt_tokens"]
        assert row["response_text"] == first["response_text"] == json.loads(row["record"])["messages"][-1]["content"]
        assert "response_text" not in second, "one member stores it for all"
    of_prompt = [place for place, row in enumerate(ours) if row["prompt_hash"] == ours[0]["prompt_hash"]]
    assert len(of_prompt) == 8  # four in each file, in parts of their own
    for name, rewards in zip(NAMES, by_member, strict=True):
        z = z_scores([rewards[place]["reward"] for place in of_prompt])
        assert [ours[place]["scores"][f"z_{name}"] for place in of_prompt] == pytest.approx(z)
    assert result.members[NAMES[1]].quantiles["reward"] == result.combined.quantiles["scores.tiny_attributes"]
    assert {row["suspect"] for row in ours} <= {True, False}


@pytest.mark.usefixtures("local_ray")
@pytest.mark.long
@pytest.mark.parametrize("killer", [KilledAt(2, 0), KilledAt(2, 3)], ids=["between members", "in a member"])
def test_a_killed_run_goes_on_to_what_a_calm_one_gives(tmp_path: Path, killer: Progress) -> None:
    corpus = write(tmp_path / "c.jsonl", lines(answers(30, 4)))
    calm = run(corpus, tmp_path / "calm", part_rows=10, unit_bytes=2000)
    with pytest.raises(Kill):
        run(corpus, tmp_path / "out", killer, part_rows=10, unit_bytes=2000)
    before = written(tmp_path / "out")
    assert before
    assert not Parts(str(tmp_path / "out")).listing()
    assert not status(str(tmp_path / "out")).complete
    with pytest.raises(SourceError, match="isn't complete"):
        keep(FilterSettings(scored=str(tmp_path / "out"), where="reward > 0"))
    assert run(corpus, tmp_path / "out", part_rows=10, unit_bytes=2000) == calm
    after = written(tmp_path / "out")
    assert {name: after[name] for name in before} == before
    assert scored(tmp_path / "out") == scored(tmp_path / "calm")


@pytest.mark.usefixtures("local_ray")
def test_other_settings_of_the_combination_run_no_model_again(tmp_path: Path) -> None:
    corpus = write(tmp_path / "c.jsonl", lines(rows(10)))
    assert run(corpus, tmp_path / "out").combined.reasons == {"no_baseline": 10}
    before = of_members(written(tmp_path / "out"))
    by_mean = run(corpus, tmp_path / "out", combine="mean")
    assert (by_mean.combined.scored, by_mean.combined.reasons) == (10, {})
    assert "scores.z_mean" not in by_mean.combined.quantiles
    assert of_members(written(tmp_path / "out")) == before
    assert [row["reward"] for row in scored(tmp_path / "out")] == [
        sum(row["scores"][name] for name in NAMES) / 2 for row in scored(tmp_path / "out")
    ]


@pytest.mark.usefixtures("local_ray")
def test_what_one_member_rejects_or_fails_on_is_not_scored(tmp_path: Path) -> None:
    # A control token of the attribute model alone; a character whose token is a fault for the other one.
    odd = [chat("q", "<extra_id_1> x"), chat("q", "\x07 x"), chat("q", "\x07 <extra_id_1>"), {"messages": 5}]
    corpus = write(tmp_path / "c.jsonl", lines([*odd, chat("q", "a"), chat("q", "b b")]))
    engine = {"engine": "fake", "engine_args": {"at": {str(_token("\x07")): "nan"}}}
    models = [{"model": "tiny-scalar", "engine": engine}, "tiny-attributes"]
    result = run(corpus, tmp_path / "out", models=models)
    assert outcome_of(tmp_path / "out") == [
        ("rejected", "control_token"),
        ("failed", "not_finite"),
        ("failed", "not_finite"),
        ("rejected", "wrong_type"),
        ("scored", None),
        ("scored", None),
    ]
    assert outcome_of(tmp_path / "out" / "models" / NAMES[0])[0] == ("scored", None)
    assert (result.combined.scored, result.combined.rejected, result.combined.failed) == (2, 2, 2)
    assert [row["reward"] is None for row in scored(tmp_path / "out")] == [True] * 4 + [False] * 2


def _token(text: str) -> int:
    from tokenizers import Tokenizer

    from actors.checkpoint.checkpoint_files import locate

    tokenizer = Tokenizer.from_file(str(Path(locate("tiny-scalar"), "tokenizer.json")))
    (token,) = tokenizer.encode(text, add_special_tokens=False).ids
    return int(token)


@pytest.mark.usefixtures("local_ray")
def test_it_is_filtered_as_any_scored_corpus_and_the_bytes_come_back(tmp_path: Path) -> None:
    odd = b'{"messages":[{"role":"user","content":"What is 3 + 1?"},{"role":"assistant","content":"\\u00e9"}] , "n": 1.10}'
    corpus = write(tmp_path / "c.jsonl", lines(answers(20, 4)) + odd + b"\n")
    run(corpus, tmp_path / "out")
    everything = FilterSettings(scored=str(tmp_path / "out"), where="true", output=str(tmp_path / "all"), fields=False)
    assert keep(everything).kept == 81
    assert b"".join(path.read_bytes() for path in sorted((tmp_path / "all").glob("*.jsonl"))) == corpus.read_bytes()
    kept = assay.filter(str(tmp_path / "out"), str(tmp_path / "good"), "not suspect and reward > 0")
    good = [json.loads(line) for path in (tmp_path / "good").glob("*.jsonl") for line in path.read_bytes().splitlines()]
    wanted = [row for row in scored(tmp_path / "out") if row["suspect"] is False and row["reward"] > 0]
    assert kept.kept == len(good) == len(wanted) > 0
    assert [(row["reward"], row["suspect"], row["scores"]) for row in good] == [
        (row["reward"], False, row["scores"]) for row in wanted
    ]
    table = assay.read_scored(str(tmp_path / "out")).take_all()
    assert sorted(row["reward"] for row in table) == sorted(row["reward"] for row in scored(tmp_path / "out"))


# --- what is in the folder already ---------------------------------------------------------------------------------


@pytest.mark.usefixtures("local_ray")
def test_another_ensemble_is_refused_by_name_before_any_model_runs(tmp_path: Path) -> None:
    corpus = write(tmp_path / "c.jsonl", lines(answers(3, 3)))
    run(corpus, tmp_path / "out")
    before = written(tmp_path / "out")
    weighed = {"model": "tiny-attributes", "weights": {"verbosity": 1.0}}
    with pytest.raises(OutputError, match=r"models/tiny_attributes: .*\n *reward_weights: "):
        run(corpus, tmp_path / "out", models=("tiny-scalar", weighed))
    with pytest.raises(OutputError, match=r"members: \{'tiny_scalar': .*tiny_first_logit"):
        run(corpus, tmp_path / "out", models=(*MODELS, "tiny-first-logit"))
    write(tmp_path / "c.jsonl", lines(answers(3, 4)))
    with pytest.raises(OutputError, match="the input isn't what it was"):
        run(corpus, tmp_path / "out")
    assert written(tmp_path / "out") == before
    result = run(corpus, tmp_path / "out", models=("tiny-scalar", weighed), overwrite=True)
    assert result.combined.responses == 12
    assert result.members["tiny_attributes"].quantiles["reward"] == result.combined.quantiles["scores.tiny_attributes"]
    assert not set(before.values()) & set(written(tmp_path / "out").values())


@pytest.mark.usefixtures("local_ray")
def test_new_files_change_the_baselines_of_the_old_ones(tmp_path: Path) -> None:
    write(tmp_path / "in" / "b.jsonl", lines(answers(5, 2)))
    run(tmp_path / "in", tmp_path / "out")
    before = [row["reward"] for row in scored(tmp_path / "out")]
    members_before = of_members(written(tmp_path / "out"))
    write(tmp_path / "in" / "a.jsonl.gz", lines([chat("What is 0 + 1?", "One, of course."), chat("x", "y"), chat("x", "z")]))
    assert run(tmp_path / "in", tmp_path / "out", append=True).combined.rows == 13
    after = scored(tmp_path / "out")
    assert [row["reward"] for row in after][1:5] == before[1:5]  # no new response to these prompts
    assert after[0]["reward"] != before[0]
    assert members_before.items() <= of_members(written(tmp_path / "out")).items()
    run(tmp_path / "in", tmp_path / "calm")
    calm = {row["row"]: (row["reward"], row["scores"]) for row in scored(tmp_path / "calm")}
    for row in after:
        assert (row["reward"], row["scores"]) == (pytest.approx(calm[row["row"]][0]), pytest.approx(calm[row["row"]][1]))


@pytest.mark.usefixtures("local_ray")
def test_a_member_may_read_a_reference_that_the_others_do_not(tmp_path: Path) -> None:
    rubric = write(tmp_path / "r.yaml", b"prompt: '{{ response }} / {{ reference }}'\npattern: '([0-9])'\nlow: 0\nhigh: 9\n")
    judge = {"model": str(judge_folder(tmp_path / "judge")), "family": "rubric", "judge": {"rubric": str(rubric)}}
    rows = [chat("What is 1 + 1?", f"{answer}", right=right) for right in ("two", "2") for answer in (2, 3)]
    corpus = write(tmp_path / "c.jsonl", lines(rows))
    models = ({**judge, "name": "judge"}, "tiny-scalar")
    summary = run(corpus, tmp_path / "out", models=models, reference_column="right").combined
    assert (summary.scored, summary.responses) == (4, 4)
    with pytest.raises(SettingsError, match=r"judge reads reference .* tiny_scalar doesn't.* give judge as the first model"):
        run(corpus, tmp_path / "other", models=models[::-1], reference_column="right")
    with pytest.raises(SettingsError, match="--field key=right: none of the models reads such a field"):
        run(corpus, tmp_path / "other", models=models, reference_column="right", field={"key": "right"})


@pytest.mark.usefixtures("local_ray")
@pytest.mark.long
def test_an_input_with_a_column_of_our_name_is_refused_or_its_row_rejected(tmp_path: Path) -> None:
    first = write(tmp_path / "first.jsonl", lines([chat("q", "a", suspect=1)]))
    with pytest.raises(SourceError, match="has a column 'suspect'"):
        run(first, tmp_path / "out")
    run(first, tmp_path / "prefixed", prefix="judge_")
    assert scored(tmp_path / "prefixed")[0]["judge_reason"] == "no_baseline"
    late = write(tmp_path / "late.jsonl", lines([*answers(550, 2), chat("q", "a", Suspect=1)]))
    run(late, tmp_path / "late")
    assert outcome_of(tmp_path / "late")[-1] == ("rejected", "column_collision")
    run(late, tmp_path / "late")  # as it goes on, too
    manifest = read_manifest(str(tmp_path / "late" / "models" / "tiny_scalar"))
    assert manifest is not None
    assert manifest.columns.reserved == ("suspect",)


def test_a_folder_with_something_else_in_it_is_refused(tmp_path: Path) -> None:
    corpus = write(tmp_path / "c.jsonl", lines(rows(3)))
    write(tmp_path / "out" / "mine.txt", b"x")
    with pytest.raises(OutputError, match="holds something else than an ensemble"):
        run(corpus, tmp_path / "out")


# --- settings ------------------------------------------------------------------------------------------------------


def names(*models: Any) -> list[str]:
    return [member.name for member in members(settings(Path("in"), Path("out"), models=models))]


def test_a_member_is_called_by_the_last_part_of_its_id() -> None:
    assert names("Skywork/Skywork-Reward-V2-Llama-3.1-8B", "/models/my rm/") == ["Skywork_Reward_V2_Llama_3_1_8B", "my_rm"]
    assert names("a/rm", "b/rm", "b/RM-") == ["rm", "rm_2", "RM_3"]
    assert names("70b", "模型") == ["m_70b", "model"]
    assert names("a/mean", "b/z-mean", "c/x") == ["mean_2", "z_mean_3", "x"]
    assert names("z_x", "x") == ["z_x", "x_2"]
    assert names("a/rm", {"model": "b", "name": "rm"}) == ["rm_2", "rm"]
    fields = score_fields(names("a/rm", "b/rm", "spread", "z_rm"))
    assert len({name.lower() for name in fields}) == len(fields)


def test_mistakes_in_the_models_are_told() -> None:
    cases: list[tuple[Any, str]] = [
        (("a",), "models has 1: must have at least 2"),
        (("a", "a"), "a is given twice with the same settings"),
        (("a", {"model": "b", "name": "mean"}), "can't be called 'mean'"),
        (("a", {"model": "b", "name": "x-y"}), r"models\[1\]\.name = 'x-y'"),
        (("a", {"modle": "b"}), r"models\[1\]\.modle isn't a setting; did you mean model"),
        (("a", {"model": "b", "engine": {"engin": "fake"}}), r"models\[1\]\.engine\.engin isn't a setting; .*mean engine"),
        ("a", "models"),
    ]
    for models, message in cases:
        with pytest.raises(SettingsError, match=message):
            names(*models) if isinstance(models, tuple) else settings(Path("in"), Path("out"), models=models)


def test_a_member_may_have_settings_of_its_own() -> None:
    large = {"model": "big", "dtype": "bfloat16", "engine": {"tensor_parallel": 4}, "revision": "v1", "weights": {"x": 1.0}}
    both = members(settings(Path("in"), Path("out"), models=[large, "small"], dtype="float32"))
    big, small = (member.settings for member in both)
    assert (big.model.dtype, big.engine.tensor_parallel, big.engine.engine) == ("bfloat16", 4, "vllm")
    assert (big.model.revision, big.model.weights) == ("v1", {"x": 1.0})
    assert (small.model.dtype, small.engine.tensor_parallel) == ("float32", 1)
    assert small.output.endswith("out/models/small")


# --- the command line ----------------------------------------------------------------------------------------------


@pytest.mark.long
def test_the_command_its_recipe_and_a_filter(tmp_path: Path) -> None:
    corpus = write(tmp_path / "c.jsonl", lines(answers(6, 7)))
    models = ("--model", "tiny-scalar", "--model", "tiny-attributes", "--engine", "fake")
    flags = (*models, *sets("combination.suspect_disagreement=1.2"))
    done = run_here("ensemble", corpus, tmp_path / "out", *flags)
    assert done.returncode == 0, done.stderr
    assert "tiny_attributes: tiny-attributes, model 2 of 2" in done.stderr
    assert "tiny_scalar and tiny_attributes have the same best response to" in done.stdout
    assert "above 0 in z_mean and 1.2 in z_disagreement" in done.stdout
    before = written(tmp_path / "out")
    again = summary("run", tmp_path / "out" / "recipe.yaml", run=run_here)
    assert written(tmp_path / "out") == before
    assert again["agreement"]["prompts"] == again["agreement"]["compared"] == 6
    assert again["members"].keys() == set(NAMES)
    suspects = sum(row["suspect"] for row in scored(tmp_path / "out"))
    assert again["flags"] == {"suspect": suspects}
    kept = summary("filter", tmp_path / "out", "--where", "not suspect and reward > -9", run=run_here)
    assert kept["kept"] == 42 - suspects
    assert summary("status", tmp_path / "out", run=run_here)["complete"]
