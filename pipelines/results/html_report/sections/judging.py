"""How a judge's verdicts hold together: votes, position bias, labels; and the steps of a process model."""

from typing import Any

from actors.verdicts.standing import BOTH_ORDERS
from pipelines.folders.run_folder.columns import STEPS, VOTES
from pipelines.folders.scored_corpus.label_agreement import label_agreement
from pipelines.folders.scored_corpus.summary import order_counts
from pipelines.results.html_report.responses import Responses

_MOST_STEPS = 30  # later ones are of few responses, and would end the chart in noise


def votes(responses: Responses) -> dict[str, Any] | None:
    """Of the responses with two votes or more: how many are unanimous, and the spread; None if the run has no votes."""
    if not responses.columns.votes:
        return None
    column = responses.name(VOTES)
    ((count, unanimous, mean, deviation),) = responses.query(
        # A single vote is unanimous by itself, so those are left out.
        f"select count(*), count(*) filter (list_min({column}) = list_max({column})), avg(len({column})), "
        f"avg(list_aggregate({column}, 'stddev_pop')) from parts where len({column}) > 1"
    )
    return {"count": count, "unanimous": unanimous, "mean_votes": mean, "deviation": deviation}


def position_bias(responses: Responses) -> dict[str, int] | None:
    """Pairs judged in both orders, those that the order alone decided, and those of them won by the first position."""
    if BOTH_ORDERS not in responses.columns.outputs:
        return None
    return order_counts(responses.connection, responses.columns)


def labels(responses: Responses) -> dict[str, Any] | None:
    """How far rewards agree with the corpus' labels; None if no response is labelled, or no pair has both rewards."""
    agreement = label_agreement(responses.connection, responses.columns, "quantile_cont")
    return agreement if agreement.get("pairs") else None


def steps(responses: Responses) -> dict[str, Any] | None:
    """Mean reward and number of responses by the place of the step; None if the model judges no steps."""
    if not responses.columns.steps:
        return None
    column = responses.name(STEPS)
    rows = responses.query(
        f"select place, avg(step), count(*) from (select unnest({column}) as step, "
        f"generate_subscripts({column}, 1) as place from parts) group by 1 order by 1 limit {_MOST_STEPS}"
    )
    places, means, counts = ([row[position] for row in rows] for position in range(3))
    return {"places": places, "means": means, "counts": counts} if rows else None
