"""The groups of a column of the input: how many responses each has, and their rewards."""

from collections.abc import Sequence
from typing import Any

from pipelines.folders.run_folder.columns import REWARD
from pipelines.results.html_report.group_columns import group_name
from pipelines.results.html_report.responses import Responses
from pipelines.results.html_report.shown_text import show

_MOST, _CHARACTERS = 30, 80  # groups of a column, characters of a name


def groups(responses: Responses, by: Sequence[str]) -> list[dict[str, Any]]:
    """For each column its largest groups, over all responses; `others` counts the groups that aren't shown."""
    return [_groups_of(responses, column, group_name(position)) for position, column in enumerate(by)]


def _groups_of(responses: Responses, column: str, group: str) -> dict[str, Any]:
    reward = responses.name(REWARD)
    rows = responses.query(
        f"select {group}::varchar, count(*), count({reward}), avg({reward}), quantile_cont({reward}, [0.05, 0.5, 0.95]) "
        f"from parts group by 1 order by 2 desc, 1 limit {_MOST}"
    )
    # `count(distinct)` leaves null out, which is a group of its own here.
    ((count,),) = responses.query(f"select count(distinct {group}) + (count(*) > count({group}))::integer from parts")
    shown = [
        {
            "group": None if name is None else show(name, _CHARACTERS),
            "responses": total,
            "scored": scored,
            "mean": mean,
            "quantiles": quantiles or [None] * 3,
        }
        for name, total, scored, mean, quantiles in rows
    ]
    return {"column": column, "rows": shown, "others": max(0, count - len(shown))}
