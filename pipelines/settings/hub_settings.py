"""Settings of an upload to the Hugging Face Hub. Imports nothing heavy."""

import re
from typing import Annotated, Any

from pydantic import AfterValidator, Field

from actors.settings.base import OPTION, Settings

_PREFIX = "hf://datasets/"
# Letters, digits and ._- as on the Hub, which refuses some more by itself, such as two dashes in a row.
_NAME = r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?"
_REPOSITORY = rf"{_NAME}/{_NAME}"


def _check_name(hub: str | None) -> str | None:
    if hub is not None and not re.fullmatch(_REPOSITORY, hub):
        raise ValueError(f"{hub!r} isn't the name of a dataset on the Hub; it is ORG/NAME, e.g. my-team/best-answers")
    return hub


class UploadSettings(Settings):
    """All settings of `upload`."""

    folder: str
    """folder of a finished result of `filter`, `choose`, `pairs` or `export`"""
    hub: Annotated[str, AfterValidator(_check_name)]
    """dataset ORG/NAME on the Hugging Face Hub; it is created, as a private one, if it isn't there"""
    public: bool = Field(default=False, json_schema_extra=OPTION)
    """create a public dataset; without, nothing is uploaded to a dataset that is public"""


class HubSettings(Settings):
    """Where a finished result is uploaded. No part of what a result is: neither a job's document nor a recipe has it."""

    hub: Annotated[str | None, AfterValidator(_check_name)] = Field(default=None, json_schema_extra=OPTION, exclude=True)
    """dataset ORG/NAME on the Hugging Face Hub to which the finished result is uploaded, with a card; it is created, as a
    private one, if it isn't there. An output hf://datasets/ORG/NAME is the folder hf-ORG-NAME with --hub ORG/NAME"""
    public: bool = Field(default=False, exclude=True)
    """--hub: create a public dataset; without, nothing is uploaded to a dataset that is public"""

    @classmethod
    def expand(cls, values: Any) -> Any:
        # An output on the Hub is a folder here first, so that nobody there sees a result that isn't finished.
        full = super().expand(values)
        output = full.get("output") if isinstance(full, dict) else None
        if isinstance(output, str) and output.startswith(_PREFIX):
            repository = output.removeprefix(_PREFIX).rstrip("/")
            if full.get("hub") not in (None, repository):
                raise ValueError(f"output {output} and --hub {full['hub']} are two datasets; give a folder as output")
            full |= {"output": f"hf-{repository.replace('/', '-')}", "hub": repository}
        return full
