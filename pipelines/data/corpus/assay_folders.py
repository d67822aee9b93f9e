"""What a folder is, told by the document that a command left in it, and which files of it hold rows.

A scored corpus has `manifest.json`; a result of `filter`, `choose`, `pairs` or `export` has `filter.json`, `choose.json` ...
"""

import itertools
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from actors.errors import SourceError
from actors.text.counted import first_of
from pipelines.data import storage
from pipelines.data.storage import error_text

SCORED = "manifest.json"
CARD = "README.md"
# The folder in the result of a filter that says which responses it holds. Readers of folders pass over a leading `_`.
SELECTION = "_responses"
PUBLISHED_SUFFIX = "@as-published"  # of the folder's name of what an evaluation scored as authors did
# The number in the name of a file of rows: its place, or the name of the part that it was made of.
NUMBER = r"\d{5,}(?:to\d+)?(?:-\d+)*(?:-[0-9a-f]{16})?"

_VERSION = 1  # of the documents; one of another version is no result, so that no reader takes its fields for others
_MAX_NAMED, _MAX_LOOKED_INTO = 3, 100  # folders in a message, and folders whose manifest is read for it


@dataclass(frozen=True)
class OutputKind:
    """A command that fills a folder: its name in `NAME.json` and in messages, and the stems of its file names.

    `document` is the file by which such a folder is recognised; its key `mark` holds the version of the document.
    """

    name: str
    stems: tuple[str, ...]

    @property
    def document(self) -> str:
        return f"{self.name}.json"

    @property
    def mark(self) -> str:
        return f"assay_{self.name}"

    def number(self, name: str) -> str | None:
        """The number in the name of a file that the command wrote; None for any other file."""
        match = re.fullmatch(rf"(?:{'|'.join(self.stems)})-({NUMBER})\.(?:jsonl|parquet)", name)
        return match and match[1]

    def is_file(self, name: str) -> bool:
        return self.number(name) is not None

    def read(self, folder: str) -> dict[str, Any] | None:
        """The document in a folder; None if there is none, or it can't be read."""
        document = _json(folder, self.document)
        return document if document is not None and document.get(self.mark) == _VERSION else None

    def write(self, folder: str, document: dict[str, Any]) -> None:
        storage.folder(folder).replace(self.document, (json.dumps(document, indent=2) + "\n").encode())

    def marked(self, document: dict[str, Any]) -> dict[str, Any]:
        return {self.mark: _VERSION, **document}


FILTER = OutputKind("filter", ("kept", "rest"))
CHOSEN, PAIRS, EXPORTED = OutputKind("choose", ("chosen",)), OutputKind("pairs", ("pairs",)), OutputKind("export", ("rows",))
EVALUATED = OutputKind("evaluate", ("items",))
RESULTS = (FILTER, CHOSEN, PAIRS, EXPORTED, EVALUATED)
CERTIFIED = OutputKind("certificate", ())  # whose rows are changed ones and nobody's corpus


def rows_of_result(folder: str, files: list[str]) -> list[str] | None:
    """The files of rows among the `files` below a folder, if it is the result of a command; None for any other folder.

    Raises `SourceError` for a scored corpus, whose rows are responses, and for a result that is unfinished or has no rows.
    """
    names = {storage.below(path, folder): path for path in files}
    if SCORED in names and _is_scored(folder):
        raise SourceError(
            f"{folder} {describe(folder)}: its rows are responses with their scores. Give the corpus that it was made of, "
            "or the result of a `filter` of it"
        )
    for kind in RESULTS:
        if kind.document in names and (document := kind.read(folder)) is not None:
            if document.get("summary") is None:
                raise SourceError(f"{folder} {describe(folder)}; run the command that wrote it again to finish it")
            if document.get("raw_records"):  # read as Parquet, each row would have one column of bytes
                raise SourceError(
                    f"{folder} {describe(folder)} with --format parquet, which holds each row of JSON as bytes; filter "
                    "again with --format jsonl to go on with the rows"
                )
            if not (rows := [path for name, path in names.items() if kind.is_file(name)]):
                raise SourceError(f"{folder} {describe(folder)}, and no row came out of it")
            return rows
    return None


def results_below(folder: str, files: Sequence[str]) -> list[str]:
    """The topmost folders below one that a command filled, as the `files` below it show: none of them is its rows.

    Without this, `assay score data/` with the output `data/scored` would read its own parts at the second start.
    """
    kinds = (*RESULTS, CERTIFIED)
    names = {SCORED, *(kind.document for kind in kinds)}
    places = {
        path.rpartition("/")[0] for path in files if path.rpartition("/")[2] in names and "/" in storage.below(path, folder)
    }
    results = sorted(place for place in places if _is_scored(place) or any(kind.read(place) for kind in kinds))
    return [place for place in results if not any(place.startswith(f"{outer}/") for outer in results)]


def repeated_rows(folder: str) -> str:
    """A sentence for whoever reads the rows of a folder, if a filter wrote rows there several times; else empty.

    Each such row has all of its responses, so that they would be scored as often, those that weren't kept among them.
    """
    document = FILTER.read(folder) or {}
    summary, settings = document.get("summary") or {}, document.get("settings") or {}
    responses, rows = summary.get("kept", 0), summary.get("kept_rows", 0)
    once = document.get("holds") != "kept" or settings.get("rows", "rows") != "rows" or not settings.get("fields", True)
    if once or responses <= rows:
        return ""
    return (
        f"{folder} holds {rows:,} input rows as {responses:,} rows, each whole once for every response of it that `filter` "
        "kept: they are read as often. Filter with --rows responses for the kept responses alone, or with fields: false for "
        "each row once"
    )


def describe(path: str) -> str:
    """What is at a path, as a clause that begins with a verb: "isn't there", "is the result of `filter` of scored" ...

    Never raises for what it finds: it is the end of messages about something else.
    """
    folder = storage.folder(path)
    try:
        names = sorted(folder.names())
    except NotADirectoryError:
        return "is a file"
    except OSError as error:
        return f"can't be read: {error_text(error)}"
    if not names:
        return "is an empty folder" if storage.is_folder(path) else "isn't there"
    if _is_scored(path):
        return f"is {_scored_kind(path)}"
    if CERTIFIED.read(path) is not None:
        return "is a certificate"
    for kind in RESULTS:
        if (document := kind.read(path)) is not None:
            unfinished = "an unfinished" if document.get("summary") is None else "the"
            scored = document.get("settings", {}).get("scored")
            return f"is {unfinished} result of `{kind.name}` of {', '.join(scored) if isinstance(scored, list) else scored}"
    return _describe_other(path, names)


def _describe_other(path: str, names: list[str]) -> str:
    inner = (storage.folder(path).sub(inner).path for inner in names[:_MAX_LOOKED_INTO])
    if corpora := list(itertools.islice(filter(_is_scored, inner), _MAX_NAMED)):
        return f"isn't one itself, and holds {', '.join(corpora)}"
    outer, _, name = storage.absolute(path).rpartition("/")
    if outer and _is_scored(outer):
        return f"is the folder {name!r} inside {outer}, which is {_scored_kind(outer)}"
    return f"has no {SCORED}; it holds {first_of(names, _MAX_NAMED)}"


def _scored_kind(path: str) -> str:
    identity = (_json(path, SCORED) or {}).get("identity", {})
    if "members" in identity:
        return f"the scored corpus of {'a cascade' if 'cascade' in identity else 'an ensemble'}"
    return "a scored corpus" if "policy" not in identity else "a scored corpus of a policy's candidates"


def _is_scored(path: str) -> bool:
    document = _json(path, SCORED)
    return document is not None and "assay" in document and "identity" in document


def _json(folder: str, name: str) -> dict[str, Any] | None:
    try:
        document = json.loads(storage.folder(folder).read(name))
    except (OSError, ValueError):
        return None
    return document if isinstance(document, dict) else None
