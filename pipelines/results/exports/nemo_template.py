"""NeMo's chat template, rendered for trainers whose rows are text: the reverse of formats/extra_ids.py.

<extra_id_0>System\\n{system}\\n<extra_id_1>User\\n{text}\\n<extra_id_1>Assistant\\n{text}\\n<extra_id_1>

There is always a system turn, if only an empty one. Other speakers are refused, as are contents with one of the template's
tokens, which would be read as further turns.
"""

from actors.records import Message, Role
from pipelines.data.formats.extra_ids import START, is_template
from pipelines.folders.scored_corpus.candidates import Candidate
from pipelines.results.exports.trainer_messages import Refusal, refuse_other_speakers, with_first_system

_NAMES = {Role.USER: "User", Role.ASSISTANT: "Assistant"}
END = "\n<extra_id_1>"  # where a response ends: with the token that would begin the next turn


def speaker_name(message: Message) -> str:
    """The speaker's name in the template.

    Raises `KeyError` for a system or tool turn, which `check` has refused.
    """
    return _NAMES[Role(message.role)]


def render_prompt(context: tuple[Message, ...], system: str) -> str:
    """The rendered context, up to where the assistant answers. `system` is the system turn of a context without one."""
    first_system, turns = with_first_system(context)
    spoken = "".join(f"<extra_id_1>{speaker_name(turn)}\n{turn.content}\n" for turn in turns)
    return f"{START}{system if first_system is None else first_system}\n{spoken}<extra_id_1>Assistant\n"


def check(candidate: Candidate) -> Refusal | None:
    """Refuse what the template can't express, in the context or in the response."""
    contents = (*(turn.content for turn in candidate.context), candidate.text)
    return refuse_other_speakers(candidate.context) or (Refusal.CONTROL_TOKEN if any(map(is_template, contents)) else None)
