"""The command `assay serve`: runs an endpoint on this machine until it is stopped."""

from typing import Any

import click

from actors.errors import SettingsError
from actors.settings.endpoint import ModelEndpointSettings
from deploy.settings import AddressSettings, EndpointSettings, SingleModelSettings
from pipelines.cli.flags import build_from, command, given_options, option, settings_options, spell
from pipelines.settings.options import from_yaml, validate


@command()
@option("--model", help="reward model: a local folder, a hub id, or one of the built-in tiny-* models")
@option(
    "--file",
    "file",
    help="YAML file with `models` and all other settings, as under `args` in deploy/serve.yaml; needed for several models",
)
@settings_options(AddressSettings)
@settings_options(SingleModelSettings, "model", *ModelEndpointSettings.model_fields, names=("--name",))
def serve(file: str | None, **options: Any) -> None:
    """Serve one or several models over HTTP, on Ray Serve, until Ctrl-C. Prints its address, routes and a curl command."""
    stated = given_options(options)  # what was typed alone: defaults are those of the settings
    address = build_from(
        AddressSettings, {name: stated.pop(name) for name in AddressSettings.model_fields if name in stated}
    )
    settings = _from_file(file, stated) if file else _one_model(stated)

    from deploy.local import run  # Ray and Serve, two seconds: not for --help or a mistake

    run(settings, address, click.echo)


def _one_model(options: dict[str, Any]) -> EndpointSettings:
    if "model" not in options:
        raise SettingsError("say what to serve: --model MODEL, or --file with several models")
    return build_from(SingleModelSettings, options).endpoint


def _from_file(file: str, options: dict[str, Any]) -> EndpointSettings:
    if options:
        surplus = ", ".join(spell(name) for name in sorted(options))
        raise SettingsError(f"--file {file} sets everything but the address: leave out {surplus}")
    try:
        with open(file, encoding="utf-8") as opened:
            document = from_yaml(opened.read(), file)
    except OSError as error:
        raise SettingsError(f"--file {file} can't be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise SettingsError(f"--file {file} can't be read: it isn't UTF-8 text") from error
    try:
        return validate(EndpointSettings, document)
    except SettingsError as error:
        raise SettingsError(f"{file}: {error}") from None
