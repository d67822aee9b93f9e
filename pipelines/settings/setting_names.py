"""Messages are written with the flags of the command line; who writes Python or YAML reads the settings' names there."""

import contextlib
import re
from collections.abc import Iterator

from actors.errors import AssayError
from actors.settings.base import Settings

_CODE = re.compile(r"(`[^`]*`)")
_FLAG = re.compile(r"(?<![\w-])(?:--([a-z][a-z-]+)|-([a-z]))(?!\.?[\w-])")
_RENAMED = {"for": "trainer"}


@contextlib.contextmanager
def setting_names() -> Iterator[None]:
    """Name settings in errors as Python and YAML do: `part_rows` for --part-rows. Also a decorator."""
    try:
        yield
    except AssayError as error:
        error.args = tuple(with_setting_names(part) if isinstance(part, str) else part for part in error.args)
        raise


def with_setting_names(message: str) -> str:
    """A message with the names of settings in place of their flags. Commands in backticks and others' flags stay."""
    names = {name for kind in _all_settings(Settings) for name in kind.model_fields}

    def name(flag: re.Match[str]) -> str:
        spelled = (flag[1] or flag[2]).replace("-", "_")
        spelled = _RENAMED.get(spelled, spelled)
        return f"`{spelled}`" if spelled in names else flag[0]

    parts = _CODE.split(message)
    return "".join(part if at % 2 else _FLAG.sub(name, part) for at, part in enumerate(parts))


def _all_settings(kind: type[Settings]) -> Iterator[type[Settings]]:
    yield kind
    for inner in kind.__subclasses__():
        yield from _all_settings(inner)
