"""Data files of this package: each is read into a model, whose fields are all that it may hold."""

from importlib import resources
from typing import Self

import yaml
from pydantic import BaseModel, ConfigDict


class YamlData(BaseModel):
    """A part of a data file."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    @classmethod
    def read(cls, name: str) -> Self:
        """The data of a file of this package. Raises pydantic's `ValidationError` if it is damaged."""
        text = resources.files(__package__).joinpath(name).read_text(encoding="utf-8")
        return cls.model_validate(yaml.safe_load(text))


def plain_name(model: str) -> str:
    """The last part of a hub id or a path, in lower case and with one kind of punctuation (`3_3` is also written `3.3`)."""
    return model.rstrip("/").rpartition("/")[2].lower().replace("_", ".")
