"""Every file of the folder is a benchmark, which says all that its users need."""

from pathlib import Path

from pipelines.data.formats.registry import SHAPES
from pipelines.results.evaluation import benchmarks as package
from pipelines.results.evaluation.benchmarks import benchmarks


def test_every_file_is_a_benchmark_and_has_a_test() -> None:
    folder = Path(package.__file__).parent
    names = {path.stem for path in folder.glob("*.py")} - {"__init__"}
    assert {benchmark.name.replace("-", "_") for benchmark in benchmarks().values()} == names
    tests = {path.stem.removeprefix("test_") for path in Path(__file__).with_name("benchmarks").glob("test_*.py")}
    assert tests == names


def test_a_benchmark_is_consistent() -> None:
    for name in benchmarks():
        benchmark = benchmarks()[name]
        assert benchmark.title
        assert benchmark.source
        assert len(set(benchmark.cells)) == len(benchmark.cells)
        assert set(benchmark.expected) <= set(benchmark.required), "all that are published are needed"
        assert set(benchmark.shapes) <= set(SHAPES)
