"""How heavy is the code? Prints its figures, and fails where one is outside its budget in pyproject.toml, `[tool.weight]`.

Lines are those of Python files, with blank ones and docstrings. A local is a name that a function binds in its body: its
parameters are none, nor are the locals of a function inside it.
"""

import ast
import io
import re
import subprocess
import sys
import tokenize
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

_REPOSITORY = Path(__file__).resolve().parent.parent
_PRODUCT = ("actors", "assay", "client", "deploy", "pipelines")
_LONG_FILE = 400

VAGUE = frozenset(("asked", "at", "found", "given", "its", "known", "left", "one", "own", "rest", "said", "told"))
"""Pronouns and participles: as the name of a local, each of them leaves it to the reader what is held."""


@dataclass(frozen=True)
class Module:
    """The text of a Python file, and what it parses to."""

    text: str
    tree: ast.Module

    @classmethod
    def parse(cls, text: str) -> "Module":
        return cls(text, ast.parse(text))

    @property
    def lines(self) -> int:
        """All lines, blank ones among them."""
        return len(self.text.splitlines())

    @property
    def comments(self) -> int:
        """Lines with a comment, alone or after code."""
        tokens = tokenize.generate_tokens(io.StringIO(self.text).readline)
        return sum(token.type == tokenize.COMMENT for token in tokens)

    @property
    def functions(self) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
        return [node for node in ast.walk(self.tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]


def main(arguments: Sequence[str]) -> None:
    """`weight`, or `weight cases`, which also collects the tests: 20 s on a calm core."""
    budget = tomllib.loads((_REPOSITORY / "pyproject.toml").read_text())["tool"]["weight"]
    figures = measure(_modules_of(*_PRODUCT), _modules_of("tests")) | _count_options()
    if "cases" in arguments:
        figures["test-cases"] = _count_cases()
    for name, figure in figures.items():
        print(f"{name:35} {figure:9,}   {' '.join(f'{bound} {value:,}' for bound, value in budget[name].items())}")
    if excesses := find_excesses(figures, budget):
        sys.exit("outside the budget in pyproject.toml, [tool.weight]: " + "; ".join(excesses))


def measure(product: Sequence[Module], tests: Sequence[Module]) -> dict[str, float]:
    """All figures that need no more than the text of the modules; shares are in percent."""
    lines = sum(module.lines for module in product)
    classes = [node for module in product for node in ast.walk(module.tree) if isinstance(node, ast.ClassDef)]
    docstrings = list(_docstrings(product))
    return {
        "product-lines": lines,
        "test-lines": sum(module.lines for module in tests),
        "product-files-over-400-lines": sum(module.lines > _LONG_FILE for module in product),
        "lines-of-the-longest-class": max((_length(node) for node in classes), default=0),
        "product-functions-with-vague-locals": _percent(map(has_vague_local, _functions(product))),
        "test-functions-with-vague-locals": _percent(map(has_vague_local, _functions(tests))),
        "docstrings-of-one-line": _percent("\n" not in docstring.strip() for docstring in docstrings),
        "comments-per-100-lines": round(100 * sum(module.comments for module in product) / max(lines, 1), 1),
    }


def find_excesses(figures: Mapping[str, float], budget: Mapping[str, Mapping[str, float]]) -> list[str]:
    """One sentence for each figure above its `most` or below its `least`; a figure without a budget is a `KeyError`."""
    above = [
        f"{name} is {figure:,}, at most {most:,}"
        for name, figure in figures.items()
        if (most := budget[name].get("most")) is not None and figure > most
    ]
    below = [
        f"{name} is {figure:,}, at least {least:,}"
        for name, figure in figures.items()
        if (least := budget[name].get("least")) is not None and figure < least
    ]
    return above + below


def has_vague_local(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Whether a name of `VAGUE` is bound in the function's body."""
    return not VAGUE.isdisjoint(_locals_of(function.body))


def _locals_of(nodes: Iterable[ast.AST]) -> Iterator[str]:
    for node in nodes:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif not isinstance(node, ast.Lambda):
            yield from _locals_of(ast.iter_child_nodes(node))


def _functions(modules: Iterable[Module]) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    return (function for module in modules for function in module.functions)


def _docstrings(modules: Iterable[Module]) -> Iterator[str]:
    """Those of modules, classes and functions, and the strings that stand below a field or a constant."""
    for module in modules:
        for node in ast.walk(module.tree):
            if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
                yield node.value.value


def _length(node: ast.ClassDef) -> int:
    return (node.end_lineno or node.lineno) - node.lineno + 1


def _percent(answers: Iterable[bool]) -> float:
    counted = list(answers)
    return round(100 * sum(counted) / max(len(counted), 1), 1)


def _modules_of(*folders: str) -> list[Module]:
    """The tracked Python files below these folders, and those that are new and not ignored."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", *folders]
    names = subprocess.run(command, cwd=_REPOSITORY, check=True, stdout=subprocess.PIPE, text=True).stdout.split("\0")
    files = [_REPOSITORY / name for name in names if name.endswith(".py")]
    return [Module.parse(file.read_text()) for file in files if file.is_file()]


def _count_options() -> dict[str, float]:
    """Options of all commands, without --help and --help-all."""
    from pipelines.cli.app import cli  # imported here: the other figures need nothing of the product

    flags = [flag for command in _commands_of(cli) for flag in _flags_of(command)]
    return {"options-of-all-commands": len(flags), "distinct-options": len(set(flags))}


def _commands_of(command: click.Command) -> Iterator[click.Command]:
    if not isinstance(command, click.Group):
        yield command
        return
    context = click.Context(command)
    for name in command.list_commands(context):
        if (member := command.get_command(context, name)) is not None:
            yield from _commands_of(member)


def _flags_of(command: click.Command) -> list[str]:
    options: list[Any] = [parameter for parameter in command.params if isinstance(parameter, click.Option)]
    return [option.opts[0] for option in options if not option.opts[0].startswith("--help")]


def _count_cases() -> int:
    """What pytest collects, `long` and `chaos` among them."""
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-m", "", "-p", "no:cacheprovider"]
    output = subprocess.run(command, cwd=_REPOSITORY, check=True, stdout=subprocess.PIPE, text=True).stdout
    total = re.search(r"^(\d+) tests collected", output, re.MULTILINE)
    if total is None:
        sys.exit(f"pytest doesn't say how many tests it collected: {output[-500:]}")
    return int(total[1])
