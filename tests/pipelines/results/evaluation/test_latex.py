"""The LaTeX table: in percent, with a line for each model and a column for each figure."""

from pathlib import Path

from pipelines.data.formats import RowShape
from pipelines.results.evaluation.evaluate_corpus import evaluate
from pipelines.results.evaluation.latex import latex_tables
from pipelines.settings.evaluate_settings import EvaluateSettings
from pipelines.settings.options import build
from tests.support.candidates import judged_corpus


def test_a_line_for_each_model_and_a_column_for_each_figure(tmp_path: Path) -> None:
    for name, rewards in (("a", [(2.0, 1.0)] * 3 + [(1.0, 2.0)]), ("b", [(1.0, 2.0)] * 4)):
        rows = [{"prompt": f"p{index}", "chosen": "good", "rejected": "bad", "subset": "x_y"} for index in range(4)]
        judged_corpus(tmp_path / name, rows, rewards, RowShape("preference"), parquet=True)
    output = tmp_path / "e"
    folders = [str(tmp_path / name) for name in "ab"]
    evaluations = evaluate(build(EvaluateSettings, {"scored": folders, "output": str(output)}))
    table = (output / "table.tex").read_text()
    assert table == latex_tables(evaluations)
    rows_of_table = [line for line in table.splitlines() if line.endswith(r"\\")]
    assert rows_of_table == [
        r"model & accuracy & x\_y & accuracy (half) \\",
        r"m & 75.0 & 75.0 & 75.0 \\",
        r"m & 0.0 & 0.0 & 0.0 \\",
    ]
    assert table.count(r"\toprule") == table.count(r"\bottomrule") == 1
    assert "% m: coverage 100.0%, ties 0.0%" in table
