"""A policy's candidates: what the best of n would be worth, how many are distinct, how long they are and how they ended."""

import math
from typing import Any

from pipelines.html_report.responses import TEXT_MARK, Responses
from pipelines.html_report.sections.outputs import distribution
from pipelines.run_folder.columns import CANDIDATE_TOKENS, FINISH_REASON, PROMPT_HASH, REWARD


def sampling(responses: Responses) -> dict[str, Any] | None:
    """Figures of all candidates; None if no policy drew them."""
    if not responses.columns.drawn:
        return None
    prompt, finish = responses.name(PROMPT_HASH), responses.name(FINISH_REASON)
    ((count, distinct),) = responses.query(
        f"select count({TEXT_MARK}), count(distinct ({prompt}, {TEXT_MARK})) filter ({TEXT_MARK} is not null) from parts"
    )
    return {
        "drawn": count,
        "distinct": distinct,
        "finishes": responses.query(
            f"select {finish}, count(*) from parts where {finish} is not null group by 1 order by 2 desc, 1"
        ),
        "lengths": distribution(responses, "candidate tokens", responses.name(CANDIDATE_TOKENS)),
        "best": best_of_n(responses),
    }


def best_of_n(responses: Responses) -> dict[str, Any] | None:
    """The mean best reward of n candidates drawn without replacement from those of a prompt, for each n; exact.

    It is over the prompts that have as many scored candidates as most have, or more; n goes up to that number. With k
    rewards in ascending order, the i-th is the best of n in C(i-1, n-1) of C(k, n) draws.
    """
    reward, prompt = responses.name(REWARD), responses.name(PROMPT_HASH)
    rows = responses.query(
        f"with ranked as (select {reward} as reward, row_number() over (partition by {prompt} order by {reward}) as i, "
        f"count(*) over (partition by {prompt}) as k from parts where {reward} is not null) "
        "select k, i, avg(reward), count(*) from ranked group by all order by all"
    )
    prompts = {k: count for k, _, _, count in rows}
    if not prompts:
        return None
    most = max(prompts, key=lambda k: (prompts[k], k))
    counted = {k: count for k, count in prompts.items() if k >= most}
    total = sum(counted.values())
    means = [
        sum(
            mean * count * math.comb(i - 1, n - 1) / math.comb(k, n) for k, i, mean, count in rows if k in counted and i >= n
        )
        / total
        for n in range(1, most + 1)
    ]
    return {"n": list(range(1, most + 1)), "means": means, "prompts": total, "left_out": sum(prompts.values()) - total}
