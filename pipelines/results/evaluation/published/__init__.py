"""What others published, as data: figures with source and convention, files by their SHA-256, and how authors ran models.

Each file of data is read into a model, whose fields are all that it may hold.
"""

from importlib import resources
from typing import Self

import yaml
from pydantic import BaseModel, ConfigDict


class YamlData(BaseModel):
    """A part of a data file, whose fields are all that it may hold.

    An unknown key is an error: a misspelled `max_length` would be read as one that isn't stated.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    @classmethod
    def read(cls, name: str) -> Self:
        text = resources.files(__name__).joinpath(name).read_text(encoding="utf-8")
        return cls.model_validate(yaml.safe_load(text))


def plain_name(model: str) -> str:
    """The last part of a hub id or a path, in lower case and with one kind of punctuation (`3_3` is also written `3.3`).

    Two models of one name by different owners are taken for one; the source stands beside the figures.
    """
    return model.rstrip("/").rpartition("/")[2].lower().replace("_", ".")
