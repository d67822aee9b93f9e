"""`README.md` in an output folder: a dataset card, for `datasets.load_dataset(FOLDER)` and for people.

The front matter names the files of rows, since other files lie beside them. Rows in JSON Lines have their types there, too:
`datasets` takes these from the first rows that it reads, and stops at a value that was null until then.
"""

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import yaml

from actors.errors import OutputError
from actors.text.visible import code, line
from pipelines.data import storage
from pipelines.data.corpus.assay_folders import CARD
from pipelines.data.storage import error_text
from pipelines.folders.run_folder.manifest import Manifest, installed
from pipelines.folders.run_folder.member_runs import is_fake

MADE_UP = (
    "**The rewards are made up**, by `--engine fake`, which is for trying a pipeline out: they say nothing of the model."
)
_MARK = "<!-- Assay writes this file anew with the results beside it; without this line it leaves the file alone. -->"
# In place of a pattern of files: `datasets` says in its error that it is unable to find this.
_UNFINISHED = "rows of an unfinished result"
_DTYPES = {"double": "float64", "float": "float32", "halffloat": "float16"}


def write_scored_card(folder: str, command: str, manifest: Manifest) -> None:
    """Write the card of a scored corpus. Raises `OutputError`."""
    # Parts of other runs may lie beside those of this one: its name ends theirs.
    files = f"parts/*-{manifest.run}.parquet" if manifest.run else "parts/*.parquet"
    lines = [
        f"A scored corpus: a row for each response, with its reward by {code(str(manifest.identity.get('model')))}, its "
        "status, and the reason where there is no reward. `manifest.json` says exactly what was done.",
        *([MADE_UP] if is_fake(manifest) else []),
    ]
    write_card(folder, command, files, lines)


def write_card(folder: str, command: str, files: str, lines: Sequence[str], schema: pa.Schema | None = None) -> None:
    """Write or replace the card of what `command` wrote into a folder; `files` is the pattern of its files of rows.

    Leaves a `README.md` alone that isn't of Assay. Raises `OutputError`.
    """
    place = storage.folder(folder)
    try:
        if _is_strange(place):
            return
        place.replace(CARD, _card(command, files, lines, schema).encode())
    except OSError as error:
        raise OutputError(f"{folder} can't be written: {error_text(error)}") from error


def write_unfinished_card(folder: str, command: str) -> None:
    """Write the card of a result that isn't finished: it names no file, else `datasets` loads documents and notes as rows.

    Raises `OutputError`.
    """
    again = "It isn't finished, or its command is still running: run the same command again to finish it."
    write_card(folder, command, _UNFINISHED, [again])


def _is_strange(place: storage.Folder) -> bool:
    try:
        # A card of a person, or of the hub, is worth more than ours.
        return _MARK.encode() not in place.read(CARD)
    except FileNotFoundError:
        return False


def _card(command: str, files: str, lines: Sequence[str], schema: pa.Schema | None) -> str:
    front: dict[str, Any] = {"configs": [{"config_name": "default", "data_files": files}]}
    # An empty list would tell `datasets` that rows have no columns.
    if schema is not None and len(schema):
        front["dataset_info"] = {"features": features(schema)}
    version = installed("assay")
    paragraphs = [
        *map(line, lines),
        f"Written by `assay {command}`{f' of Assay {version}' if version else ''}; `recipe.yaml` has all its settings.",
        'To read it: `datasets.load_dataset("PATH OF THIS FOLDER", split="train")`.',
    ]
    text = "\n\n".join(paragraphs)
    return f"---\n{yaml.safe_dump(front, sort_keys=False)}---\n\n{_MARK}\n\n{text}\n"


def features(schema: pa.Schema) -> list[dict[str, Any]]:
    """The columns as `datasets` writes them in a card (`Features._to_yaml_list` of datasets 5).

    `datasets` has names of its own for floats, and writes what a list holds without the level `dtype` or `struct`.
    """
    return [{"name": field.name, **_feature(field.type)} for field in schema]


def _feature(kind: pa.DataType) -> dict[str, Any]:
    if pa.types.is_struct(kind):
        return {"struct": features(pa.schema(list(kind)))}
    if pa.types.is_list(kind):
        inner = _feature(kind.value_type)
        return {"list": next(iter(inner.values())) if inner.keys() & {"struct", "dtype"} else inner}
    return {"dtype": _DTYPES.get(str(kind), str(kind))}
