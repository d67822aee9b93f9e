"""The turns that datasets have inside of a text in NeMo's template: <extra_id_1>Assistant\\n{text}\\n<extra_id_1>User."""

import re

START = "<extra_id_0>System\n"
_HEADER = re.compile(r"\n<extra_id_1>(User|Assistant)\n")
_TOKEN = re.compile(r"<extra_id_\d+>")


def is_template(text: str) -> bool:
    """Whether the text holds any token of the template."""
    return _TOKEN.search(text) is not None


def embedded(prompt: str) -> list[dict[str, str]]:
    """The turns of a HelpSteer2 prompt: the user's first words are bare, and the others follow under their headers.

    They must alternate and end with the user. Any other prompt is a single turn, unchanged: tokens in it are the user's
    text, and the renderer decides about them.
    """
    _, *pieces = _HEADER.split("\n<extra_id_1>User\n" + prompt)
    speakers, contents = pieces[::2], pieces[1::2]
    alternate = len(speakers) % 2 == 1 and all(name == ("User", "Assistant")[i % 2] for i, name in enumerate(speakers))
    if not alternate or any(map(is_template, contents)):
        speakers, contents = ["User"], [prompt]
    return [{"role": name.lower(), "content": content} for name, content in zip(speakers, contents, strict=True)]
