"""Finds the files of a corpus: those behind paths, patterns and folders, and what is left out beside them."""

import bisect
import itertools
import time
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import pyarrow as pa

from actors.errors import SourceError
from actors.text.counted import first_of
from pipelines.data import storage
from pipelines.data.corpus.assay_folders import describe, results_below, rows_of_result
from pipelines.data.corpus.beginnings import Layout
from pipelines.data.corpus.corpus_files import (
    InputFile,
    Inspected,
    inspect,
    inspect_all,
    is_utf8,
    kind_of,
    readable_suffixes,
    unread,
)
from pipelines.data.storage import FileStatus, error_text

_COMPARED_FILES = 10  # with whose rows a document of a folder is compared
_NOTE_EVERY_S = 10.0  # while files are opened, which takes minutes of a million
_MAX_NAMED = 20  # file names in a message; a folder may hold thousands


class Corpus(NamedTuple):
    """The files of a corpus, and the paths beside them that are not read.

    `left_out` holds files in input folders without a known suffix, and folders that a pattern matches and of which no file
    is read: a pattern selects files, and its folders are not entered.
    """

    files: list[InputFile]
    left_out: list[str]
    schemas: Mapping[str, pa.Schema] = MappingProxyType({})  # of Parquet files that were opened; equal ones are one object


class _Expansion(NamedTuple):
    """What one input expands to: files to read, files of a folder that are left out, folders that a pattern matches."""

    files: list[str]
    left_out: Sequence[str] = ()
    folders: Sequence[str] = ()
    is_folder: bool = False
    statuses: Mapping[str, FileStatus] = MappingProxyType({})  # a store's listing, which spares a request for each file


def find_corpus(
    inputs: Sequence[str],
    first_index: int = 0,
    earlier: Mapping[str, InputFile] = MappingProxyType({}),
    notify: Callable[[str], None] = lambda text: None,
) -> Corpus:
    """The files behind paths, globs and folders, sorted by path.

    Raises `SourceError` for an input that matches nothing, and one for all files that can't be read, or whose paths aren't
    UTF-8: the parts of a run, which name each row by its file, hold no others.

    Files of a folder whose names begin with `.` or `_`, such as `_SUCCESS`, are skipped and not reported. `earlier` are the
    files of an earlier session by path: one that has the same tag in its store isn't opened again. `notify` receives a
    message every 10 s.
    """
    expanded = [_expand(text) for text in inputs]
    statuses = {path: status for expansion in expanded for path, status in expansion.statuses.items()}
    paths = sorted(_unique_paths([expansion.files for expansion in expanded]))
    # Each row is named by its file, and a part can't hold another name.
    unnamable = (path for path in paths if not is_utf8(path))
    text = "the path {!a} isn't valid UTF-8, as the names of rows must be; rename it"
    _raise_problems([SourceError(text.format(path)) for path in unnamable])
    unread_files = {path for expansion in expanded for path in expansion.left_out} - set(paths)
    left_out = sorted(unread_files | set(_unread_folders(expanded, paths)))
    inspected: list[Inspected] = []
    schemas: dict[str, pa.Schema] = {}
    distinct: dict[Any, Any] = {}  # a million files have a few sets of columns
    next_note = time.monotonic() + _NOTE_EVERY_S
    problems: dict[str, SourceError] = {}
    for path, item in zip(paths, inspect_all(paths, statuses, earlier), strict=True):
        if isinstance(item, SourceError):
            problems[path] = item
            continue
        inspected.append(item._replace(beginning=distinct.setdefault(item.beginning, item.beginning)))
        if item.schema is not None:
            schemas[path] = distinct.setdefault(item.schema, item.schema)
        if time.monotonic() > next_note:
            notify(f"looked at {len(inspected):,} of {len(paths):,} files")
            next_note = time.monotonic() + _NOTE_EVERY_S
    # `datasets.save_to_disk` writes Arrow's stream format. Without an error its documents alone would be the corpus.
    arrow = next((path for path in left_out if path.endswith(".arrow")), None)
    if arrow is not None and all(item.beginning is not None and item.beginning.is_single for item in inspected):
        raise unread(arrow)
    documents = _documents(inspected, expanded, earlier)
    for file, _, beginning in inspected:
        if beginning is not None and beginning.layout is Layout.OTHER and file.path not in documents:
            problems[file.path] = SourceError(f"{file.path} {beginning.problem}; or leave it out")
    _raise_problems([problems[path] for path in sorted(problems)])
    with_rows = [item.file for item in inspected if item.file.path not in documents]
    named = zip(with_rows, _names([file.path for file in with_rows]), strict=True)
    files = [replace(file, index=index, name=name) for index, (file, name) in enumerate(named, first_index)]
    return Corpus(files, sorted([*left_out, *documents.values()]), schemas)


def _documents(inspected: Sequence[Inspected], expanded: Sequence[_Expansion], earlier: Container[str]) -> dict[str, str]:
    """The files of folders that hold a document and no rows, by path, each as it is named where it is left out.

    Such a file is a single object, and most of its fields aren't those of the rows in the first other files.
    """
    singles = {
        item.file.path: item.beginning
        for item in inspected
        if item.beginning is not None and item.beginning.is_single and item.file.path not in earlier
    }
    compared = list(itertools.islice((item for item in inspected if item.file.path not in singles), _COMPARED_FILES))
    if not singles or not compared:
        return {}
    # A store's listing tells all of some files, or an earlier session does: these haven't been opened.
    opened = (item if item.keys else inspect(item.file.path) for item in compared)
    known_keys = [set(item.keys) for item in opened if item.keys]
    in_folders = {path for expansion in expanded if expansion.is_folder for path in expansion.files}
    return {
        path: f"{path} ({single.problem.partition(':')[0].removeprefix('is ')})"
        for path, single in singles.items()
        if path in in_folders
        and known_keys
        and not any(2 * len(keys.intersection(single.keys)) > len(single.keys) for keys in known_keys)
    }


def _expand(text: str) -> _Expansion:
    try:
        matches = storage.find(text)
    except OSError as error:
        # A folder that can't be listed must not count as an empty one.
        raise SourceError(f"{text} can't be read: {error_text(error)}") from error
    if matches is None:
        raise SourceError(f"no file, folder or pattern match for {text}")
    paths = [file.path for file in matches.files]
    # Without a tag a listing may leave out the time of writing, too, by which the file will be compared.
    statuses = {file.path: file for file in matches.files if file.tag is not None}
    if matches.folders is not None:
        shown_folders = [
            folder for folder in matches.folders if not _is_hidden(Path(folder).name) or _is_hidden(Path(text).name)
        ]
        return _Expansion(paths, folders=shown_folders, statuses=statuses)
    if paths == [storage.absolute(text)]:  # a file, which is read even if its name begins with `_` or has wildcards
        return _Expansion(paths, statuses=statuses)
    # Beside its rows a result has documents, and the responses that a filter kept: no corpus of anybody's.
    if (rows := rows_of_result(text, paths)) is not None:
        return _Expansion(rows, statuses=statuses)
    outputs = results_below(text, paths)
    shown = [
        path
        for path in paths
        if not _is_hidden(storage.below(path, text)) and not any(path.startswith(f"{output}/") for output in outputs)
    ]
    readable = [path for path in shown if kind_of(path)]
    left_out = [f"{output} ({describe(output).removeprefix('is ')})" for output in outputs]
    left_out += [path for path in shown if not kind_of(path)]
    if not readable:
        held = f"; it holds {first_of(left_out, _MAX_NAMED)}" if left_out else ""
        raise SourceError(f"the folder {text} holds no corpus file{held}. Assay reads {readable_suffixes()}")
    return _Expansion(readable, left_out, is_folder=True, statuses=statuses)


def _names(paths: Sequence[str]) -> list[str]:
    # The paths relative to the deepest folder that all of them are in.
    folders = [path.split("/")[:-1] for path in paths]
    common = sum(1 for _ in itertools.takewhile(lambda level: len(set(level)) == 1, zip(*folders, strict=False)))
    return ["/".join(path.split("/")[common:]) for path in paths]


def _is_hidden(relative: str) -> bool:
    return any(piece.startswith((".", "_")) for piece in Path(relative).parts)


def _unique_paths(inputs: Sequence[Sequence[str]]) -> set[str]:
    """The paths of several inputs, without a file that a second input reaches again through a symbolic link."""
    first_seen: dict[str, tuple[int, str]] = {}
    unique = set()
    for number, paths in enumerate(inputs):
        for path in paths:
            first, earlier = first_seen.setdefault(storage.real(path), (number, path))
            if first == number or earlier == path:  # within one input both are kept: two links in one folder are two files
                unique.add(path)
    return unique


def _unread_folders(expanded: Sequence[_Expansion], paths: Sequence[str]) -> Iterable[str]:
    """The topmost folders that patterns match, and below which no input reads any of the `paths`, which are sorted."""
    named = "\0"
    # Sorted with a trailing slash, so that what is below a folder follows it directly. Without the slash `a-b` would come
    # between `a` and `a/b`, because "-" sorts before "/".
    for folder in sorted({f"{folder.rstrip('/')}/" for expansion in expanded for folder in expansion.folders}):
        first = bisect.bisect_left(paths, folder)
        is_read = any(path.startswith(folder) for path in paths[first : first + 1])
        if not is_read and not folder.startswith(named):
            named = folder
            yield folder.removesuffix("/")


def _raise_problems(problems: Sequence[SourceError]) -> None:
    # Raise a single error for all files that can't be read, if there are any. The first 20 are named.
    if len(problems) == 1:
        raise problems[0]
    if problems:
        texts = [f"{len(problems):,} input files can't be read:", *map(str, problems[:_MAX_NAMED])]
        if len(problems) > _MAX_NAMED:
            texts.append(f"and {len(problems) - _MAX_NAMED:,} more")
        raise SourceError("\n  ".join(texts)) from problems[0]


def left_out_message(paths: Sequence[str]) -> str:
    """The message about files that are left out of a corpus; at most 20 are named."""
    return (
        f"Left out, as Assay reads rows in {readable_suffixes()} of a folder, and of what a pattern matches no folder: "
        f"{first_of(paths, _MAX_NAMED)}"
    )
