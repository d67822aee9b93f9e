"""A policy's candidates: what the best of n would be worth, how many are distinct, how long they are and how they ended."""

from typing import Any

import numpy as np
from scipy.special import gammaln

from pipelines.folders.run_folder.columns import CANDIDATE_TOKENS, FINISH_REASON, PROMPT_HASH, REWARD
from pipelines.results.evaluation.statistics.votes import counted
from pipelines.results.html_report.responses import TEXT_MARK, Responses
from pipelines.results.html_report.sections.outputs import distribution

# Beyond, powers of two: the curve is flat there, and each n is a pass over all ranks.
_EVERY_N_UP_TO = 64


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

    It is over the prompts that have as many scored candidates as most have, or more; n goes up to that number, of many in
    powers of two. With k rewards in ascending order, the i-th is the best of n in C(i-1, n-1) of C(k, n) draws.
    """
    reward, prompt = responses.name(REWARD), responses.name(PROMPT_HASH)
    columns = responses.connection.sql(
        f"with ranked as (select {reward} as reward, row_number() over (partition by {prompt} order by {reward}) as i, "
        f"count(*) over (partition by {prompt}) as k from parts where {reward} is not null) "
        "select k, i, sum(reward) as total, count(*) as prompts from ranked group by all order by all"
    ).fetchnumpy()
    k, i, totals = (np.asarray(columns[name]) for name in ("k", "i", "total"))
    if not len(k):
        return None
    prompts = {int(of): int(count) for of, count in zip(k[i == 1], columns["prompts"][i == 1], strict=True)}
    # The most frequent number of scored candidates. A prompt with fewer has no best of so many, and would be missing from
    # the end of the curve alone, bending it.
    most = max(prompts, key=lambda of: (prompts[of], of))
    total = sum(count for of, count in prompts.items() if of >= most)
    k, i, totals = k[k >= most], i[k >= most], totals[k >= most]
    # Logarithms of the factorials: binomials of a thousand candidates are beyond what a float can hold.
    log = gammaln(np.arange(k.max() + 1) + 1)
    shown = range(1, most + 1) if most <= _EVERY_N_UP_TO else counted(most)
    means = []
    for n in shown:
        best = i >= n  # the i-th lowest is the best of n only if n - 1 are below it
        weights = n * np.exp(log[i[best] - 1] - log[i[best] - n] + log[k[best] - n] - log[k[best]])
        means.append(float((totals[best] * weights).sum() / total))
    return {"n": list(shown), "means": means, "prompts": total, "left_out": sum(prompts.values()) - total}
