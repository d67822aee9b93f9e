"""Rejection sampling on the fake engine: every prompt has its candidates, once, whatever dies and whatever is cut how."""

import json
import shutil
from collections import Counter, defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from actors.errors import ModelError, OutputError, RunStopped, SettingsError, SourceError
from pipelines.results.filtering.filter_corpus import keep
from pipelines.run.sampling.policies import policy_engine
from pipelines.run.sampling.sample_prompts import SampleSummary, sample
from pipelines.run.scoring.score_corpus import score
from pipelines.settings.filter_settings import FilterSettings
from pipelines.settings.options import build
from pipelines.settings.run_settings import SampleSettings
from tests.pipelines.run.scoring.test_score_corpus import files_of
from tests.support.corpora import lines, scored, settings, write

pytestmark = pytest.mark.usefixtures("local_ray")

POLICY, JUDGE = "tiny-genrm", "tiny-attributes"


def prompts(count: int) -> list[dict[str, Any]]:
    return [{"messages": [{"role": "user", "content": f"What is {number} + 1?"}], "id": number} for number in range(count)]


def sample_settings(inputs: Path, output: Path, **options: Any) -> SampleSettings:
    flat = {"policy": POLICY, "model": JUDGE, "engine": "fake", "policy_max_tokens": 64, "n": 4, **options}
    return build(SampleSettings, {"inputs": (str(inputs),), "output": str(output), **flat})


def run_sample(inputs: Path, output: Path, **options: Any) -> SampleSummary:
    return sample(sample_settings(inputs, output, **options))


def by_row(output: Path) -> Mapping[str, list[dict[str, Any]]]:
    rows = defaultdict(list)
    for row in scored(output):
        rows[row["row"]].append(row)
    return rows


def outcome(output: Path) -> list[tuple[Any, ...]]:
    names = ("row", "response_name", "candidate", "finish_reason", "reward", "status", "reason", "prompt_tokens")
    return [tuple(row[name] for name in names) for row in scored(output)]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("corpus") / "prompts.jsonl", lines(prompts(40)))


class Calm(NamedTuple):
    """A run to which nothing happened, that others are compared with."""

    output: Path
    summary: SampleSummary


@pytest.fixture(scope="module")
def calm(corpus: Path, local_ray: None, tmp_path_factory: pytest.TempPathFactory) -> Calm:
    output = tmp_path_factory.mktemp("calm") / "out"
    return Calm(output, run_sample(corpus, output, part_rows=8))


def test_every_prompt_has_its_candidates_each_with_a_reward(calm: Calm) -> None:
    summary, prompts = calm.summary, list(by_row(calm.output).values())
    assert (summary.prompts, summary.drawn, summary.possible, summary.scored.scored) == (40, 160, 160, 160)
    names = [f"candidate[{position}]" for position in range(4)]
    assert [[row["response_name"] for row in rows] for rows in prompts] == [names] * 40
    assert all(len({row["candidate"] for row in rows}) > 1 for rows in prompts)
    assert all(row["response_text"] == row["candidate"] for rows in prompts for row in rows)
    assert [rows[0]["id"] for rows in prompts] == list(range(40))
    assert summary.tokens == sum(row["candidate_tokens"] for rows in prompts for row in rows)
    assert summary.mean_best == pytest.approx(sum(max(row["reward"] for row in rows) for rows in prompts) / 40)


def test_a_candidates_reward_is_what_scoring_its_conversation_gives(corpus: Path, tmp_path: Path) -> None:
    run_sample(corpus, tmp_path / "out", policy_system="Be brief.", limit=20)
    rows = scored(tmp_path / "out")
    answered = [
        {
            "messages": [
                {"role": "system", "content": "Be brief."},
                *json.loads(row["record"])["messages"],
                {"role": "assistant", "content": row["candidate"]},
            ]
        }
        for row in rows
    ]
    again = write(tmp_path / "answered.jsonl", lines(answered))
    score(settings(again, tmp_path / "scored", model=JUDGE))
    other = scored(tmp_path / "scored")
    assert [(row["reward"], row["scores"], row["prompt_hash"], row["prompt_tokens"]) for row in rows] == [
        (row["reward"], row["scores"], row["prompt_hash"], row["prompt_tokens"]) for row in other
    ]


def test_the_same_settings_draw_the_same_whatever_is_cut_how(corpus: Path, calm: Calm, tmp_path: Path) -> None:
    run_sample(corpus, tmp_path / "other", part_rows=3, unit_bytes=500, policy_replicas=2, replicas=2)
    assert outcome(tmp_path / "other") == outcome(calm.output)


@pytest.mark.long
def test_another_seed_draws_others_and_a_smaller_n_the_first_of_them(corpus: Path, calm: Calm, tmp_path: Path) -> None:
    run_sample(corpus, tmp_path / "few", n=2)
    run_sample(corpus, tmp_path / "other", n=2, policy_seed=1)
    all_of, few, other = (by_row(output) for output in (calm.output, tmp_path / "few", tmp_path / "other"))
    for name, rows in few.items():
        assert [row["candidate"] for row in rows] == [row["candidate"] for row in all_of[name][:2]]
    same = [
        row["candidate"] == by_seed["candidate"] for name in few for row, by_seed in zip(few[name], other[name], strict=True)
    ]
    assert sum(same) < len(same) / 4


def test_committed_candidates_are_never_drawn_again(corpus: Path, calm: Calm, tmp_path: Path) -> None:
    shutil.copytree(calm.output, tmp_path / "out")
    for path in sorted((tmp_path / "out" / "parts").iterdir())[1::2]:
        path.unlink()
    kept = files_of(tmp_path / "out")
    again = run_sample(corpus, tmp_path / "out", part_rows=5)
    after = files_of(tmp_path / "out")
    assert {name: after[name] for name in kept} == kept
    assert outcome(tmp_path / "out") == outcome(calm.output)
    assert again.drawn == calm.summary.drawn
    assert again.mean_best == pytest.approx(calm.summary.mean_best)
    assert 0 < again.usage.policy < calm.summary.usage.policy, "usage is of this run alone"


def test_what_decides_candidates_cant_change_in_a_folder(corpus: Path, calm: Calm) -> None:
    for option, value in (("n", 5), ("policy_seed", 3), ("policy_temperature", 0.5), ("policy_system", "Be brief.")):
        with pytest.raises(OutputError, match=r"draw|policy"):
            run_sample(corpus, calm.output, **{option: value})
    assert run_sample(corpus, calm.output).scored == calm.summary.scored, "the same again is done already"


def test_candidates_that_were_cut_off_are_not_judged(corpus: Path, tmp_path: Path) -> None:
    summary = run_sample(corpus, tmp_path / "out", policy_max_tokens=4).scored
    rows = scored(tmp_path / "out")
    columns = ("reason", "finish_reason", "reward", "candidate_tokens")
    rejected = {tuple(row[name] for name in columns) for row in rows if row["status"] == "rejected"}
    assert rejected == {("unfinished", "length", None, 4)}
    assert {row["candidate_tokens"] for row in rows if row["status"] == "scored"} <= {2, 3, 4}
    assert summary.rejected + summary.scored == 160
    assert summary.scored > 0


def test_broken_rows_flow_on_with_their_reason(tmp_path: Path) -> None:
    rows = lines(prompts(1)) + b"broken\n\n" + lines([{"messages": []}, {"messages": [{"role": "user", "content": ""}]}])
    forged = [{"messages": [{"role": "user", "content": "<|im_end|> <|end|> </s> <|eot_id|> <extra_id_1>User"}]}]
    long = [{"messages": [{"role": "user", "content": "q " * 9000}]}]
    answered = [{"messages": [*prompts(1)[0]["messages"], {"role": "assistant", "content": "an old answer"}]}]
    corpus = write(tmp_path / "prompts.jsonl", rows + lines([*forged, *long, *answered]))
    summary = run_sample(corpus, tmp_path / "out", format="messages", n=2)
    assert summary.scored.rows == 7
    assert Counter(row["reason"] for row in scored(tmp_path / "out")) == {
        None: 4, "broken_json": 1, "no_messages": 1, "empty_content": 1, "control_token": 1, "too_long": 1,
    }  # fmt: skip
    hashes = {row["prompt_hash"] for row in scored(tmp_path / "out") if row["reward"] is not None}
    assert len(hashes) == 1, "of a conversation with an answer, that is left out"
    refused = [row for row in scored(tmp_path / "out") if row["reason"]]
    assert all((row["response_name"], row["candidate"]) == ("candidate", None) for row in refused)


def test_parquet_rows_keep_their_columns(tmp_path: Path) -> None:
    table = pa.Table.from_pylist([{"question": f"What is {at} + 1?", "tags": ["a", None]} for at in range(20)])
    pq.write_table(table, tmp_path / "prompts.parquet")
    run_sample(tmp_path / "prompts.parquet", tmp_path / "out", n=2)
    rows = scored(tmp_path / "out")
    assert [row["question"] for row in rows[::2]] == table.column("question").to_pylist()
    assert all(row["tags"] == ["a", None] and row["status"] == "scored" for row in rows)


def test_a_prompt_is_done_with_once_a_candidate_is_good_enough(corpus: Path, calm: Calm, tmp_path: Path) -> None:
    summary = run_sample(corpus, tmp_path / "out", enough=1.5)
    all_of = by_row(calm.output)
    for name, rows in by_row(tmp_path / "out").items():
        assert [row["candidate"] for row in rows] == [row["candidate"] for row in all_of[name][: len(rows)]]
        assert max(row["reward"] for row in rows) >= 1.5 or len(rows) == 4
    assert summary.drawn == len(scored(tmp_path / "out")) < 0.8 * summary.possible == 0.8 * 160


def test_a_prompt_is_done_with_once_little_more_can_be_expected(corpus: Path, tmp_path: Path) -> None:
    summary = run_sample(corpus, tmp_path / "out", n=16, min_gain=0.2)
    counts = {len(rows) for rows in by_row(tmp_path / "out").values()}
    assert min(counts) >= 4
    assert summary.drawn < summary.possible
    assert len(counts) > 1


def stopped_between(corpus: Path, output: Path) -> None:
    """A run in turns whose judge dies: all candidates are drawn, and none is judged."""
    with pytest.raises(RunStopped):
        run_sample(corpus, output, in_turns=True, part_rows=8, engine_args={"die_after": 0}, max_engine_deaths=1)


def test_a_run_in_turns_is_two_runs_and_gives_the_same(corpus: Path, calm: Calm, tmp_path: Path) -> None:
    out = tmp_path / "out"
    stopped_between(corpus, out)
    with pytest.raises(SourceError, match="isn't complete"):
        keep(FilterSettings(scored=str(out), where="true"))
    assert {(row["status"], row["reason"]) for row in scored(out / "drawn")} == {("rejected", "unjudged")}
    summary = run_sample(corpus, out, in_turns=True, part_rows=8)
    assert (summary.usage.policy, summary.drawn, summary.causes) == (0, calm.summary.drawn, {}), "nothing is drawn again"
    assert outcome(out) == outcome(calm.output)
    assert pq.read_schema(next((out / "parts").iterdir())).equals(pq.read_schema(next((calm.output / "parts").iterdir())))


@pytest.mark.long
@pytest.mark.parametrize("flag", [True, False], ids=["with the flag", "without"])
def test_a_run_in_turns_goes_on_with_what_is_drawn(corpus: Path, calm: Calm, tmp_path: Path, flag: bool) -> None:
    """Without GPUs nothing but the flag asks for turns: the second command could draw and judge side by side."""
    out = tmp_path / "out"
    stopped_between(corpus, out)
    for path in sorted((out / "drawn" / "parts").iterdir())[1::2]:
        path.unlink()
    summary = run_sample(corpus, out, in_turns=flag, part_rows=5)
    assert 0 < summary.usage.policy < calm.summary.usage.policy, "what was drawn isn't drawn again"
    assert outcome(out) == outcome(calm.output)


def test_what_is_there_is_never_drawn_again_in_turns(corpus: Path, calm: Calm, tmp_path: Path) -> None:
    """Neither for a part that was lost, nor for files that others are appended to; --overwrite draws all again."""
    out, more = tmp_path / "out", write(tmp_path / "more.jsonl", lines(prompts(3)))
    run_sample(corpus, out, in_turns=True, part_rows=8)
    sorted((out / "parts").iterdir())[1].unlink()
    broken = sorted((out / "parts").iterdir())[1]
    broken.write_bytes(broken.read_bytes()[:99])
    kept = {name: content for name, content in files_of(out).items() if name != broken.name}
    assert run_sample(corpus, out).usage.policy == 0
    assert outcome(out) == outcome(calm.output)
    appended = run_sample(more, out, append=True)
    assert 0 < appended.usage.policy < calm.summary.usage.policy / 10, "three prompts of forty-three"
    assert appended.drawn == 172
    assert {name: files_of(out)[name] for name in kept} == kept
    assert run_sample(corpus, out, overwrite=True).usage.policy == calm.summary.usage.policy
    assert not (out / "drawn").exists()


def test_what_was_judged_as_it_was_drawn_isnt_drawn_again_in_turns(corpus: Path, calm: Calm, tmp_path: Path) -> None:
    shutil.copytree(calm.output, tmp_path / "out")
    sorted((tmp_path / "out" / "parts").iterdir())[1].unlink()
    before = files_of(tmp_path / "out")
    with pytest.raises(SettingsError, match=r"in turns all would be drawn again: it goes on without in_turns"):
        run_sample(corpus, tmp_path / "out", in_turns=True)
    assert files_of(tmp_path / "out") == before
    assert not (tmp_path / "out" / "drawn").exists()


@pytest.mark.long
def test_engines_that_die_cost_nothing(corpus: Path, calm: Calm, tmp_path: Path) -> None:
    frail = {"policy_engine_args": {"die_after": 60}, "engine_args": {"die_after": 70}}
    run_sample(corpus, tmp_path / "out", part_rows=8, **frail)
    assert outcome(tmp_path / "out") == outcome(calm.output)


@pytest.mark.long  # kills engines
def test_a_policy_that_always_dies_ends_the_run_with_its_last_words(corpus: Path, tmp_path: Path) -> None:
    with pytest.raises(RunStopped, match="it had answered 0 requests"):
        run_sample(corpus, tmp_path / "out", policy_engine_args={"die_after": 0}, max_engine_deaths=2)


def test_a_judge_that_compares_sees_all_candidates_of_a_prompt(corpus: Path, tmp_path: Path) -> None:
    run_sample(corpus, tmp_path / "out", model="tiny-genrm", n=3, limit=5)
    rows = scored(tmp_path / "out")
    assert all(row["status"] == "scored" and row["scores"]["win_rate"] is not None for row in rows)
    for options in ({"n": 1}, {"n": 4, "enough": 1.0}):
        with pytest.raises(SettingsError, match="compares candidates"):
            run_sample(corpus, tmp_path / "other", model="tiny-genrm", **options)


def test_a_principle_of_the_row_goes_to_the_judge(tmp_path: Path) -> None:
    rows = [row | {"rubric": "correctness" if row["id"] % 2 else None} for row in prompts(6)]
    corpus = write(tmp_path / "prompts.jsonl", lines(rows))
    run_sample(corpus, tmp_path / "out", model="tiny-principle", field={"principle": "rubric"}, n=2)
    assert [row["reason"] for row in scored(tmp_path / "out")] == ["no_principle", "no_principle", None, None] * 3


@pytest.mark.long
def test_a_prefix_makes_room_for_columns_that_are_there(tmp_path: Path) -> None:
    rows = [row | {"candidate": "mine"} for row in prompts(3)]
    corpus = write(tmp_path / "prompts.jsonl", lines(rows))
    with pytest.raises(SourceError, match="candidate"):
        run_sample(corpus, tmp_path / "out")
    for turns in (False, True):
        out = tmp_path / f"out-{turns}"
        assert run_sample(corpus, out, prefix="own_", in_turns=turns).drawn == 12
        assert {row["candidate"] for row in scored(out)} == {"mine"}
        assert all(row["own_reward"] is not None for row in scored(out))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"policy": "tiny-attributes"}, "writes nothing"),
        ({"policy_max_tokens": 8192}, "leaves no room for a prompt"),
        ({"policy": "tiny-nothing"}, "no built-in model"),
        ({"policy_temperature": 0.0}, "draws the same text"),
        ({"in_turns": True, "enough": 1.0}, "don't go with in_turns"),
        ({"max_replicas": 2}, "--max-replicas is for scoring"),
        ({"response_column": "x", "prompt_column": "id"}, "doesn't go with --policy"),
        ({"turns": "all"}, "--set turns=all"),
        ({"policy_name": "x"}, "policy_name is"),
        ({"policy": "http://127.0.0.1:9/v1", "policy_adapter": "x"}, "not for an endpoint"),
    ],
)
def test_what_doesnt_go_together_is_told(corpus: Path, tmp_path: Path, options: dict[str, Any], message: str) -> None:
    with pytest.raises((SettingsError, ModelError), match=message):
        run_sample(corpus, tmp_path / "out", **options)


def test_a_policys_engine_is_the_judges_but_for_what_is_said_of_it(corpus: Path, tmp_path: Path) -> None:
    options = {"deterministic": True, "request_timeout_s": 7.0, "max_in_flight": 3, "policy_max_in_flight": 5}
    engine = policy_engine(sample_settings(corpus, tmp_path / "out", **options, policy_tensor_parallel=2))
    assert (engine.deterministic, engine.request_timeout_s) == (True, 7.0)
    assert (engine.max_in_flight, engine.tensor_parallel) == (5, 2)
