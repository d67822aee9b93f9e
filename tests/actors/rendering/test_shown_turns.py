"""A conversation of which a turn wouldn't be shown is refused."""

from collections.abc import Sequence

import pytest

from actors.errors import Rejected
from actors.records import Message, Role
from actors.rendering.shown_turns import ShownTurns
from tests.support.models import assistant, system, tool, user

PLAIN = frozenset({Role.USER, Role.ASSISTANT})
LATER = (user("a"), system("b"), user("c"))
SEVERAL = (system("a"), system("b"), user("c"))


@pytest.mark.parametrize(
    ("turns", "context"),
    [
        (ShownTurns(PLAIN), (system("a"), user("b"))),
        (ShownTurns(PLAIN), (user("a"), tool("b"))),
        (ShownTurns(PLAIN | {Role.SYSTEM}, later_system=False), LATER),
        (ShownTurns(PLAIN | {Role.SYSTEM}, several_systems=False), SEVERAL),
    ],
    ids=["system", "tool", "later system", "several systems"],
)
def test_a_turn_that_isnt_shown_is_refused(turns: ShownTurns, context: Sequence[Message]) -> None:
    with pytest.raises(Rejected, match="role_not_in_template"):
        turns.check(context)


def test_what_is_shown_passes() -> None:
    for context in ((), (user("a"), assistant("b"), user("c")), LATER, SEVERAL):
        ShownTurns(frozenset(Role)).check(context)
