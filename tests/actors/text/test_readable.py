"""A summary reads as a table, at a prompt and in a notebook."""

from dataclasses import dataclass, field

from actors.text.readable import Readable


@dataclass(frozen=True)
class Inner(Readable):
    """Part of a summary."""

    rows: int = 12_345


@dataclass(frozen=True)
class Outer(Readable):
    """A summary."""

    scored: Inner = Inner()
    mean_reward: float = 0.123456789
    reasons: dict[str, int] = field(default_factory=lambda: {"too_long": 2, "<b>": 1})
    of_models: dict[str, Inner] = field(default_factory=lambda: {"a": Inner(3)})
    path: str | None = None


def test_the_fields_that_hold_something_are_its_lines() -> None:
    assert str(Outer()).splitlines() == [
        "rows                  12,345",
        "mean reward           0.123457",
        "reasons               too_long 2, <b> 1",
        "a: rows               3",
    ]
    assert Outer()._repr_html_().replace("&lt;b&gt;", "<b>") == f"<pre>{Outer()}</pre>"
    assert repr(Outer()).startswith("Outer(scored=Inner(rows=12345)"), "a program sees all, as it is"
