"""Items, measures and evaluations for tests, without a scored corpus."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pipelines.results.evaluation.benchmark import Benchmark, Item
from pipelines.results.evaluation.grades import Grades
from pipelines.results.evaluation.results import Evaluation, Figure
from pipelines.results.evaluation.statistics.intervals import mean_cells


def item(rewards: Mapping[str, float | None], row: str = "f:0", **fields: object) -> Item:
    """An item; a response without a reward has failed without a verdict."""
    value = {name: reward for name, reward in rewards.items() if reward is not None}
    return Item(row, fields, value, dict.fromkeys(rewards.keys() - value.keys(), "failed: no_verdict"))


def sides(chosen: Sequence[float], rejected: Sequence[float]) -> dict[str, float]:
    """Rewards by the names of list shapes."""
    named = {f"chosen[{index}]": reward for index, reward in enumerate(chosen)}
    return named | {f"rejected[{index}]": reward for index, reward in enumerate(rejected)}


def grades_of(benchmark: Benchmark, items: Iterable[Item]) -> Grades:
    """All items, graded."""
    grades = Grades(len(benchmark.cells))
    for graded in benchmark.grade(items):
        grades.add(graded)
    return grades


def measures_of(benchmark: Benchmark, items: Iterable[Item], *, judged: bool = False) -> dict[str, float]:
    """The value of each measure by its name."""
    means = mean_cells(grades_of(benchmark, items).cells, judged)
    return {measure.name: float(measure.value) for measure in benchmark.measures(means)}


def evaluation_of(model: str = "m", benchmark: str = "pairs", **fields: Any) -> Evaluation:
    """An evaluation with these fields, and nothing in the others."""
    nothing = {
        "title": "",
        "source": "",
        "identity": {},
        "versions": {},
        "files": [],
        "figures": [],
        "subsets": {},
        "work": {},
    }
    return Evaluation(benchmark=benchmark, model=model, **{**nothing, "coverage": 1.0, "tie_rate": 0.0, **fields})


def figures_of(**values: float | None) -> list[Figure]:
    """Figures with these values, each with an interval of 5 points to both sides."""
    return [
        Figure(name, value, value and value - 0.05, value and value + 0.05, 40, "c", near_chance=False)
        for name, value in values.items()
    ]
