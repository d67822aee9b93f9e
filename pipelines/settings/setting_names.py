"""Messages are written with flags, `--part-rows 4`, as if every setting had one. Who reads them has other ways to set it.

Who writes Python or YAML reads the settings' names there, and at the command line what isn't an option is after `--set`.
"""

import contextlib
import re
from collections.abc import Callable, Iterator, Sequence

from actors.errors import AssayError
from actors.settings.base import Settings, plain_type
from pipelines.settings.options import Leaf

_CODE = re.compile(r"(`[^`]*`)")
_FLAG = re.compile(r"(?<![\w-])(?:--set (?:\w+\.)*([a-z_]+)(?==)|--([a-z][a-z-]+)(?!\.?[\w-])|-([a-z])(?!\.?[\w-]))")
_FLAG_WITH_VALUE = re.compile(
    r"(?<![\w-])--(?P<no>no-)?(?P<name>[a-z][a-z-]+)(?![\w-]|\.\w)"
    r"(?P<joint>[ =](?P<value>'[^']*'|[\w.+-]*\w(?:='[^']*'|=\w+)?))?"
)
_NUMBER = re.compile(r"[-+]?\d[\d.]*(?:e[-+]?\d+)?")
_PLACEHOLDER = re.compile(r"[A-Z]{2,}|[\w-]+=.*")
_RENAMED = {"for": "trainer"}


@contextlib.contextmanager
def setting_names() -> Iterator[None]:
    """Name settings in errors as Python and YAML do: `part_rows` for --part-rows. Also a decorator."""
    with _respelled(with_setting_names):
        yield


@contextlib.contextmanager
def command_line_names(settings: Sequence[Leaf]) -> Iterator[None]:
    """Name settings in errors as a command takes them: --set work.part_rows=4 for --part-rows 4, if that is no option."""
    with _respelled(lambda message: with_command_line_names(message, settings)):
        yield


@contextlib.contextmanager
def _respelled(respell: Callable[[str], str]) -> Iterator[None]:
    try:
        yield
    except AssayError as error:
        error.args = tuple(respell(part) if isinstance(part, str) else part for part in error.args)
        raise


def with_setting_names(message: str) -> str:
    """A message with the names of settings in place of their flags. Commands in backticks and others' flags stay."""
    names = {name for kind in _all_settings(Settings) for name in kind.model_fields}

    def name(flag: re.Match[str]) -> str:
        spelled = (flag[1] or flag[2] or flag[3]).replace("-", "_")
        spelled = _RENAMED.get(spelled, spelled)
        return f"`{spelled}`" if spelled in names else flag[0]

    return _outside_code(message, lambda text: _FLAG.sub(name, text))


def with_command_line_names(message: str, settings: Sequence[Leaf]) -> str:
    """A message with --set in place of the flags of those settings that are no options. Commands in backticks stay."""
    without_option = {leaf.name: leaf for leaf in settings if not leaf.is_option}

    def name(flag: re.Match[str]) -> str:
        leaf = without_option.get(flag["name"].replace("-", "_"))
        if leaf is None:
            return flag[0]
        kind = plain_type(leaf.field.annotation)
        if kind is bool:
            return f"--set {leaf.path}={'false' if flag['no'] else 'true'}{flag['joint'] or ''}"
        value, after = flag["value"] or "", ""
        if not _is_value(leaf, value) and flag["joint"] != "=" + value:
            value, after = "...", flag["joint"] or ""
        return f"--set {leaf.path}{'.' if '=' in value else '='}{value}{after}"

    return _outside_code(message, lambda text: _FLAG_WITH_VALUE.sub(name, text))


def _is_value(leaf: Leaf, word: str) -> bool:
    """Whether a word after a flag is its value, and not the next one of a sentence."""
    if _NUMBER.fullmatch(word) or _PLACEHOLDER.fullmatch(word) or word.startswith("'"):
        return True
    return word in leaf.choices


def _outside_code(message: str, respell: Callable[[str], str]) -> str:
    return "".join(part if position % 2 else respell(part) for position, part in enumerate(_CODE.split(message)))


def _all_settings(kind: type[Settings]) -> Iterator[type[Settings]]:
    yield kind
    for inner in kind.__subclasses__():
        yield from _all_settings(inner)
