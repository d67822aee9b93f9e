"""Which turns of a conversation prompts show: one that the template leaves out would be judged as if nobody had said it."""

from collections.abc import Sequence
from dataclasses import dataclass

from actors.errors import Rejected
from actors.records import Message, Reason, Role


@dataclass(frozen=True, slots=True)
class ShownTurns:
    """The turns that the prompts of a model show."""

    roles: frozenset[Role]
    later_system: bool = True
    """Whether a system turn that isn't the first turn is shown."""
    several_systems: bool = True
    """Whether both of two system turns are: with some templates, one replaces the other."""

    def check(self, context: Sequence[Message]) -> None:
        """Raise `Rejected` for a context of which a turn would be left out."""
        for message in context:
            if message.role not in self.roles:
                raise Rejected(Reason.ROLE_NOT_IN_TEMPLATE, message.role)
        systems = [at for at, message in enumerate(context) if message.role is Role.SYSTEM]
        is_later, are_several = max(systems, default=0) > 0, len(systems) > 1
        if (is_later and not self.later_system) or (are_several and not self.several_systems):
            raise Rejected(Reason.ROLE_NOT_IN_TEMPLATE, "a system turn after the first turn")
