"""What is made of a corpus while it is scored: the same as afterwards, part by part, and nothing twice after a death."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from actors.errors import AuditError, ExpressionError, OutputError, RunStopped, SettingsError
from pipelines.results.exports import export_commands, export_job
from pipelines.run.runtime.progress import NoProgress
from pipelines.run.sampling.sample_prompts import SampleSummary, sample
from pipelines.settings.export_settings import ChooseSettings, ExportSettings, PairSettings
from pipelines.settings.options import build
from pipelines.settings.run_settings import SampleSettings
from pipelines.workflows.observers import observers_of
from tests.support.candidates import files_in, rows_in
from tests.support.commands import parts_of
from tests.support.corpora import lines, scored, write
from tests.support.local_ray import run_here

pytestmark = pytest.mark.usefixtures("local_ray")

PROMPTS, N = 40, 4
FAIR = "reward > -1 and candidate_tokens > 5"


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    rows = [{"messages": [{"role": "user", "content": f"What is {number} + 1?"}], "id": number} for number in range(PROMPTS)]
    return write(tmp_path_factory.mktemp("corpus") / "prompts.jsonl", lines(rows))


def sample_settings(corpus: Path, output: Path, **options: Any) -> SampleSettings:
    flat = {"policy": "tiny-genrm", "model": "tiny-attributes", "engine": "fake", "policy_max_tokens": 64, "n": N}
    return build(SampleSettings, {**flat, "inputs": (str(corpus),), "output": str(output), "part_rows": 8, **options})


def steps_of(output: Path, **places: Path) -> dict[str, Any]:
    """Settings of each kind of step about the run in `output`."""
    own = {"scored": str(output), "per": "row"}
    of: Mapping[str, Any] = {
        "choose": lambda place: ChooseSettings(strategy="top-k", k=2, output=place, **own),
        "pairs": lambda place: PairSettings(where=FAIR, output=place, fake_ok=True, **own),
        "export": lambda place: ExportSettings(trainer="sft", scored=str(output), output=place, fake_ok=True),
    }
    return {name: of[name](str(place)) for name, place in places.items()}


def streamed(asked: SampleSettings, steps: Mapping[str, Any], progress: Any = None) -> SampleSummary:
    return sample(asked, progress, observers_of(asked, list(export_commands.export_while_scoring(asked, steps).values())))


def made_in(folder: Path) -> dict[str, bytes]:
    """What was made, by the parts that it was made of, whatever their run is called."""
    return {name.removesuffix(".jsonl").rpartition("-")[0]: content for name, content in files_in(folder).items()}


def lines_in(folder: Path) -> list[bytes]:
    return [line for _, content in sorted(files_in(folder).items()) for line in content.splitlines()]


def test_what_is_made_along_the_way_is_what_is_made_afterwards(corpus: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    steps = steps_of(out, choose=tmp_path / "best", pairs=tmp_path / "pairs", export=tmp_path / "sft")
    summary = streamed(sample_settings(corpus, out), steps)
    afterwards = {
        "choose": export_commands.choose(steps["choose"].model_copy(update={"output": str(tmp_path / "best2")})),
        "pairs": export_commands.make_pairs(steps["pairs"].model_copy(update={"output": str(tmp_path / "pairs2")})),
        "export": export_commands.export(steps["export"].model_copy(update={"output": str(tmp_path / "sft2")})),
    }
    assert {done.job.kind.name: done.summary for done in summary.scored.made} == afterwards
    assert afterwards["choose"].rows == 2 * PROMPTS
    assert afterwards["export"].rows == N * PROMPTS
    assert 0 < afterwards["pairs"].rows <= PROMPTS
    for name in ("best", "pairs", "sft"):
        assert len(files_in(tmp_path / name)) > 1
        assert lines_in(tmp_path / name) == lines_in(tmp_path / f"{name}2")


@pytest.mark.long
def test_one_manifest_tells_of_it_all(corpus: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    summary = streamed(sample_settings(corpus, out, strategy="best"), steps_of(out, pairs=tmp_path / "pairs"))
    document = json.loads((out / "manifest.json").read_text())["summary"]
    assert document == json.loads(json.dumps(summary.as_json()))
    assert (document["made"]["kept"]["rows"], document["made"]["kept"]["output"]) == (PROMPTS, str(out / "kept"))
    pairs = document["made"]["pairs"]
    assert pairs["asked"] == f"for: trl, where: {FAIR}"
    assert pairs["rows"] == len(rows_in(tmp_path / "pairs"))
    assert pairs["candidates"] == document["scored"]


class Watching(NoProgress):
    """Sees what is there of each part when the part is told of; fails at a part, if asked to."""

    def __init__(self, made_of: Path, fails_at: int = -1) -> None:
        self.seen: list[bool] = []
        self._made_of, self._fails_at = made_of, fails_at

    def part_done(self, part: Mapping[str, Any]) -> None:
        number = f"{part['file']:06d}-{part['start']:012d}-{part['end']:012d}"
        self.seen.append(len(list((self._made_of / "done").glob(f"{number}-*.json"))) == 1)
        if len(self.seen) == self._fails_at:
            raise RunStopped("as if something had died")


def test_a_parts_pairs_are_there_when_the_part_is_document(corpus: Path, tmp_path: Path) -> None:
    watching = Watching(tmp_path / "pairs")
    streamed(sample_settings(corpus, tmp_path / "out"), steps_of(tmp_path / "out", pairs=tmp_path / "pairs"), watching)
    assert watching.seen == [True] * len(parts_of(tmp_path / "out"))
    assert len(watching.seen) > 1


@pytest.mark.long
def test_a_run_that_died_goes_on_and_makes_what_isnt_there(corpus: Path, tmp_path: Path) -> None:
    calm, out, pairs = tmp_path / "calm", tmp_path / "out", tmp_path / "pairs"
    whole = streamed(sample_settings(corpus, calm), steps_of(calm, pairs=tmp_path / "calm_pairs"))
    with pytest.raises(RunStopped):
        streamed(sample_settings(corpus, out), steps_of(out, pairs=pairs), Watching(pairs, fails_at=2))
    assert json.loads((pairs / "pairs.json").read_text())["summary"] is None
    noted = sorted((pairs / "done").glob("*.json"))
    assert noted
    noted[0].unlink()  # the part was committed, and whoever made pairs of it died
    stamps = {path.name: path.stat().st_ino for path in pairs.glob("*.jsonl") if path.stem != f"pairs-{noted[0].stem}"}
    (pairs / "pairs-000007-000000000000-000000000009.jsonl").write_text("of a part that was dropped\n")
    again = streamed(sample_settings(corpus, out), steps_of(out, pairs=pairs))
    (kept,), (expected,) = again.scored.made, whole.scored.made
    assert kept.summary == expected.summary
    assert made_in(pairs) == made_in(tmp_path / "calm_pairs")
    after = {path.name: path.stat().st_ino for path in pairs.glob("*.jsonl")}
    assert stamps
    assert {name: after[name] for name in stamps} == stamps, "what is there isn't made again"
    assert not (pairs / "done").exists()


def test_a_complete_run_makes_what_it_is_asked_for_now(corpus: Path, tmp_path: Path) -> None:
    asked = sample_settings(corpus, tmp_path / "out")
    sample(asked)
    before = {path: path.stat().st_ino for path in parts_of(tmp_path / "out")}
    streamed(asked, steps_of(tmp_path / "out", pairs=tmp_path / "pairs"))
    assert {path: path.stat().st_ino for path in parts_of(tmp_path / "out")} == before
    assert len(rows_in(tmp_path / "pairs")) > 0


def test_only_what_reads_this_run_row_by_row_is_made_along_the_way(corpus: Path, tmp_path: Path) -> None:
    asked = sample_settings(corpus, tmp_path / "out")
    steps: dict[str, Any] = {
        "choose": ChooseSettings(scored=str(tmp_path / "other"), output="x", strategy="best", per="row"),
        "pairs": PairSettings(scored=str(tmp_path / "out"), output="y", per="prompt"),
        "export": ExportSettings(scored=str(tmp_path / "out"), output="z", trainer="sft"),
    }
    assert set(export_commands.export_while_scoring(asked, steps)) == {"export"}
    assert export_commands.export_while_scoring(None, steps) == {}


@pytest.mark.parametrize(
    ("steps", "error", "message"),
    [
        ({"where": "rewards > 1"}, ExpressionError, "rewards"),
        ({"trainer": "nobody"}, SettingsError, "--for nobody is no format"),
    ],
)
def test_a_mistake_is_told_before_anything_is_drawn(
    corpus: Path, tmp_path: Path, steps: dict[str, Any], error: type[Exception], message: str
) -> None:
    out = tmp_path / "out"
    wrong = {"pairs": PairSettings(scored=str(out), output=str(tmp_path / "pairs"), per="row", **steps)}
    with pytest.raises(error, match=message):
        streamed(sample_settings(corpus, out), wrong)
    assert parts_of(out) == []


@pytest.mark.long
def test_a_result_that_is_there_is_not_replaced_unasked(corpus: Path, tmp_path: Path) -> None:
    out, steps = tmp_path / "out", steps_of(tmp_path / "out", pairs=tmp_path / "pairs")
    streamed(sample_settings(corpus, out, limit=10), steps)
    before = files_in(tmp_path / "pairs")
    streamed(sample_settings(corpus, out, limit=10), steps)  # there is nothing to do
    assert files_in(tmp_path / "pairs") == before
    spoiled = next((tmp_path / "pairs").glob("*.jsonl"))
    spoiled.write_bytes(b"")
    with pytest.raises(OutputError, match="--overwrite replaces it"):
        streamed(sample_settings(corpus, out, limit=10), steps)
    assert spoiled.read_bytes() == b""


def test_the_parts_and_what_was_made_of_them_must_add_up(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    asked, steps = sample_settings(corpus, out), steps_of(out, pairs=tmp_path / "pairs")
    sample(asked)
    with monkeypatch.context() as patch:
        patch.setattr(export_job, "_delete_stale", _dies)
        with pytest.raises(RunStopped):
            streamed(asked, steps)
    note = next((tmp_path / "pairs" / "done").glob("*.json"))
    noted = json.loads(note.read_text())
    note.write_text(json.dumps({**noted, "candidates": noted["candidates"] + 1}))
    with pytest.raises(AuditError, match="was seen"):
        streamed(asked, steps)


def _dies(*_: Any) -> None:
    raise RunStopped("as if something had died")


RECIPE = """
sample:
  corpus: {{inputs: [{corpus}]}}
  output: {folder}/out
  policy: {{policy: tiny-genrm, policy_max_tokens: 64}}
  model: {{model: tiny-attributes}}
  draw: {{n: 4}}
  engine: {{engine: fake}}
  work: {{part_rows: 8}}
pairs:
  scored: {folder}/out
  output: {folder}/pairs
  per: row
  fake_ok: true
  where: "{where}"
choose:
  scored: {folder}/out
  output: {folder}/best
  strategy: best
"""


@pytest.mark.long
def test_a_recipe_generates_scores_filters_and_pairs_in_one_run(corpus: Path, tmp_path: Path) -> None:
    (tmp_path / "recipe.yaml").write_text(RECIPE.format(corpus=corpus, folder=tmp_path, where=FAIR))
    done = run_here("run", tmp_path / "recipe.yaml", "--json")
    assert done.returncode == 0, done.stderr
    run, chosen = (json.loads(line) for line in done.stdout.splitlines())
    assert run["sampling"]["drawn"] == N * PROMPTS
    assert list(run["made"]) == ["pairs"]
    assert run["made"]["pairs"]["rows"] == len(rows_in(tmp_path / "pairs"))
    met = sum(
        row["reward"] is not None and row["reward"] > -1 and row["candidate_tokens"] > 5 for row in scored(tmp_path / "out")
    )
    assert run["made"]["pairs"]["left"].get("outside --where", 0) == run["scored"] - met
    assert chosen["rows"] == len(rows_in(tmp_path / "best")) == PROMPTS
    assert yaml.safe_load((tmp_path / "out" / "recipe.yaml").read_text())["sample"]["draw"]["n"] == N
