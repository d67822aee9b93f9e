"""Which result files of the benchmarks' own codes are written, and what is said of those that can't be."""

import json
from pathlib import Path

from click.testing import CliRunner

from pipelines.cli.app import cli
from tests.support.peer_files import of_json


def test_other_benchmarks_have_no_such_files(tmp_path: Path) -> None:
    evaluation, files = of_json(tmp_path, [{"prompt": "p", "chosen": "good", "rejected": "bad"}])
    assert (evaluation.benchmark, files, evaluation.notes) == ("pairs", {}, ())
    assert not (tmp_path / "e" / "peers").exists()


def test_a_field_that_the_rows_lack_is_named_and_its_file_not_written(tmp_path: Path) -> None:
    rows = [{"prompt": "p", "chosen": ["good"], "rejected": ["bad"], "subset": "Math"}]
    evaluation, files = of_json(tmp_path, rows, benchmark="reward-bench-2", partial=True)
    assert list(files) == ["eval-set.json"]
    assert files["eval-set.json"]["Math"] == evaluation.figures[0].value
    message = "peers/ lacks a result file of reward-bench-2's own code: row c.jsonl:0 has no field 'id', which it holds."
    assert evaluation.notes[-1] == message
    (saved,) = json.loads((tmp_path / "e" / "results.json").read_text())["evaluations"]
    assert saved["notes"][-1] == message
    assert message in (tmp_path / "e" / "table.md").read_text()
    command = ["evaluate", str(tmp_path / "s"), "--out", str(tmp_path / "again"), "--as", "reward-bench-2", "--partial"]
    assert message in CliRunner().invoke(cli, command).output
