"""What prepared rows come to, counted as the run counts them: tokens, rejected responses, prompts to the engine.

Everything that is rejected is rejected while it is rendered, and a response that a scorer takes counts the prompts about it
(`actors.scorers`): so this is exact for a reward head, before any engine has started. A judge may have to be asked again;
here nothing is.
"""

import itertools
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from actors.contracts.judge import Judge
from actors.records import Prompt, RenderedRequest
from actors.reward_model import RewardModel
from actors.scorers.judge_scorer import share
from actors.scorers.one_pass import group_by_prefix
from actors.settings.replica import Pairs
from actors.verdicts.knockout import Pair, next_pairs
from pipelines.estimate.intervals import Values
from pipelines.prepare.score_requests import PreparedRow

AMOUNTS = ("tokens", "rows", "responses", "read_tokens", "prompts")
"""`tokens` are those of `prompt_tokens` in the scored corpus, `read_tokens` those of all forward passes, and `prompts` how
many questions an engine is asked."""
COUNTS = {"rejected": "responses", "truncated": "responses"}
"""And what each of these is a part of."""


@dataclass
class Tally:
    """What some rows come to. `lengths` counts responses by their prompt tokens."""

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
        """Count rows in; None stands for a stretch without one."""
        for row in rows:
            if row is not None:
                self._add_row(row, model)
        return self

    def join(self, other: "Tally") -> "Tally":
        """Count in what another one has."""
        for name in (*AMOUNTS, *COUNTS):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.longest = max(self.longest, other.longest)
        self.reasons.update(other.reasons)
        self.lengths.update(other.lengths)
        return self

    @property
    def values(self) -> Values:
        """What is estimated, in the order of `AMOUNTS` and `COUNTS`."""
        return np.array([getattr(self, name) for name in (*AMOUNTS, *COUNTS)], np.float64)

    def _add_row(self, row: PreparedRow, model: RewardModel) -> None:
        family = model.family
        self.rows += 1
        self.responses += len(row.names)
        self.rejected += len(row.rejected)
        self.reasons.update(reason.value for reason in row.rejected.values())
        asked = [_asked(request, family) if isinstance(family, Judge) else request.prompts for request in row.requests]
        for request, prompts in zip(row.requests, asked, strict=True):
            self._add_request(request, prompts, isinstance(family, Judge))
        every = list(itertools.chain.from_iterable(asked))
        passes = [run[-1] for run in group_by_prefix(every)] if model.one_pass else every
        self.prompts += sum(prompt.times for prompt in passes)
        self.read_tokens += sum(len(prompt.ids) * prompt.times for prompt in passes)
        self.longest = max([self.longest, *(len(prompt.ids) for prompt in every)])

    def _add_request(self, request: RenderedRequest, prompts: Sequence[Prompt], judged: bool) -> None:
        for at, response in enumerate(request.responses):
            if response.reason is not None:
                self.rejected += 1
                self.reasons[response.reason.value] += 1
                continue
            about = [prompt for prompt in prompts if at in prompt.judges]
            # Responses that a judge is shown together share its prompt's tokens; a head reads a prompt for each of them.
            tokens = sum(share(len(one.ids) * one.times, one, at) if judged else len(one.ids) for one in about)
            self.truncated += response.truncated
            self.tokens += tokens
            self.lengths[tokens] += 1


def _asked(request: RenderedRequest, judge: Judge) -> Sequence[Prompt]:
    """The prompts that are put to a judge: of a knock-out, as many as if every comparison were won."""
    if judge.asks.pairs is not Pairs.ACTIVE or not judge.together:
        return request.prompts
    by_pair: dict[Pair, list[Prompt]] = defaultdict(list)
    for prompt in request.prompts:
        if len(prompt.judges) != 2:
            return request.prompts
        one, other = sorted(prompt.judges)
        by_pair[one, other].append(prompt)
    players = sorted(set(itertools.chain.from_iterable(by_pair)))
    shares = {pair: 0.5 for pair in itertools.combinations(players, 2) if pair not in by_pair}
    asked: list[Prompt] = []
    while pairs := next_pairs(players, shares):
        asked += itertools.chain.from_iterable(by_pair[pair] for pair in pairs)
        shares |= dict.fromkeys(pairs, 1.0)
    return asked
