"""The dataset card of a result on the Hub: what made the rows, so that whoever finds them knows what their rewards are.

It is made of the document beside the rows, and of the scored corpus' manifest where that can still be read. No path of this
machine and no address of a store goes into it: of a model in a folder, only the folder's name.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import yaml

from actors.errors import SettingsError, UserError
from actors.reward_model import families
from actors.text.model_names import short_name
from actors.text.visible import code, markdown, markdown_table
from pipelines.data import storage
from pipelines.data.corpus.assay_folders import CARD, CHOSEN, EXPORTED, FILTER, PAIRS, OutputKind, describe
from pipelines.folders.run_folder.dataset_card import MADE_UP
from pipelines.folders.run_folder.manifest import installed, read_manifest
from pipelines.folders.run_folder.member_runs import MEMBERS
from pipelines.folders.scored_corpus.summary import QUANTILES

DATA = "data"  # the folder of the files of rows in the dataset
# The entries of a judge's identity that the card shows: none of them names a folder, but for the adapter, which is cut.
_OF_JUDGE = ("revision", "weights", "adapter", "template", "dtype", "max_model_len", "reward_weights", "engine")


@dataclass(frozen=True)
class Result:
    """A finished result of a command: its folder, its kind, its document, and the names of its files of rows."""

    folder: str
    kind: OutputKind
    document: Mapping[str, Any]
    names: tuple[str, ...]


def read_result(folder: str) -> Result:
    """Read a result. Raises `SettingsError` if the folder isn't a finished one with rows."""
    for kind in (FILTER, CHOSEN, PAIRS, EXPORTED):  # each has a document of its own name in the folder
        document = kind.read(folder)
        if document is None or document.get("summary") is None:
            continue
        names = sorted(entry.name for entry in storage.folder(folder).entries() if kind.is_file(entry.name))
        if not names:
            raise SettingsError(f"{folder} has no rows, so there is nothing to upload")
        return Result(folder, kind, document, tuple(names))
    raise SettingsError(
        f"{folder} {describe(folder)}; what can be uploaded is a finished result of `filter`, `choose`, `pairs` or `export`"
    )


def hub_card(result: Result, repository: str) -> str:
    """The card of a result for a dataset ORG/NAME, in Markdown with its front matter."""
    source = result.document["source"]
    judges = _judges(source["identity"])
    made_with = [f"{name} {source['made_with'][name]}" for name in ("vllm", "ray") if source["made_with"].get(name)]
    blocks = [
        f"# {repository.partition('/')[2]}",
        f"Made by `assay {result.kind.name}` ({markdown(result.document['description'])}) of responses scored by "
        f"{', '.join(map(code, judges))}.",
        MADE_UP if any(judge.get("engine") == "fake" for judge in judges.values()) else "",
        *(_table(f"Scored by {markdown(name)}", _judge_rows(judge)) for name, judge in judges.items()),
        _table("Counts", _counts(result.document["summary"])),
        _quantiles(source),
        f'To read it: `datasets.load_dataset("{repository}", split="train")`.',
        f"Written by Assay {installed('assay') or ''}; scored with {', '.join(made_with)}." if made_with else "",
    ]
    front = yaml.safe_dump(_front(result), sort_keys=False)
    return f"---\n{front}---\n\n" + "\n\n".join(block for block in blocks if block) + "\n"


def _front(result: Result) -> dict[str, Any]:
    # The types are those of the card beside the rows; the files are elsewhere, under `data/`.
    suffix = result.names[0].rpartition(".")[2]
    files = {"configs": [{"config_name": "default", "data_files": f"{DATA}/*.{suffix}"}], "tags": ["assay", "reward-model"]}
    try:
        card = storage.folder(result.folder).read(CARD).decode()
    except FileNotFoundError:
        return files
    beside = yaml.safe_load(card.split("---\n")[1]) if card.startswith("---\n") else {}
    return files | ({"dataset_info": beside["dataset_info"]} if "dataset_info" in beside else {})


def _judges(identity: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    members = [member["identity"] for member in identity.get(MEMBERS, {}).values()]
    return {short_name(str(judge.get("model"))): judge for judge in members or [identity]}


def _judge_rows(judge: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    family = families().get(str(judge.get("family")))
    if family is not None:
        yield "family", f"{family.name}: {family.summary}"
    for name in _OF_JUDGE:
        if (value := judge.get(name)) is not None:
            yield name.replace("_", " "), short_name(value) if name == "adapter" else value
    if family is not None and (published := family.knows(str(judge.get("model")))):
        yield "licence of the model", published.licence


def _counts(summary: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, value in summary.items():
        if isinstance(value, int) and not isinstance(value, bool):  # `bool` is an `int`, and no count
            yield name.replace("_", " "), f"{value:,}"
        elif isinstance(value, Mapping) and all(isinstance(count, int) for count in value.values()):
            yield from ((f"{name.replace('_', ' ')}: {reason}", f"{count:,}") for reason, count in value.items())


def _quantiles(source: Mapping[str, Any]) -> str:
    """The quantiles of the whole scored corpus, if it is there and still that of the result."""
    try:
        manifest = read_manifest(source["folder"])
    except (UserError, OSError):
        return ""
    if manifest is None or manifest.fingerprint != source["fingerprint"] or not manifest.summary:
        return ""
    rows = ((name, *(f"{value:.4g}" for value in values)) for name, values in manifest.summary["quantiles"].items())
    return _table("Quantiles of the scored corpus", rows, ["output", *(f"{share:.0%}" for share in QUANTILES)])


def _table(title: str, rows: Iterable[tuple[Any, ...]], heading: Sequence[str] = ("", "")) -> str:
    cells = [[str(value) for value in row] for row in rows]
    return "\n".join([f"## {title}\n", *markdown_table(heading, cells)]) if cells else ""
