"""How the rewards of a scored corpus go with its own labels: of a row's `chosen` and `rejected`, which one is higher."""

from typing import Any

import duckdb

from pipelines.candidates import SAME_REWARD
from pipelines.columns import RESPONSE, REWARD, ROW, Columns

_QUANTILES = (0.0, 0.05, 0.25, 0.5, 0.75, 0.95, 1.0)


def label_agreement(connection: duckdb.DuckDBPyConnection, columns: Columns, quantile: str) -> dict[str, Any]:
    """Counts of the rows whose `chosen` and `rejected` both have a reward, and quantiles of the margin by label.

    That is the reward of the chosen response less that of the rejected one, below 0 where they disagree; `quantile` is the
    function of DuckDB's that finds them. Rewards that differ by no more than `SAME_REWARD` are equal. Empty if there are no
    such rows.
    """
    row, name, reward = (f'"{columns.prefix}{column}"' for column in (ROW, RESPONSE, REWARD))
    if not connection.execute(f"select exists(select 1 from parts where {name} = 'chosen')").fetchall()[0][0]:
        return {}
    (found,) = connection.execute(
        f"""
        with margins as (
            select any_value({reward}) filter ({name} = 'chosen')
                - any_value({reward}) filter ({name} = 'rejected') as margin
            from parts where {name} in ('chosen', 'rejected') and {reward} is not null
            group by {row} having margin is not null
        )
        select count(*), count_if(margin > {SAME_REWARD}), count_if(margin < -{SAME_REWARD}),
            count_if(abs(margin) <= {SAME_REWARD}),
            {quantile}(margin, {list(_QUANTILES[1:-1])}), min(margin), max(margin) from margins
        """
    ).fetchall()
    pairs, agree, disagree, equal, inner, low, high = found
    if not pairs:
        return {}
    return {"pairs": pairs, "agree": agree, "disagree": disagree, "equal": equal, "margin": [low, *inner, high]}
