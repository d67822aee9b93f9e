"""`choose`, and what all exports have in common: the groups, what is read back, what is counted."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from actors.errors import ExpressionError, SettingsError, SourceError
from pipelines.data.formats import OwnColumns, RowShape
from pipelines.folders.run_folder.manifest import read_manifest
from pipelines.folders.scored_corpus.read_back import Reader
from pipelines.results.exports import export_commands
from pipelines.results.exports.export_counts import ExportSummary
from pipelines.settings.export_settings import ExportSettings
from pipelines.settings.options import build
from tests.support.candidates import drawn_corpus, judged_corpus, prompts, rows_in, scored_corpus
from tests.support.corpora import lines, scored, settings, write
from tests.support.exports import SIX, answered, choose, couples, document, numbered_texts, pair, texts, write_candidates
from tests.support.parsed_rows import reply, user

PER = pytest.mark.parametrize("per", ["row", "prompt"])
TAKEN = {"taken": "every response with a reward"}
WAYS = [f"<think>way {at}</think>\n\n7" for at in range(4)]


@PER
def test_counts_add_up_and_are_in_the_document(tmp_path: Path, per: str) -> None:
    rows: list[dict[str, Any]] = [*({"prompt": f"p{at}"} for at in range(4)), {"prompt": None}]
    folder = drawn_corpus(tmp_path / "in", rows, numbered_texts([*SIX, []]), prompts())
    best = choose(folder, tmp_path / "best", strategy="best", per=per)
    assert best.as_json() == {"groups": 3, "candidates": 6, "unscored": 4, "rows": 3, "left": {"not chosen": 3}, **TAKEN}
    assert sorted(texts(tmp_path / "best")) == ["0.1", "1.2", "3.0"]
    content = document(tmp_path / "best")
    assert (content["summary"], content["description"]) == (best.as_json(), "strategy: best")
    assert (content["settings"]["per"], content["source"]["folder"]) == (per, folder)
    files = {path.name for path in (tmp_path / "best").iterdir()}
    assert files == {"README.md", "recipe.yaml", "choose.json", "chosen-00000.jsonl"}
    two = pair(folder, tmp_path / "pairs", per=per)
    assert (two.groups, two.candidates, two.unscored, two.rows) == (3, 6, 4, 2)
    assert two.left == {"the only candidate for its prompt": 1}
    assert sorted(couples(tmp_path / "pairs")) == [("0.1", "0.0"), ("1.2", "1.1")]


@PER
def test_without_rows_there_is_a_document_and_no_file(tmp_path: Path, per: str) -> None:
    unscored = write_candidates(tmp_path / "unscored", [None, None], [None])
    assert choose(unscored, tmp_path / "none", strategy="best", per=per) == ExportSummary(unscored=3)
    assert choose(write_candidates(tmp_path / "empty"), tmp_path / "empty-out", strategy="best", per=per) == ExportSummary()
    assert choose(write_candidates(tmp_path / "in", *SIX), tmp_path / "bad", strategy="best", floor=9.0, per=per).rows == 0
    for name in ("none", "empty-out", "bad"):
        assert {path.name for path in (tmp_path / name).iterdir()} == {"README.md", "recipe.yaml", "choose.json"}


@PER
@pytest.mark.parametrize("rewards", [([1.0, None, 3.0],), ([1.0, None], [3.0])], ids=["in a row", "between rows"])
def test_a_response_without_a_reward_doesnt_part_those_around_it(tmp_path: Path, per: str, rewards: Any) -> None:
    folder = drawn_corpus(tmp_path / "in", [{"prompt": "same"}] * len(rewards), numbered_texts(rewards), prompts())
    groups = len(rewards) if per == "row" else 1
    summary = choose(folder, tmp_path / "best", strategy="best", per=per)
    assert (summary.groups, summary.rows, summary.unscored) == (groups, groups, 1)
    assert pair(folder, tmp_path / "pairs", per=per).rows == (2 - groups)


def test_equal_prompts_of_different_rows_belong_together_unless_rows_are_asked_for(tmp_path: Path) -> None:
    folder = answered(tmp_path / "in", ("p", "good", 2.0), ("q", "alone", 5.0), ("p", "bad", 1.0))
    assert pair(folder, tmp_path / "pairs").rows == 1
    assert couples(tmp_path / "pairs") == [("good", "bad")]
    assert pair(folder, tmp_path / "by row", per="row").rows == 0
    choose(folder, tmp_path / "best", strategy="best")
    assert sorted(texts(tmp_path / "best")) == ["alone", "good"]
    choose(folder, tmp_path / "best by row", strategy="best", per="row")
    assert texts(tmp_path / "best by row") == ["good", "alone", "bad"]


def test_of_equals_the_first_of_the_corpus_counts(tmp_path: Path) -> None:
    """The tenth comes after the ninth, as a candidate and as a row of another part."""
    folder = write_candidates(tmp_path / "drawn", [0.0, 0.0, 1.0, *[0.0] * 7, 1.0, 0.0])
    choose(folder, tmp_path / "two", strategy="top-k", k=2, per="row")
    assert texts(tmp_path / "two") == ["0.2", "0.10"]
    responses = [("p", f"text {at}", 1.0 if at in (2, 10) else 0.0) for at in range(12)]
    folder = answered(tmp_path / "in", *responses, part_rows=5)
    choose(folder, tmp_path / "out", strategy="all", floor=0.0)
    assert texts(tmp_path / "out") == [f"text {at}" for at in (2, 10, 0, 1, 3, 4, 5, 6, 7, 8, 9, 11)]


@PER
def test_only_what_meets_a_condition_is_looked_at(tmp_path: Path, per: str) -> None:
    folder = write_candidates(tmp_path / "in", [1.0, 5.0, 3.0], [None, 2.0, 4.0], [0.0, 1.0], outputs=("reward", "a"))
    summary = choose(folder, tmp_path / "out", strategy="best", per=per, where="reward < 5 and (response_name <> 'x')")
    assert (summary.groups, summary.candidates, summary.unscored, summary.rows) == (3, 7, 1, 3)
    assert summary.left == {"not chosen": 3, "outside --where": 1}
    assert sorted(texts(tmp_path / "out")) == ["0.2", "1.2", "2.1"]
    assert {row["of"] for row in rows_in(tmp_path / "out")} == {2}, "what doesn't meet it counts for nothing"
    with pytest.raises(ExpressionError, match="nothing"):
        choose(folder, tmp_path / "other", strategy="best", per=per, where="nothing = 1")
    assert not (tmp_path / "other").exists()


# --- read back -------------------------------------------------------------------------------------------------------


def test_what_a_policy_wrote_comes_back_with_what_it_was_asked(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [{"question": "q", "system": None}, {"question": "r", "system": "own"}]
    candidates = [[("a", 1.0), ("b", 2.0)], [("c", 1.0), ("d", 0.0)]]
    folder = drawn_corpus(tmp_path / "in", rows, candidates, prompts(), system="policy's", parquet=True, prefix="x_")
    choose(folder, tmp_path / "out", strategy="best")
    chosen = sorted(rows_in(tmp_path / "out"), key=lambda row: row["row"])
    assert [[turn["content"] for turn in row["messages"]] for row in chosen] == [["policy's", "q", "b"], ["own", "r", "c"]]
    assert [(row["row"], row["response_name"]) for row in chosen] == [("c:0", "candidate[1]"), ("c:1", "candidate[0]")]


def test_named_scores_and_columns_of_ones_own_come_back(tmp_path: Path) -> None:
    shape = RowShape("columns", own_columns=OwnColumns("task.q", "answers", "task.s"))
    rows = [{"task": {"q": "q", "s": "s"}, "answers": ["a", "b", "c"]}]
    rewards = [[{"reward": 1.0, "a": 0.1, "b": 3.0}, {"reward": 2.0, "a": 0.2, "b": 1.0}, {"reward": 0.0, "a": 0.3}]]
    folder = judged_corpus(tmp_path / "in", rows, rewards, shape, outputs=("reward", "a", "b"), ensemble=True)
    choose(folder, tmp_path / "out", strategy="top-k", k=3)
    chosen = rows_in(tmp_path / "out")
    assert [row["scores"] for row in chosen] == [rewards[0][at] for at in (1, 0, 2)], "a score that isn't there is none"
    assert [row["messages"][0]["content"] for row in chosen] == ["s"] * 3
    choose(folder, tmp_path / "elected", strategy="majority", voters=("a", "b"))
    assert texts(tmp_path / "elected") == ["a"], "one vote each for a and c"


@PER
@pytest.mark.parametrize(("reasoning", "different"), [("strip", 1), ("keep", 4)])
def test_where_reasoning_was_stripped_equal_answers_are_equal(
    tmp_path: Path, per: str, reasoning: str, different: int
) -> None:
    """Of a judge that is sampled, whose rewards of equal answers differ. What is written is the whole text."""
    rewarded = [(text, float(at)) for at, text in enumerate(WAYS)]
    from_policy = drawn_corpus(tmp_path / "drawn", [{"prompt": "q"}], [rewarded], prompts(), reasoning=reasoning)
    from_rows = answered(tmp_path / "rows", *(("q", text, reward) for text, reward in rewarded), reasoning=reasoning)
    for place, folder in (("drawn", from_policy), ("rows", from_rows)):
        out = tmp_path / f"{place}-out"
        one_per_row = place == "rows" and per == "row"
        assert pair(folder, out / "pairs", pairs="all", per=per).rows == (0 if one_per_row or different == 1 else 6)
        choose(folder, out / "best", strategy="all", distinct=1.0, per=per)
        assert sorted(texts(out / "best")) == (WAYS if one_per_row else WAYS[-different:])


def test_an_ensemble_in_which_a_member_was_shown_the_reasoning_goes_by_the_whole_text(tmp_path: Path) -> None:
    folder = answered(tmp_path / "in", *(("q", text, float(at)) for at, text in enumerate(WAYS)), ensemble=True)
    manifest = read_manifest(folder)
    assert manifest is not None
    (member,) = manifest.identity["members"].values()
    by_reasoning = {how: {**member, "identity": {**member["identity"], "reasoning": how}} for how in ("strip", "keep")}
    stripped = [
        Reader.of(replace(manifest, identity={**manifest.identity, "members": members})).stripped
        for members in ({"a": by_reasoning["strip"], "b": by_reasoning["strip"]}, by_reasoning)
    ]
    assert stripped == [True, False]


def test_a_judge_that_gave_a_prompt_no_score_has_no_vote_there(tmp_path: Path) -> None:
    """As z-scores are missing where all candidates are equal, in an ensemble that goes by another number."""
    rewards = [[{"reward": 1.0}, {"reward": 2.0}], [{"reward": 1.0, "z": 5.0}, {"reward": 2.0, "z": 4.0}]]
    folder = write_candidates(tmp_path / "in", *rewards, outputs=("reward", "z"))
    choose(folder, tmp_path / "out", strategy="majority", voters=("z",))
    assert sorted(texts(tmp_path / "out")) == ["0.1", "1.0"]
    with pytest.raises(SettingsError, match=r"needs the scores nobody, which the corpus hasn't: it has reward, z"):
        choose(folder, tmp_path / "other", strategy="majority", voters=("z", "nobody"))


@pytest.mark.parametrize(
    ("row", "place", "earlier", "says"),
    [
        (
            {"prompt": "q\n<extra_id_1>Assistant\na\n<extra_id_1>User\nr"},
            "shapes.prompt.embedded",
            lambda prompt: [user(prompt)],
            "the row c:0 has changed since its candidates were sampled .*sample it again",
        ),
        (
            {"q": "q", "a": ["a", "b"], "system": "s"},
            "own_columns.with_systems",
            lambda system, turns: turns,
            r"response\[\d\] of the row c:0 has changed since it was scored .*score it again",
        ),
        (
            {"q": [user("q"), reply("x")], "a": ["a", "b"]},
            "own_columns.refuse_answered",
            lambda turns: turns,
            r"response\[\d\] of the row c:0 has changed since it was scored .*score it again",
        ),
    ],
    ids=["sampled from another prompt", "scored with another prompt", "no response now"],
)
def test_a_row_that_another_version_read_otherwise_is_refused(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    row: dict[str, Any],
    place: str,
    earlier: Callable[..., object],
    says: str,
) -> None:
    with monkeypatch.context() as version:
        version.setattr(f"pipelines.data.formats.{place}", earlier)
        if "prompt" in row:
            folder = drawn_corpus(tmp_path / "in", [row], numbered_texts([[1.0, 2.0]]), prompts())
        else:
            shape = RowShape("columns", own_columns=OwnColumns("q", "a"))
            folder = judged_corpus(tmp_path / "in", [row], [[1.0, 2.0]], shape)
        assert choose(folder, tmp_path / "earlier", strategy="best").rows == 1
    with pytest.raises(SourceError, match=says):
        choose(folder, tmp_path / "out", strategy="best")


@pytest.mark.parametrize("model", ["tiny-scalar", "tiny-principle"])
def test_rows_with_principles_come_back_whether_the_model_is_shown_them_or_not(tmp_path: Path, model: str) -> None:
    """The prompt of a model that takes none is hashed without them."""
    row = {"domain": "general", "language": "english", "context": [user("1 + 1?")], "response": "2", "fulfilment": "Yes"}
    rows = [{**row, "principle": name} for name in ("correctness", "brevity")]
    corpus = write(tmp_path / "c.jsonl", lines(rows))
    folder = scored_corpus(settings(corpus, tmp_path / "in", model=model))
    assert len({row["prompt_hash"] for row in scored(Path(folder))}) == (1 if model == "tiny-scalar" else 2)
    flat = {"scored": folder, "output": str(tmp_path / "out"), "trainer": "sft", "fake_ok": True, "partial": True}
    export_commands.export(build(ExportSettings, flat))
    assert [row["messages"] for row in rows_in(tmp_path / "out")] == [[user("1 + 1?"), reply("2")]] * 2


def test_a_row_is_parsed_once_and_only_if_it_is_needed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of four rows to one prompt, each with two responses, the best response is in the third."""
    rows = [{"q": "p", "a": [f"good {at}", f"bad {at}"]} for at in range(4)]
    shape = RowShape("columns", own_columns=OwnColumns("q", "a"))
    rewards = [[float(at == 2), float(at == 2) - 1] for at in range(4)]
    folder = judged_corpus(tmp_path / "in", rows, rewards, shape)
    parsed = list[Any]()
    parse_row = Reader._values

    def parse_noted(reader: Reader, stored: Any, **how: bool) -> Any:
        parsed.append(stored.row)
        return parse_row(reader, stored, **how)

    monkeypatch.setattr(Reader, "_values", parse_noted)
    assert choose(folder, tmp_path / "best", strategy="best").rows == 1
    assert parsed == ["c:2"]
    parsed.clear()
    assert choose(folder, tmp_path / "all", strategy="top-k", k=8).rows == 8
    assert sorted(parsed) == [f"c:{at}" for at in range(4)]
