"""Compares the rewards of a scored corpus with its labels: whether `chosen` has a higher reward than `rejected`."""

from typing import Any

from pipelines.folders.run_folder.columns import PROMPT_HASH, RESPONSE, REWARD, ROW, Columns
from pipelines.folders.scored_corpus.candidates import SAME_REWARD

_QUANTILES = (0.0, 0.05, 0.25, 0.5, 0.75, 0.95, 1.0)


def label_agreement(connection: Any, columns: Columns, quantile: str) -> dict[str, Any]:
    """Counts of the pairs of `chosen` and `rejected` that both have a reward, and quantiles of the margin by label.

    `connection` executes SQL on a table `parts`, which is named once. The margin is the reward of the chosen
    response minus that of the rejected one, negative where they disagree; `quantile` names the DuckDB function for its
    quantiles. Both sides of a pair answer one prompt, so a row whose sides have different contexts has no pair. Rewards that
    differ by at most `SAME_REWARD` are equal. `left_out` counts the prompts with a side that isn't in a pair; a side that
    couldn't be read has no prompt hash and counts for the prompt of the other side. Without a pair the margin is null. The
    result is empty if no response is called `chosen`.
    """
    # A pair is grouped by row and prompt, since a row may hold several prompts with labels.
    row, prompt, name, reward = (f'"{columns.prefix}{column}"' for column in (ROW, PROMPT_HASH, RESPONSE, REWARD))
    (row_of_counts,) = connection.execute(
        f"""
        with sides as (
            select *, coalesce({prompt}, max({prompt}) over (partition by {row})) as answered
            from parts where {name} in ('chosen', 'rejected')
        ), margins as (
            select any_value({reward}) filter ({name} = 'chosen')
                - any_value({reward}) filter ({name} = 'rejected') as margin,
                bool_or({name} = 'chosen') as is_labelled
            from sides group by {row}, answered
        )
        select count(margin), count(*) - count(margin), count(*) filter (margin > {SAME_REWARD}),
            count(*) filter (margin < -{SAME_REWARD}), count(*) filter (abs(margin) <= {SAME_REWARD}),
            {quantile}(margin, {list(_QUANTILES[1:-1])}), min(margin), max(margin), bool_or(is_labelled)
        from margins
        """
    ).fetchall()
    pairs, left_out, agree, disagree, equal, inner, low, high, is_labelled = row_of_counts
    if not is_labelled:
        return {}
    margin = [low, *inner, high] if pairs else None
    return {
        "pairs": pairs, "agree": agree, "disagree": disagree, "equal": equal, "left_out": left_out, "margin": margin
    }  # fmt: skip
