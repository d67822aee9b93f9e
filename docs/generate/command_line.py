"""The pages of the command line: one for each command, of the options that the command itself has."""

import inspect
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import click

from docs.generate.markdown import Page, anchored, code, document, heading, paragraphs, table, text
from pipelines.cli.app import cli
from pipelines.cli.grouped_help import AssignedSettings, OneValue, setting_form, shown_default
from pipelines.cli.option_values import listed_values
from pipelines.settings.options import Leaf

_DEFAULT = re.compile(r"\s+\[default: (?P<value>.*)\]$", re.DOTALL)


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
    commands_by_name = commands()
    yield Page("command-line/index.md", _index(commands_by_name))
    for words, command in commands_by_name.items():
        yield Page(page_of(words), _page(words, command))


def page_of(words: str) -> str:
    """Where the page of a command is."""
    return f"command-line/{words.replace(' ', '-')}.md"


def option(parameter: click.Option, command: str = "") -> Option:
    """What there is to say of an option of a command."""
    help_text, default = _help_and_default(parameter)
    yes = ", ".join(code(flag) for flag in parameter.opts)
    no = "".join(f" / {code(flag)}" for flag in parameter.secondary_opts)
    return Option(yes + no, _kind(parameter), default, text(help_text) + _listed(command, parameter.name))


def _commands(group: click.Group, before: tuple[str, ...]) -> Iterator[tuple[str, click.Command]]:
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None  # it was listed
        yield " ".join((*before, name)), command
        if isinstance(command, click.Group):
            yield from _commands(command, (*before, name))


def _index(commands_by_name: Mapping[str, click.Command]) -> str:
    rows = [
        (f"[`assay {words}`]({page_of(words).removeprefix('command-line/')})", text(_docstring(command).split("\n\n")[0]))
        for words, command in commands_by_name.items()
    ]
    options = [option(parameter) for parameter in cli.params if isinstance(parameter, click.Option)]
    return document(
        "# Command line",
        "`assay COMMAND --help-all` says the same in a terminal, and `--help` what has an option; `python -m assay` is "
        "another name of `assay`. Options have the names of settings in a recipe and in Python, with `-` for `_`, but for "
        "three: `--for` is `trainer`, and `--judge` of `sample` and `--select` of `refine` are `model` in a recipe.",
        "All other settings are given as `--set section.name=value`, by their names in a recipe; as there, the section may "
        "be left out. The value of a text is all that follows `=`. A list of several is written as in YAML, `[A, B]`, and "
        "of a mapping each item is given by itself (`--set model.weights.right=2`) or all as YAML. `assay run` and `assay "
        "submit` take `--set step.section.name=value` in place of what the recipe has.",
        "How a command can end is on the page of [exit codes](../exit-codes.md).",
        table(("command", "what it does"), rows),
        heading(2, "Options of `assay` itself", "options"),
        _table(options),
    )


def _page(words: str, command: click.Command) -> str:
    arguments = [parameter for parameter in command.params if isinstance(parameter, click.Argument)]
    options = [parameter for parameter in command.params if isinstance(parameter, click.Option)]
    options.sort(key=lambda parameter: not parameter.required)
    usage = " ".join(("assay", words, *(["[OPTIONS]"] if options else []), *map(_argument, arguments)))
    blocks = [
        f"# assay {words}",
        f"```text\n{usage}\n```",
        paragraphs(_docstring(command)),
        _subcommands(words, command),
        table(
            ("argument", "what it is"), [(code(_argument(argument)), text(argument.help or "")) for argument in arguments]
        ),
    ]
    if options:
        shown = [option(parameter, command.name or "") for parameter in options]
        blocks += [heading(2, "Options", anchored("options")), _table(shown)]
    for parameter in options:
        blocks += _settings(parameter, command.name or "") if isinstance(parameter, AssignedSettings) else []
    return document(*blocks)


def _settings(parameter: AssignedSettings, command: str) -> Iterator[str]:
    """A section for each section of settings."""
    yield heading(2, "Settings", anchored("settings"))
    for title, leaves in parameter.sections():
        name, _, about = title.partition(": ")
        yield heading(3, name, anchored(name))
        yield text(f"{about[:1].upper()}{about[1:]}.") if about else ""
        yield table(("after `--set`", "value", "default", "what it does"), [_setting(leaf, command) for leaf in leaves])


def _setting(leaf: Leaf, command: str) -> tuple[str, ...]:
    path, _, value = setting_form(leaf).partition("=")
    values = ", ".join(map(code, leaf.choices)) or value.lower()
    about = text(leaf.about) + _listed(command, leaf.name)
    return code(path), values, code(shown_default(leaf)), about


def _listed(command: str, name: str | None) -> str:
    return "".join(f"; {before} {', '.join(map(code, names))}" for before, names in listed_values(command, name))


def _subcommands(words: str, command: click.Command) -> str:
    if not isinstance(command, click.Group):
        return ""
    subcommands = [f"{words} {name}" for name in command.commands]
    return "\n".join(f"- [`assay {name}`]({page_of(name).removeprefix('command-line/')})" for name in subcommands)


def _docstring(command: click.Command) -> str:
    return inspect.cleandoc(command.help or "")


def _argument(argument: click.Argument) -> str:
    name = (argument.name or "").upper() + ("..." if argument.nargs == -1 else "")
    return name if argument.required else f"[{name}]"


def _table(options: Sequence[Option]) -> str:
    return table(("option", "type", "default", "what it does"), options)


def _help_and_default(parameter: click.Option) -> tuple[str, str]:
    """Options made of settings say their default in the help; those that are on unless told otherwise have a second flag."""
    help_text = parameter.help or ""
    if default := _DEFAULT.search(help_text):
        return help_text[: default.start()], code(default["value"])
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
