"""NeMo's chat template, written out as its trainers want it where a row is text: the reverse of formats/extra_ids.py.

<extra_id_0>System\\n{system}\\n<extra_id_1>User\\n{text}\\n<extra_id_1>Assistant\\n{text}\\n<extra_id_1>

There is always a system turn in it, if only an empty one. There are no other speakers, and a content with one of the
template's tokens would be read as turns that nobody spoke: both are refused.
"""

from collections.abc import Sequence

from actors.records import Message, Role
from pipelines.exports.trainer_messages import Refusal, more_speakers, with_first_system
from pipelines.formats.extra_ids import START, is_template

_NAMES = {Role.USER: "User", Role.ASSISTANT: "Assistant"}
END = "\n<extra_id_1>"
"""Where a response ends: with the token that would begin the next turn."""


def name(message: Message) -> str:
    """What the template calls who speaks."""
    return _NAMES[Role(message.role)]


def prompt(context: tuple[Message, ...], system: str) -> str:
    """The context, up to where the assistant is to answer. `system` is what stands there if it has no system turn."""
    own, turns = with_first_system(context)
    spoken = "".join(f"<extra_id_1>{name(turn)}\n{turn.content}\n" for turn in turns)
    return f"{START}{system if own is None else own}\n{spoken}<extra_id_1>Assistant\n"


def check(context: tuple[Message, ...], texts: Sequence[str]) -> Refusal | None:
    """Against what the template can't say, in the context or in the responses."""
    contents = (*(turn.content for turn in context), *texts)
    return more_speakers(context) or (Refusal.CONTROL_TOKEN if any(map(is_template, contents)) else None)
