"""Labels by people, and the cut on the reward that they show to have a precision or a recall (`cuts`)."""

import hashlib
from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
from duckdb import DuckDBPyConnection
from pydantic import BaseModel, Field, ValidationError

from actors.errors import GateFailed, SourceError
from pipelines.data import storage
from pipelines.data.storage import error_text
from pipelines.results.filtering import cuts
from pipelines.results.filtering.filter_step import TIE, VALUE
from pipelines.settings.filter_settings import LabelledChoiceSettings

ROW, NAME, LABEL, WEIGHT = "row", "response_name", "label", "weight"  # the fields that `label-sample` writes
_SAME_WEIGHT = 1.001  # the largest ratio of two weights that are equal but for rounding in the file
_ASSUMES = "the labels are of responses drawn at random, each with the same chance, from those that are chosen among"


class _Label(BaseModel, strict=True):
    """A line of labels: which response it is of, whether that is good, and of how many responses it stands.

    `label` is null until somebody has labelled the response; a file with such lines is refused.
    """

    row: str
    response_name: str = "final"
    label: bool | None
    weight: float | None = Field(default=None, gt=0)


def labels_hash(path: str) -> str:
    """A hash of a file of labels, for a result to tell whether another file lies there now.

    Raises `SourceError` if it can't be read.
    """
    return f"sha256:{hashlib.sha256(_content(path)).hexdigest()}"


def find_labelled_cut(
    database: DuckDBPyConnection, path: str, aims: LabelledChoiceSettings
) -> tuple[float, Mapping[str, Any]]:
    """The cut on the values in the table `keys` that the labels in a file show to have what is aimed at; and what they show.

    With both aims, each has half of the risk. Raises `SourceError` for labels that can't be used, and `GateFailed` if no cut
    is shown to have it.
    """
    labels = _read_labels(path)
    ((candidates,),) = database.execute("select count(*) from keys").fetchall()
    # Of what isn't among the responses that labels were drawn from, as of what a filter left out, they say nothing.
    if 0 < (stood_for := round(sum(label.weight or 0.0 for label in labels))) < candidates:
        raise SourceError(
            f"{path}: its {len(labels):,} labels stand for {stood_for:,} responses by their weights, and {candidates:,} are "
            "chosen among: filter what the labels were drawn from, and leave no label out"
        )
    # Labels name a response, and keys hold the hash of its name alone: the same hash as `ResponseEvaluator.compile` takes.
    responses = pa.table({name: [getattr(label, name) for label in labels] for name in (ROW, NAME, LABEL)})
    database.register("given", responses)
    joined = database.execute(
        f"select {VALUE}, label from keys join (select *, md5_number_lower(\"row\" || ' ' || {NAME}) as {TIE} from given) "
        f"using ({TIE})"
    ).fetchnumpy()
    database.unregister("given")
    rewards, is_true = np.asarray(joined[VALUE], float), np.asarray(joined[LABEL], bool)
    if not rewards.size:
        raise SourceError(f"{path}: none of its {len(labels):,} responses is among those that are chosen among")
    cut = _find_cut(rewards, is_true, cuts.possible_cuts(database, "keys", VALUE), aims)
    is_kept = rewards >= cut  # of the labelled responses: what the summary says of the kept ones is of these
    kept, right, wanted = int(is_kept.sum()), int((is_kept & is_true).sum()), int(is_true.sum())
    return cut, {
        "labels": int(rewards.size), "unmatched": len(labels) - int(rewards.size), "kept": kept, "kept_true": right,
        "true": wanted, "precision": aims.precision, "recall": aims.recall, "confidence": aims.confidence,
        "assumes": _ASSUMES,
    }  # fmt: skip


def _find_cut(rewards: cuts.Numbers, is_true: cuts.Mask, tried: cuts.Numbers, aims: LabelledChoiceSettings) -> float:
    shares = {"precision": aims.precision, "recall": aims.recall}
    aimed = {name: share for name, share in shares.items() if share is not None}
    risk = (1 - aims.confidence) / len(aimed)  # Bonferroni: both hold together with the confidence
    finders = {"precision": cuts.precision_cut, "recall": cuts.recall_cut}
    cut_by_aim = {name: finders[name](rewards, is_true, tried.tolist(), share, risk) for name, share in aimed.items()}
    for name, share in aimed.items():
        if cut_by_aim[name] is None:
            starts = len(cuts.choose_starts(rewards, tried.tolist(), 1 - share, risk)) if name == "precision" else 1
            few = cuts.fewest_cases(1 - share, risk / max(1, starts))
            of = "labels among what is kept" if name == "precision" else "labels that are true"
            of += f", at {starts} starts with {risk / starts:.2g} of risk each," if starts > 1 else ""
            raise GateFailed(
                f"no cut is shown to have a {name} of {share:g} with confidence {aims.confidence:g}: of {len(is_true):,} "
                f"labels {int(is_true.sum()):,} are true, and the least number of {of} that could show it is {few:,}. "
                "Label more, or ask for less"
            )
    precise, complete = cut_by_aim.get("precision"), cut_by_aim.get("recall")
    if precise is not None and complete is not None and precise > complete:
        raise GateFailed(
            f"no cut is shown to have both: a precision of {aims.precision:g} from {precise:.6g} on, and a recall of "
            f"{aims.recall:g} up to {complete:.6g}"
        )
    # `precise` is the lowest cut that has the precision. Lower cuts lose less, so below `complete` it has the recall, too.
    cut = precise if precise is not None else complete
    assert cut is not None  # one of the two is aimed at
    return cut


def _read_labels(path: str) -> list[_Label]:
    """The labels of a file. Raises `SourceError` for a line that isn't one, comes again, or has another weight."""
    labels: dict[tuple[str, str], _Label] = {}
    # By hand, and not by DuckDB's reader: people have edited this file, and want to hear in which line.
    for number, line in enumerate(_content(path).splitlines(), start=1):
        if not line.strip():
            continue
        try:
            label = _Label.model_validate_json(line)
        except ValidationError as error:
            raise SourceError(
                f"{path}: line {number} must have `row`, a text, `label`, true or false, and maybe `response_name` and "
                "`weight`, above 0, as `assay label-sample` writes them"
            ) from error
        if labels.setdefault((label.row, label.response_name), label) is not label:
            raise SourceError(f"{path}: {label.row} {label.response_name} is labelled twice")
    if not labels:
        raise SourceError(f"{path} has no labels")
    if unlabelled := sum(label.label is None for label in labels.values()):
        raise SourceError(
            f"{path}: {unlabelled:,} responses aren't labelled yet (`label` is null). Label them: without those that are "
            "hard to label, the others are no random sample"
        )
    least, most = (choose(label.weight or 1.0 for label in labels.values()) for choose in (min, max))
    if most > _SAME_WEIGHT * least:
        raise SourceError(
            f"{path}: labels have weights from {least:g} to {most:g}, and no exact bound is known for labels "
            "of different weights. `assay label-sample` draws all with one; to label more of the best responses, "
            "filter these first and draw from the result"
        )
    return list(labels.values())


def _content(path: str) -> bytes:
    try:
        with storage.open_read(path) as stream:
            return stream.read()
    except OSError as error:
        raise SourceError(f"the labels {path} can't be read: {error_text(error)}") from error
