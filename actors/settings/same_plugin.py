"""Where an extension is looked up by whoever goes on with a run: a worker, another command, a later day."""

import platform
from typing import TypeVar

from actors.errors import SettingsError
from actors.extensions import Extensions

Extension = TypeVar("Extension")


def find(extensions: Extensions[Extension], name: str, plugin: str | None) -> Extension:
    """What a name stands for, as where a run began: there `plugin_of` said `plugin`.

    Raises `SettingsError` if here it is of another plug-in or version, as its numbers might be others, or unknown.
    """
    present = extensions.plugin_of(name)
    if name in extensions and present == plugin:
        return extensions[name]
    here = f"of {present or 'Assay itself'}" if name in extensions else "not installed"
    raise SettingsError(
        f"{name} is of {plugin or 'Assay itself'} where the run began, and {here} on {platform.node()}: "
        f"install {plugin or 'the same version of Assay'} on every node, and where results are read"
    )
