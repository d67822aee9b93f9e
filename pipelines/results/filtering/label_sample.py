"""Draws responses of a scored corpus to be labelled by people: one at random of each of equally large strata of the reward.

Each response with a reward has the same chance to be drawn, so that labels need no weights of their own, and all of them
together are spread over the rewards as the corpus is. What is shown leaves out rewards: they would lead who labels.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from actors.errors import OutputError, SourceError
from actors.text.readable import Readable
from pipelines.data import storage
from pipelines.data.storage import error_text
from pipelines.folders.run_folder.columns import RESPONSE, WITHIN_ROW
from pipelines.folders.run_folder.columns import ROW as ROW_COLUMN
from pipelines.folders.run_folder.json_lines import encode
from pipelines.folders.scored_corpus.scored_folder import OpenedCorpus, open_scored
from pipelines.results.filtering.cuts import draw_of_strata
from pipelines.results.filtering.filter_corpus import groups_of
from pipelines.results.filtering.filter_step import TIE, VALUE, FilterStep, ResponseEvaluator
from pipelines.results.filtering.labels import LABEL, NAME, ROW, WEIGHT
from pipelines.results.filtering.response_rows import ResponseRows
from pipelines.results.filtering.selection import PART, PLACE, PLACED_KEY, collect_keys
from pipelines.run.runtime.workers import workers
from pipelines.settings.filter_settings import ChoiceSettings, LabelSampleSettings

_LABEL_FIELDS = (ROW, NAME, WEIGHT, LABEL)  # own fields of these names, as a corpus with a prefix may have, stay out


@dataclass(frozen=True)
class DrawnLabels(Readable):
    """How many responses were drawn, of how many that have a reward; and of how many each of them stands."""

    drawn: int
    responses: int
    weight: float
    output: str


def draw_labels(settings: LabelSampleSettings) -> DrawnLabels:
    """Draw responses and write them with their prompts, to be labelled. The same seed draws the same ones.

    Raises a `UserError` if the corpus can't be read, has no rewards that can be compared, or the file is there already.
    """
    folder, _, name = storage.absolute(settings.output).rpartition("/")
    place = storage.folder(folder)
    if not name.endswith(".jsonl"):
        raise OutputError(f"{settings.output} must be named .jsonl: it will hold a line for each response")
    if name in place.names():
        raise OutputError(f"{settings.output} is there already, and may hold labels; give another name")
    corpus = open_scored(settings.scored, "label-sample")
    columns = corpus.manifest.columns
    if columns.within_row:
        raise SourceError(WITHIN_ROW)
    choice = ChoiceSettings(top_fraction=1)  # all that have a reward, with their keys
    step = FilterStep(corpus.responses, columns, ResponseEvaluator.of(choice, columns.prefix, columns.ours_first))
    groups = groups_of(corpus.entries)
    with workers(len(groups)) as pool, collect_keys(pool, PLACED_KEY, [(step, group) for group in groups]) as database:
        ((total,),) = database.execute("select count(*) from keys").fetchall()
        if not total:
            raise SourceError(f"{settings.scored} has no response with a reward: there is nothing to label")
        places = draw_of_strata(total, min(settings.n, total), np.random.default_rng(settings.seed))
        # Strata are neighbours by reward, of equal ones by the hash: so the sample is the same in any order of the parts.
        database.register("drawn", pa.table({"place_of_all": places}))
        chosen = database.execute(
            f"select {PART}, {PLACE} from (select {PART}, {PLACE}, row_number() over (order by {VALUE}, {TIE}) - 1 as "
            f"place_of_all from keys) join drawn using (place_of_all) order by {PART}, {PLACE}"
        ).fetchall()
    weight = total / len(chosen)  # of how many responses each stands: labels whose weights add up to fewer are refused
    try:
        with place.writing(name) as stream:
            for row in _rows(corpus, chosen):
                stream.write(encode({**row, WEIGHT: weight, LABEL: None}) + b"\n")
    except OSError as error:
        raise OutputError(f"{settings.output} can't be written: {error_text(error)}") from error
    return DrawnLabels(len(chosen), total, weight, settings.output)


def _rows(corpus: OpenedCorpus, chosen: list[tuple[int, int]]) -> Any:
    """Each chosen response, by its part and place: what it is called, its prompt and text, and the row's own fields.

    No reward and no score is among them: who labels would be led by it.
    """
    maker, columns = ResponseRows.of(corpus.manifest, fields=False), corpus.manifest.columns
    names = [columns.prefix + column for column in (ROW_COLUMN, RESPONSE)]
    reads = [column for column in columns.schema.names if column in {*maker.reads, *names}]
    places: dict[int, list[int]] = {}
    for number, place in chosen:
        places.setdefault(number, []).append(place)
    for number, (part, _) in enumerate(corpus.entries):
        if number in places:
            table = pa.concat_tables(corpus.responses.tables(part, reads)).take(places[number])
            ids = zip(*(table.column(column).to_pylist() for column in names), strict=True)
            for (row, name), fields in zip(ids, maker.rows(table, maker.read(table)), strict=True):
                yield {ROW: row, NAME: name, **{key: value for key, value in fields.items() if key not in _LABEL_FIELDS}}
