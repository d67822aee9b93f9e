r"""`table.tex`: a table for each benchmark, a line for each model, in the style of the package booktabs."""

from collections.abc import Sequence

from actors.text.visible import latex, line
from pipelines.results.evaluation.results import Evaluation, Figure


def latex_tables(evaluations: Sequence[Evaluation]) -> str:
    r"""The tables, for a document with `\usepackage{booktabs}`: shares in percent; conventions are comments."""
    by_benchmark: dict[str, list[Evaluation]] = {}
    for evaluation in evaluations:
        by_benchmark.setdefault(evaluation.benchmark, []).append(evaluation)
    return "\n".join(_table(of_benchmark) for of_benchmark in by_benchmark.values())


def _table(evaluations: Sequence[Evaluation]) -> str:
    # Of all models: a judge of one order has other figures than a head, and empty cells for theirs.
    names = list(dict.fromkeys(figure.name for evaluation in evaluations for figure in evaluation.figures))
    head = " & ".join(["model", *map(latex, names)])
    lines = [
        f"% {evaluations[0].benchmark}: {evaluations[0].source}",
        *(comment for evaluation in evaluations for comment in _comments(evaluation)),
        rf"\begin{{tabular}}{{l{'r' * len(names)}}}",
        r"\toprule",
        rf"{head} \\",
        r"\midrule",
        *(_line(evaluation, names) for evaluation in evaluations),
        r"\bottomrule",
        r"\end{tabular}",
        "",
    ]
    return "\n".join(lines)


def _comments(evaluation: Evaluation) -> list[str]:
    # Comments go where a paper's table goes, so that its numbers keep their conventions.
    near = [figure.name for figure in evaluation.figures if figure.near_chance]
    comments = [
        f"{evaluation.label}: coverage {evaluation.coverage:.1%}, ties {evaluation.tie_rate:.1%}",
        *([f"{evaluation.label}: near chance: {', '.join(near)}"] if near else []),
        *(f"{convention}: {', '.join(names)}" for convention, names in evaluation.conventions.items()),
        *evaluation.caveats,
    ]
    return [f"% {line(comment)}" for comment in comments]


def _line(evaluation: Evaluation, names: Sequence[str]) -> str:
    by_name = {figure.name: figure for figure in evaluation.figures}
    values = [_value(by_name.get(name)) for name in names]
    return rf"{' & '.join([latex(evaluation.label), *values])} \\"


def _value(figure: Figure | None) -> str:
    # A percent sign begins a comment in LaTeX, and a column of shares needs none.
    return "" if figure is None else figure.shown(figure.value, 1).removesuffix("%")
