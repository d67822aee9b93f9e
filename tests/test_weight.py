"""`make weight`: its figures are counted as it says, and one outside its budget is named."""

import ast

import pytest

from bench.weight import Module, find_excesses, has_vague_local, measure

PRODUCT = '''"""A module.

Of two paragraphs.
"""

LIMIT = 3  # why three


class Shelf:
    """What holds rows."""

    def first(self) -> int:
        found = LIMIT
        return found
'''


def test_figures_are_those_of_the_text() -> None:
    figures = measure([Module.parse(PRODUCT)], [Module.parse("def test_it() -> None:\n    assert True\n")])
    assert figures == {
        "product-lines": 14,
        "test-lines": 2,
        "product-files-over-400-lines": 0,
        "lines-of-the-longest-class": 6,
        "product-functions-with-vague-locals": 100.0,
        "test-functions-with-vague-locals": 0.0,
        "docstrings-of-one-line": 50.0,
        "comments-per-100-lines": 7.1,
    }


@pytest.mark.parametrize(
    ("text", "is_vague"),
    [
        ("def f():\n    own = 1", True),
        ("def f():\n    for one in (): pass", True),
        ("def f():\n    return [at for at in ()]", True),
        ("def f():\n    def told(): pass", True),
        ("def f(found):\n    return found", False),
        ("def f():\n    def g():\n        found = 1", False),
        ("def f():\n    rows = own", False),
    ],
)
def test_a_local_is_what_a_functions_body_binds(text: str, is_vague: bool) -> None:
    (function,) = ast.parse(text).body
    assert isinstance(function, ast.FunctionDef)
    assert has_vague_local(function) is is_vague


def test_a_figure_outside_its_budget_is_named() -> None:
    budget = {"product-lines": {"most": 10}, "comments-per-100-lines": {"least": 3}}
    assert find_excesses({"product-lines": 10, "comments-per-100-lines": 3}, budget) == []
    assert find_excesses({"product-lines": 1011, "comments-per-100-lines": 2.9}, budget) == [
        "product-lines is 1,011, at most 10",
        "comments-per-100-lines is 2.9, at least 3",
    ]
    with pytest.raises(KeyError):
        find_excesses({"a figure of nobody": 1}, budget)
