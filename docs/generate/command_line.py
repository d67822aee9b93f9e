"""The pages of the command line: one for each command, of the options that the command itself has."""

import inspect
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import click

from actors.settings.base import Settings
from deploy.settings import AddressSettings, SingleModelSettings
from docs.generate.markdown import Page, anchored, code, document, heading, paragraphs, table, text
from pipelines.cli.app import cli
from pipelines.cli.flags import VALUES, OneValue
from pipelines.settings.estimate_settings import PlanSettings
from pipelines.settings.options import leaves
from pipelines.settings.recipe import Recipe
from pipelines.settings.run_settings import CheckSettings

_DEFAULT = re.compile(r"\s+\[default: (?P<value>.*)\]$", re.DOTALL)
_OF_THE_COMMAND = "Of the command itself"
_NOT_A_GROUP = "Everything that"
"""How the docstring of a command's whole settings begins."""


class Option(NamedTuple):
    """An option as a person sees it. `default` is empty where there is none, or where the help says what happens."""

    flags: str
    kind: str
    default: str
    help: str


def commands() -> dict[str, click.Command]:
    """All commands by the words that call them, those of groups too: `models explain`."""
    return dict(_commands(cli, ()))


def pages() -> Iterator[Page]:
    """A page for each command, and one that lists them."""
    found = commands()
    yield Page("command-line/index.md", _index(found))
    for words, command in found.items():
        yield Page(page_of(words), _page(words, command))


def page_of(words: str) -> str:
    """Where the page of a command is."""
    return f"command-line/{words.replace(' ', '-')}.md"


def option(parameter: click.Option, command: str = "") -> Option:
    """What there is to say of an option of a command."""
    help_text, default = _help_and_default(parameter)
    names = VALUES.get(f"{command} {parameter.name}") or VALUES.get(f"{parameter.name}")
    values = f"; there are {', '.join(map(code, names()))}" if names and isinstance(parameter, OneValue) else ""
    yes = ", ".join(code(flag) for flag in parameter.opts)
    no = "".join(f" / {code(flag)}" for flag in parameter.secondary_opts)
    return Option(yes + no, _kind(parameter), default, text(help_text) + values)


def _commands(group: click.Group, before: tuple[str, ...]) -> Iterator[tuple[str, click.Command]]:
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None  # it was listed
        yield " ".join((*before, name)), command
        if isinstance(command, click.Group):
            yield from _commands(command, (*before, name))


def _index(found: Mapping[str, click.Command]) -> str:
    rows = [
        (f"[`assay {words}`]({page_of(words).removeprefix('command-line/')})", text(_docstring(command).split("\n\n")[0]))
        for words, command in found.items()
    ]
    options = [option(parameter) for parameter in cli.params if isinstance(parameter, click.Option)]
    return document(
        "# Command line",
        "`assay COMMAND --help` says the same in a terminal; `python -m pipelines` is another name of `assay`. Options of "
        "every command have the names of its settings in a recipe and in Python, with `-` for `_`. How a command can end is "
        "on the page of [exit codes](../exit-codes.md).",
        table(("command", "what it does"), rows),
        heading(2, "Options of `assay` itself", "options"),
        _table(options),
    )


def _page(words: str, command: click.Command) -> str:
    arguments = [parameter for parameter in command.params if isinstance(parameter, click.Argument)]
    groups: dict[str, list[Option]] = {}
    grouped = _groups(words)
    for parameter in command.params:
        if isinstance(parameter, click.Option):
            groups.setdefault(grouped.get(parameter.name or "", _OF_THE_COMMAND), []).append(
                option(parameter, command.name or "")
            )
    own = groups.pop(_OF_THE_COMMAND, [])
    usage = " ".join(("assay", words, *(["[OPTIONS]"] if own or groups else []), *map(_argument, arguments)))
    blocks = [
        f"# assay {words}",
        f"```text\n{usage}\n```",
        paragraphs(_docstring(command)),
        _subcommands(words, command),
        *([heading(2, _OF_THE_COMMAND, "command"), _table(own)] if own else []),
    ]
    for title, options in groups.items():
        blocks += [heading(2, text(title), anchored(title)), _table(options)]
    return document(*blocks)


def _subcommands(words: str, command: click.Command) -> str:
    if not isinstance(command, click.Group):
        return ""
    own = [f"{words} {name}" for name in command.commands]
    return "\n".join(f"- [`assay {name}`]({page_of(name).removeprefix('command-line/')})" for name in own)


def _docstring(command: click.Command) -> str:
    return inspect.cleandoc(command.help or "")


def _argument(argument: click.Argument) -> str:
    name = (argument.name or "").upper() + ("..." if argument.nargs == -1 else "")
    return name if argument.required else f"[{name}]"


def _groups(words: str) -> dict[str, str]:
    """Under which heading an option stands: what the class of settings that declares it says it is about."""
    return {
        leaf.name: title
        for settings in _settings(words)
        for leaf in leaves(settings)
        if not (title := _title(settings, leaf.sections, leaf.name)).startswith(_NOT_A_GROUP)
    }


def _settings(words: str) -> tuple[type[Settings], ...]:
    own: dict[str, tuple[type[Settings], ...]] = {
        "check": (CheckSettings,),
        "plan": (PlanSettings,),
        "serve": (AddressSettings, SingleModelSettings),
    }
    if words in Recipe.model_fields:
        return (_settings_in(Recipe.model_fields[words].annotation),)
    return own.get(words, ())


def _settings_in(annotation: Any) -> type[Settings]:
    kinds = (annotation, *getattr(annotation, "__args__", ()))
    return next(kind for kind in kinds if isinstance(kind, type) and issubclass(kind, Settings))


def _title(settings: type[Settings], sections: Sequence[str], name: str) -> str:
    for section in sections:
        settings = _settings_in(settings.model_fields[section].annotation)
    declares = next(kind for kind in settings.__mro__ if name in inspect.get_annotations(kind))
    return (declares.__doc__ or "").split(". ")[0].split("\n")[0].rstrip(".")


def _table(options: Sequence[Option]) -> str:
    return table(("option", "type", "default", "what it does"), options)


def _help_and_default(parameter: click.Option) -> tuple[str, str]:
    """Options made of settings say their default in the help; those that are on unless told otherwise have a second flag."""
    help_text = parameter.help or ""
    if found := _DEFAULT.search(help_text):
        return help_text[: found.start()], code(found["value"])
    if parameter.required:
        return help_text, "required"
    return help_text, "on" if parameter.secondary_opts else ""


def _kind(parameter: click.Option) -> str:
    if parameter.is_flag:
        return "flag"
    if isinstance(parameter.type, click.Choice):
        return ", ".join(code(choice) for choice in parameter.type.choices)
    kind = code(parameter.metavar) if parameter.metavar else parameter.type.name
    return f"{kind}, repeatable" if _repeats(parameter) else kind


def _repeats(parameter: click.Option) -> bool:
    """Whether it may be given more than once. `OneValue` is multiple for click, so that it can refuse a second value."""
    return parameter.multiple and not isinstance(parameter, OneValue)
