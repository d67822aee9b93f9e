"""The page of the Python API: what `assay` has, with every way to call it."""

import inspect
import typing
from collections.abc import Callable, Iterator
from typing import Any

import assay
from docs.generate.command_line import commands, page_of
from docs.generate.markdown import Page, anchored, code, document, heading, paragraphs, table, text


def functions() -> dict[str, Callable[..., Any]]:
    """All functions of `assay`, by name."""
    members = {name: getattr(assay, name) for name in dir(assay)}
    return {name: member for name, member in members.items() if inspect.isfunction(member)}


def pages() -> Iterator[Page]:
    """The page."""
    functions_by_name = functions()
    rows = [
        (f"[{code(name)}](#{anchored(name)})", text((inspect.getdoc(function) or "").split("\n\n")[0]))
        for name, function in functions_by_name.items()
    ]
    yield Page(
        "python.md",
        document(
            "# Python",
            "`import assay`, or `from assay import score`: the commands by their names. With paths, each writes a folder "
            "and returns a summary; with a `ray.data.Dataset` first and no output, it returns a Dataset. Options have the "
            "names of the command's, with `_` for `-`.",
            table(("function", "what it does"), rows),
            *(_section(name, function) for name, function in functions_by_name.items()),
        ),
    )


def _section(name: str, function: Callable[..., Any]) -> str:
    ways = typing.get_overloads(function) or [function]
    signatures = "\n".join(f"{name}{_signature(way)}" for way in ways)
    command = name
    options = f"Options: those of [`assay {command}`]({page_of(command)})." if command in commands() else ""
    return document(
        heading(2, code(name), anchored(name)),
        f"```python\n{signatures}\n```",
        paragraphs(inspect.getdoc(function)),
        options,
    ).rstrip()


def _signature(function: Callable[..., Any]) -> str:
    """As it stands in the source, without the modules that its types are from."""
    signature = inspect.signature(function)
    parameters = [parameter.replace(annotation=_Named(parameter.annotation)) for parameter in signature.parameters.values()]
    return str(signature.replace(parameters=parameters, return_annotation=_Named(signature.return_annotation)))


class _Named:
    """A type that is written by its short name."""

    def __init__(self, kind: Any) -> None:
        self._kind = kind

    def __repr__(self) -> str:
        if isinstance(self._kind, type) and not typing.get_args(self._kind):
            return self._kind.__name__
        return str(self._kind).replace("collections.abc.", "").replace("typing.", "")
