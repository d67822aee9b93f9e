"""Help: --help shows the options of a command, --help-all its settings, too, which --set reaches; commands come by job."""

import typing
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any

import click

from actors.settings.base import plain_type
from pipelines.cli.option_values import listed_values
from pipelines.settings.assignments import assign, read_assignments
from pipelines.settings.options import Leaf

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

ASSIGNED = "assigned"  # the parameter of a command that has what `--set` gives, by the settings' names
OTHERS = "others"  # the heading of settings that are about nothing in particular; the last one
_ALL = "assay.help_all"
_FORMS: Mapping[Any, str] = {int: "INTEGER", float: "NUMBER", tuple: "[A, B]"}


class Option(click.Option):
    """An option whose help lists the names that it takes, which are imported only when help is shown."""

    def get_help_record(self, ctx: click.Context) -> tuple[str, str] | None:
        record = super().get_help_record(ctx)
        return record and (record[0], record[1] + _listed(ctx.info_name, self.name))


class OneValue(Option):
    """An option that takes one value. Given twice it is an error, where click would silently take the last."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        # With `multiple`, click keeps all values that are given, and `process_value` sees that there are several.
        super().__init__(*arguments, **{**options, "multiple": True})

    def process_value(self, ctx: click.Context, value: Any) -> Any:
        values = super().process_value(ctx, value)
        if values and len(values) > 1:
            raise click.UsageError(f"{self.opts[0]} takes one value, and it is given {' and '.join(map(repr, values))}", ctx)
        return values[0] if values else None

    def value_is_missing(self, value: Any) -> bool:
        # What is missing is told with all other mistakes, when the settings are built.
        return False


class AssignedSettings(click.Option):
    """`--set section.name=value`, which may be given for any of a command's settings. --help-all lists those."""

    def __init__(self, *arguments: Any, settings: Sequence[Leaf], **options: Any) -> None:
        example = next(leaf.path for leaf in settings if not leaf.is_option)
        about = f"set what has no option of its own, by its name in a recipe, e.g. {example}=...; --help-all lists all"
        super().__init__(*arguments, **{**options, "multiple": True, "metavar": "NAME=VALUE", "help": about})
        self.settings = settings

    def process_value(self, ctx: click.Context, value: Any) -> dict[str, Any] | None:
        flat: dict[str, Any] = {}
        for leaf, keys, value_given in read_assignments(super().process_value(ctx, value), self.settings):
            flat = assign(None, flat, (leaf.name, *keys), value_given)
        return flat or None

    def shell_complete(self, ctx: click.Context, incomplete: str) -> "list[CompletionItem]":
        from click.shell_completion import CompletionItem

        paths = [f"{leaf.path}=" for leaf in self.settings if not leaf.is_option]
        return [CompletionItem(path) for path in paths if path.startswith(incomplete)]

    def sections(self) -> list[tuple[str, list[Leaf]]]:
        # `groupby` needs the settings of a section side by side; those without a section come last.
        settings = sorted((leaf for leaf in self.settings if not leaf.is_option), key=lambda leaf: not leaf.sections)
        return [(title, list(group)) for title, group in groupby(settings, _title)]


class Command(click.Command):
    """A command whose settings --help-all lists."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        if settable(self.params):
            # Eager: --help-all works although required options are missing, as --help does.
            about = "Show all settings, too, and exit."
            self.params.append(
                click.Option(["--help-all"], is_flag=True, is_eager=True, expose_value=False, callback=_show_all, help=about)
            )

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            way = _assignment(error.option_name, settable(self.params))
            if way is None:
                raise
            raise click.UsageError(f"{error.option_name} is no option, but a setting: {way}", ctx) from error
        except click.MissingParameter as error:
            words = [each.make_metavar(ctx) for each in self.params if isinstance(each, click.Argument)]
            if len(words) == 1 or error.param is None or error.param.nargs != -1:
                raise
            # click gives the only word to the last argument, and would say that the first one, which was given, is missing.
            raise click.UsageError(f"{' and '.join(words)} are both needed", ctx) from error

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        options = [parameter for parameter in self.get_params(ctx) if isinstance(parameter, click.Option)]
        # A stable sort: apart from what is required, options stay in the order of the settings.
        options.sort(key=lambda option: not option.required)
        with formatter.section("Options"):
            formatter.write_dl([record for option in options if (record := option.get_help_record(ctx))])
        if not ctx.meta.get(_ALL):
            return
        for parameter in self.params:
            for title, settings in parameter.sections() if isinstance(parameter, AssignedSettings) else ():
                with formatter.section(f"--set, {title}"):
                    formatter.write_dl([_setting_record(ctx, leaf) for leaf in settings])


def _assignment(option: str, settings: Sequence[Leaf]) -> str | None:
    name = option.removeprefix("--").replace("-", "_")
    paths = {leaf.name: leaf.path for leaf in settings if not leaf.is_option}
    if name in paths:
        return f"--set {paths[name]}=..."
    # --no-NAME is what people try for a setting that is on by default.
    path = paths.get(name.removeprefix("no_"))
    return None if path is None else f"--set {path}=false"


class CommandGroup(click.Group):
    """Commands, each with a whole sentence of what it does."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        self.write_commands(ctx, formatter, "Commands", self.list_commands(ctx))

    def write_commands(self, ctx: click.Context, formatter: click.HelpFormatter, title: str, names: Sequence[str]) -> None:
        commands = [(name, self.get_command(ctx, name)) for name in names]
        with formatter.section(title):
            # Whole sentences: click cuts them at 45 characters by itself.
            formatter.write_dl([(name, command.get_short_help_str(limit=1000)) for name, command in commands if command])


def settable(parameters: Iterable[click.Parameter]) -> list[Leaf]:
    """All settings that `--set` takes, of a command with these parameters."""
    return [leaf for parameter in parameters if isinstance(parameter, AssignedSettings) for leaf in parameter.settings]


def _title(leaf: Leaf) -> str:
    if not leaf.sections:
        return OTHERS
    # The first sentence of the settings' docstring, which the reference shows, too.
    about = (leaf.settings.__doc__ or "").split(". ")[0].rstrip(".")
    return f"{leaf.sections[-1]}: {about[:1].lower()}{about[1:]}"


def setting_form(leaf: Leaf) -> str:
    """How a setting is given after --set: `engine.max_in_flight=INTEGER`."""
    kind = plain_type(leaf.field.annotation)
    if typing.get_origin(kind) is dict:
        return f"{leaf.path}.NAME=VALUE"
    return f"{leaf.path}={'|'.join(leaf.choices) or _FORMS.get(typing.get_origin(kind) or kind, 'TEXT')}"


def shown_default(leaf: Leaf) -> str:
    """What a setting is unless it is set; empty if its description says what happens then."""
    if leaf.default in (None, "", (), {}):
        return ""
    return str(leaf.default).lower() if isinstance(leaf.default, bool) else str(leaf.default)


def _setting_record(ctx: click.Context, leaf: Leaf) -> tuple[str, str]:
    default = f"  [default: {shown_default(leaf)}]" if shown_default(leaf) else ""
    return setting_form(leaf), f"{leaf.about}{default}{_listed(ctx.info_name, leaf.name)}"


def _listed(command: str | None, name: str | None) -> str:
    return "".join(f"; {before} {', '.join(names)}" for before, names in listed_values(command, name))


def _show_all(context: click.Context, _: click.Parameter, is_given: bool) -> None:
    if is_given:
        context.meta[_ALL] = True
        click.echo(context.get_help(), color=context.color)
        context.exit()
