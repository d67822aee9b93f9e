"""The turns that datasets have inside of a text in NeMo's template: <extra_id_1>Assistant\\n{text}\\n<extra_id_1>User."""

import re

from actors.records import Role
from pipelines.data.formats.chat_templates import NEMO_ROWS

START = "<extra_id_0>System\n"
_TOKEN = re.compile(r"<extra_id_\d+>")


def is_template(text: str) -> bool:
    """Whether the text holds any token of the template."""
    return _TOKEN.search(text) is not None


def embedded(prompt: str) -> list[dict[str, str]]:
    """The turns of a HelpSteer2 prompt: the user's first words are bare, and the others follow under their headers.

    They must alternate and end with the user. Any other prompt is a single turn, unchanged: tokens in it are the user's
    text, and the renderer decides about them.
    """
    single = [{"role": Role.USER.value, "content": prompt}]
    # Most prompts have no token. A system turn after the user's is none of a conversation, and an empty one would vanish.
    if "<extra_id_1>" not in prompt or "<extra_id_0>" in prompt:
        return single
    parsed = NEMO_ROWS.split(f"<extra_id_1>User\n{prompt}\n<extra_id_1>Assistant\n")
    turns = [{"role": turn.role.value, "content": turn.content} for turn in parsed.context] if parsed else []
    speakers = [(Role.USER, Role.ASSISTANT)[position % 2] for position in range(len(turns))]
    return turns if len(turns) % 2 and speakers == [turn["role"] for turn in turns] else single
