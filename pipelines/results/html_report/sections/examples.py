"""Responses to read: the best, the worst, the most disputed, an ensemble's suspects, some at random, some of each reason."""

from collections.abc import Mapping, Sequence
from typing import Any

from pipelines.folders.run_folder.columns import REASON, RESPONSE, REWARD, ROW, SCORES, STATUS, STEPS, SUSPECT, VOTES
from pipelines.folders.run_folder.examples import Example
from pipelines.folders.scored_corpus.part_files import PART_AT
from pipelines.results.comparison.shown_responses import Place
from pipelines.results.html_report.group_columns import literal
from pipelines.results.html_report.responses import Responses
from pipelines.results.html_report.shown_text import show

_EACH, _OF_A_REASON, _MOST_REASONS = 5, 3, 12
# Outputs of an ensemble that say how far its models disagree, the best one first.
_SPREADS = ("z_disagreement", "disagreement", "z_spread", "spread")
_VALUES = 30  # votes or steps that an example shows

Groups = Mapping[str, Sequence[Place]]


def example_places(responses: Responses, noted: Sequence[Example] = ()) -> dict[str, list[Place]]:
    """The places of the examples by the heading that they stand under; the parts have `noted` details of some."""
    reward, reason = responses.name(REWARD), responses.name(REASON)
    scored = f"{reward} is not null"
    places = {
        "Best": responses.places(scored, f"{reward} desc", _EACH),
        "Worst": responses.places(scored, reward, _EACH),
    }
    if (spread := _spread(responses)) is not None:
        places["Most disputed"] = responses.places(f"{scored} and {spread} > 0", f"{spread} desc", _EACH)
    if SUSPECT in responses.columns.flags:
        suspect = responses.name(SUSPECT)
        places["Suspects of the ensemble"] = responses.places(f"{scored} and {suspect}", f"{reward} desc", _EACH)
    row, name = responses.name(ROW), responses.name(RESPONSE)
    pairs = [f"({literal(each.row)}, {literal(each.response)})" for each in noted if each.reward is not None]
    if pairs:
        places["With what the judge wrote"] = responses.places(f"({row}, {name}) in ({', '.join(pairs)})", PART_AT, _EACH)
    # The sample is in the order of its hashes, so its first ones are as random as it is.
    places["At random"] = responses.sampled[:_EACH]
    reasons = responses.query(f"select {reason} from parts where {reason} is not null group by 1 order by count(*) desc, 1")
    for (name,) in reasons[:_MOST_REASONS]:
        places[f"Without a reward: {name}"] = responses.places(f"{reason} = {literal(name)}", PART_AT, _OF_A_REASON)
    return {heading: group for heading, group in places.items() if group}


def examples(responses: Responses, groups: Groups, noted: Sequence[Example]) -> dict[str, list[dict[str, Any]]]:
    """What is shown of each example, with the details that the parts have `noted`."""
    rows = responses.rows({place for places in groups.values() for place in places})
    details = {(each.row, each.response): each.detail for each in noted}
    return {
        heading: [_example(responses, place, rows[place], details) for place in places] for heading, places in groups.items()
    }


def _spread(responses: Responses) -> str | None:
    columns = responses.columns
    if columns.votes:
        return f"list_aggregate({responses.name(VOTES)}, 'stddev_pop')"
    spreads = [f'{responses.name(SCORES)}."{name}"' for name in _SPREADS if name in columns.outputs]
    # An output that is 0 for all says nothing, as of an ensemble of two equal models.
    return next((sql for sql in spreads if responses.query(f"select bool_or({sql} > 0) from parts") == [(True,)]), None)


def _example(
    responses: Responses, place: Place, row: Mapping[str, Any], details: Mapping[tuple[str, str], str]
) -> dict[str, Any]:
    read, prefix = responses.texts[place], responses.columns.prefix
    scores = {name: value for name, value in (row[prefix + SCORES] or {}).items() if value is not None}
    lists = {name: row.get(prefix + name) for name in (VOTES, STEPS)}
    return {
        "row": show(row[prefix + ROW], 200),
        "response": show(row[prefix + RESPONSE], 200),
        "reward": row[prefix + REWARD],
        "outcome": f"{row[prefix + STATUS]}: {row[prefix + REASON]}" if row[prefix + REASON] else row[prefix + STATUS],
        "scores": scores if len(responses.columns.outputs) > 1 else {},
        "lists": {name: (values[:_VALUES], len(values)) for name, values in lists.items() if values},
        "detail": show(details.get((row[prefix + ROW], row[prefix + RESPONSE]), ""), 600),
        "turns": read.turns,
        "text": read.text,
    }
