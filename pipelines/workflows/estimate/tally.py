"""Counts of prepared rows, as the run counts them: tokens, rejected responses, prompts to the engine.

All rejections happen while rows are rendered, and an accepted response counts the tokens of its prompts (`actors.scorers`).
So the counts of a reward head are exact before any engine has started. A judge may need retries, which aren't counted.
"""

import itertools
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from actors.contracts.judge import Judge
from actors.contracts.served import Served
from actors.records import Prompt, RenderedRequest
from actors.reward_model import RewardModel
from actors.scorers.head_scorer import group_by_prefix
from actors.scorers.judge_scorer import share
from actors.settings.replica import Pairs
from actors.verdicts.knockout import Pair, next_pairs
from pipelines.run.prepare.score_requests import PreparedRow

# `tokens` is the sum of `prompt_tokens` in the scored corpus, `read_tokens` the tokens of all forward passes (fewer, where
# one pass serves several prompts), and `prompts` the number of requests to an engine.
AMOUNTS = ("tokens", "rows", "responses", "read_tokens", "prompts")
COUNTS = {"rejected": "responses", "truncated": "responses"}  # counts that may be rare, each a part of an amount
QUANTITIES = (*AMOUNTS, *COUNTS)

Values = NDArray[np.float64]


@dataclass
class Tally:
    """Counts of some rows. `lengths` is a histogram: prompt tokens of a response -> responses."""

    tokens: int = 0
    rows: int = 0
    responses: int = 0
    read_tokens: int = 0
    prompts: int = 0
    rejected: int = 0
    truncated: int = 0
    longest: int = 0
    reasons: Counter[str] = field(default_factory=Counter)
    lengths: Counter[int] = field(default_factory=Counter)

    def add(self, rows: Sequence[PreparedRow | None], model: RewardModel) -> "Tally":
        """Count rows; None, a stretch of input in which no row starts, counts nothing."""
        for row in rows:
            if row is not None:
                self._add_row(row, model)
        return self

    def join(self, other: "Tally") -> "Tally":
        for name in QUANTITIES:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.longest = max(self.longest, other.longest)
        self.reasons.update(other.reasons)
        self.lengths.update(other.lengths)
        return self

    @property
    def values(self) -> Values:
        return np.array([getattr(self, name) for name in QUANTITIES], np.float64)

    def _add_row(self, row: PreparedRow, model: RewardModel) -> None:
        family = model.family
        self.rows += 1
        self.responses += len(row.names)
        self.rejected += len(row.rejected)
        self.reasons.update(response.reason.value for response in row.rejected)
        prompts_by_request = [
            _judge_prompts(request, family) if isinstance(family, Judge) else request.prompts for request in row.requests
        ]
        for request, prompts in zip(row.requests, prompts_by_request, strict=True):
            self._add_request(request, prompts, model)
        all_prompts = list(itertools.chain.from_iterable(prompts_by_request))
        # In one pass, prompts that are prefixes of each other are all read from the longest, the last of its group.
        passes = [group[-1] for group in group_by_prefix(all_prompts)] if model.one_pass else all_prompts
        self.prompts += sum(prompt.times for prompt in passes)
        self.read_tokens += sum(model.token_count(prompt) * prompt.times for prompt in passes)
        self.longest = max([self.longest, *map(model.token_count, all_prompts)])

    def _add_request(self, request: RenderedRequest, prompts: Sequence[Prompt], model: RewardModel) -> None:
        shares = isinstance(model.family, Judge | Served)
        for position, response in enumerate(request.responses):
            if response.reason is not None:
                self.rejected += 1
                self.reasons[response.reason.value] += 1
                continue
            about = [prompt for prompt in prompts if position in prompt.response_positions]
            # Responses that a judge is shown together share its prompt's tokens; a head reads a prompt for each of them.
            tokens = sum(
                share(model.token_count(prompt) * prompt.times, prompt, position) if shares else len(prompt.ids)
                for prompt in about
            )
            self.truncated += response.truncated
            self.tokens += tokens
            self.lengths[tokens] += 1


def _judge_prompts(request: RenderedRequest, judge: Judge) -> Sequence[Prompt]:
    """The prompts that a judge is sent. Of a knock-out, those of one that has no ties.

    A request holds the prompts of all pairs, and a knock-out (`Pairs.ACTIVE`) sends only the pairs that its rounds choose.
    """
    if judge.pairs is not Pairs.ACTIVE or not judge.together:
        return request.prompts
    by_pair: dict[Pair, list[Prompt]] = defaultdict(list)
    for prompt in request.prompts:
        if len(prompt.response_positions) != 2:
            return request.prompts
        first, second = sorted(prompt.response_positions)
        by_pair[first, second].append(prompt)
    players = sorted(set(itertools.chain.from_iterable(by_pair)))
    # Play the knock-out with a made-up result, as the real ones aren't known: the first of a pair always wins. Pairs without
    # a prompt count as ties, as in the run.
    shares = {pair: 0.5 for pair in itertools.combinations(players, 2) if pair not in by_pair}
    judge_prompts: list[Prompt] = []
    while pairs := next_pairs(players, shares):
        judge_prompts += itertools.chain.from_iterable(by_pair[pair] for pair in pairs)
        shares |= dict.fromkeys(pairs, 1.0)
    return judge_prompts
