"""Help in groups: --help shows the options that matter and names the other groups, --help-all shows all options."""

import inspect
from collections.abc import Sequence
from typing import Any

import click

from pipelines.cli.option_values import listed_values

OTHERS = "Others"
"""The group of options that are about nothing in particular; the last one."""
_ALL = "assay.help_all"


class GroupedOption(click.Option):
    """An option of a group, which --help-all shows; without a group, --help shows it, too."""

    def __init__(self, *arguments: Any, group: str = "", **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.group = group

    def get_help_record(self, ctx: click.Context) -> tuple[str, str] | None:
        """The option's help, with the names that it takes, which are imported only when help is shown."""
        record = super().get_help_record(ctx)
        if record is None:
            return None
        listed = "".join(f"; {before} {', '.join(names)}" for before, names in listed_values(ctx.info_name, self.name))
        return record[0], f"{record[1]}{listed}"


class OneValue(GroupedOption):
    """An option that takes one value. Given twice it is an error, where click would silently take the last."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **{**options, "multiple": True})

    def process_value(self, ctx: click.Context, value: Any) -> Any:
        """The value, or None. Raises `click.UsageError` if there are several."""
        values = super().process_value(ctx, value)
        if values and len(values) > 1:
            raise click.UsageError(f"{self.opts[0]} takes one value, and it is given {' and '.join(map(repr, values))}", ctx)
        return values[0] if values else None

    def value_is_missing(self, value: Any) -> bool:
        """Never: what is missing is told with all other mistakes, when the settings are built."""
        return False


class Command(click.Command):
    """A command with its options in groups."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        if len(option_groups(self.params)) > 1:
            self.params.append(
                click.Option(
                    ["--help-all"],
                    is_flag=True,
                    is_eager=True,
                    expose_value=False,
                    callback=_show_all,
                    help="Show all options and exit.",
                )
            )

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The groups that are asked for, and the names of the others."""
        groups = option_groups(self.get_params(ctx))
        shown = groups if ctx.meta.get(_ALL) else {"": groups.pop("")}
        for group, options in shown.items():
            with formatter.section(group or "Options"):
                formatter.write_dl([record for option in options if (record := option.get_help_record(ctx))])
        if shown is not groups and groups:
            formatter.write_paragraph()
            names = ", ".join(group.partition(":")[0].lower() for group in groups)
            formatter.write_text(f"More groups of options: {names}. --help-all shows all options.")


class CommandGroup(click.Group):
    """Commands, each with a whole sentence of what it does."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write all of them, as one section."""
        self.write_commands(ctx, formatter, "Commands", self.list_commands(ctx))

    def write_commands(self, ctx: click.Context, formatter: click.HelpFormatter, title: str, names: Sequence[str]) -> None:
        """Write a section of commands."""
        commands = [(name, self.get_command(ctx, name)) for name in names]
        with formatter.section(title):
            formatter.write_dl([(name, _first_sentence(command)) for name, command in commands if command])


def option_groups(parameters: Sequence[click.Parameter]) -> dict[str, list[click.Option]]:
    """The options of a command by group, required ones first. The first group, without a name, has those that matter."""
    groups: dict[str, list[click.Option]] = {"": []}
    for option in parameters:
        if isinstance(option, click.Option):
            groups.setdefault(getattr(option, "group", ""), []).append(option)
    ordered = sorted(groups, key=lambda group: group == OTHERS)
    return {group: sorted(groups[group], key=lambda option: not option.required) for group in ordered}


def _first_sentence(command: click.Command) -> str:
    """What a command does, in a sentence."""
    paragraph = " ".join(inspect.cleandoc(command.help or "").split("\n\n")[0].split())
    sentence, end, _ = paragraph.partition(". ")
    return sentence + end.rstrip()


def _show_all(context: click.Context, _: click.Parameter, is_given: bool) -> None:
    if is_given:
        context.meta[_ALL] = True
        click.echo(context.get_help(), color=context.color)
        context.exit()
