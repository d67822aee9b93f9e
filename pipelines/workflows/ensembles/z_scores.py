"""Combines the members' rewards: z-scores among the responses to a prompt, the members' disagreement, and the reward.

Only responses that every member scored count, so that all members are compared over the same ones. For each prompt:

    z   of a member's reward: (reward - mean) / standard deviation, of that member's rewards of the prompt's responses
    U   the disagreement on a response: the standard deviation of the members' z-scores of it
    Z   of U: (U - mean) / standard deviation, of U over the prompt's responses

Standard deviations are of samples (divided by n - 1). The test is that of Adv-RM (arXiv 2504.06141), whose baseline is
responses of a policy to the same prompt. How the paper normalises U isn't known to us; Z of U is our
reading.

A response is suspect if its mean z and its Z are above thresholds: unusually good for the prompt, and disputed.

Undefined numbers are null: z if the prompt has one response, or the member's rewards of all its responses are equal; U if a
z is null. Rewards that differ by `SAME_REWARD` at most are equal: else z-scores of equal responses would amplify the
rounding errors of a batch to the size of real differences.

DuckDB computes in one thread, as the order of additions decides the last bits of a sum: equal input gives equal bits.
"""

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from duckdb import DuckDBPyConnection

from actors.records import Reason, Status
from pipelines.folders.scored_corpus.candidates import SAME_REWARD
from pipelines.folders.scored_corpus.databases import quoted
from pipelines.settings.run_settings import CombineSettings

_IS_SCORED = "r0 is not null"  # rewards are null for all members or for none
_DIGITS = 12  # decimals of a z-score


@dataclass(frozen=True)
class MemberAgreement:
    """Agreement of two members.

    `same_best` is the share of the compared prompts in which a response is the best, or among the best, for both.
    `correlation` is Pearson's, of their z-scores; None if it is undefined.
    """

    first: str
    second: str
    same_best: float | None
    correlation: float | None


@dataclass(frozen=True)
class EnsembleAgreement:
    """Agreement of all members, over prompts.

    `prompts` have a response that every member scored; `compared` of them have z-scores of every member. `too_few` counts
    the prompts with fewer than `needed` such responses, none of which can be suspect.
    """

    prompts: int
    compared: int
    needed: int
    too_few: int
    pairs: tuple[MemberAgreement, ...]

    @classmethod
    def of_json(cls, document: dict[str, Any]) -> "EnsembleAgreement":
        """The inverse of `asdict`."""
        return cls(**(document | {"pairs": tuple(MemberAgreement(**pair) for pair in document["pairs"])}))


def responses_needed(z: float) -> int:
    """The fewest responses of which one can have a z-score above `z` (from 0): the greatest of n is (n - 1) / sqrt(n)."""
    # For z = 2 these are 6: one of 6 can reach 5 / sqrt(6) = 2.04, one of 5 only 4 / sqrt(5) = 1.79, whatever its reward.
    # Solve (n - 1) / sqrt(n) = z for sqrt(n); begin one below, and let the loop decide, as rounding may be off by one.
    root = (z + math.sqrt(z * z + 4)) / 2
    count = max(2, math.floor(root * root) - 1)
    while (count - 1) / math.sqrt(count) <= z:
        count += 1
    return count


class Baselines:
    """The z-scores of all responses in the table `responses` of a database (`align`), in the order of the corpus.

    First `compute` them, then read `numbers`.
    """

    def __init__(self, connection: DuckDBPyConnection, names: tuple[str, ...]) -> None:
        self._connection = connection
        self._names = names
        self._members = range(len(names))

    def compute(self, combination: CombineSettings, fields: Sequence[str]) -> EnsembleAgreement:
        """Compute the combined results; `fields` are the names of the scores (`members.score_fields`)."""
        needed = responses_needed(combination.suspect_disagreement)
        self._measure()
        prompts, too_few = self._fetch_row(f"select count(*), count(*) filter (n < {needed}) from baseline")
        # same{i}_{j}: whether a response of the prompt is the best, or among the best, for both members i and j.
        same_best = ", ".join(f"bool_or(top{i} and top{j}) as same{i}_{j}" for i, j in self._pairs())
        self._connection.execute(
            "create table disagreement as select prompt, avg(u) as mean, stddev_samp(u) as deviation, "
            f"max(u) - min(u) as width, {same_best} from measured where u is not null group by prompt"
        )
        pairs = tuple(self._agreement(first, second) for first, second in self._pairs())
        (compared,) = self._fetch_row("select count(*) from disagreement")
        self._combine(combination, fields)
        self._connection.execute("drop table responses; drop table measured")
        return EnsembleAgreement(prompts, compared, needed, too_few, pairs)

    def _measure(self) -> None:
        """Create the tables `baseline`, by prompt, and `measured`, by response: z, whether it is the best (`top`), and U."""
        self._connection.execute(
            "create table baseline as select prompt, count(*) as n, "
            + self._for_each_member(
                "avg(r{0}) as mean{0}, stddev_samp(r{0}) as deviation{0}, min(r{0}) as low{0}, max(r{0}) as high{0}"
            )
            + f" from responses where {_IS_SCORED} group by prompt"
        )
        # The sample variance of z0, z1 ... within a row: SQL's aggregates work down columns only. It is null if a z is.
        mean = f"(({' + '.join(f'z{number}' for number in self._members)}) / {len(self._members)})"
        squares = " + ".join(f"(z{number} - {mean}) * (z{number} - {mean})" for number in self._members)
        # Compared by the width of the rewards, not by their deviation: that would need a bound for each number of responses.
        # Rounded: of two responses the z-scores are -0.7071 and 0.7071, and of two members that disagree they must cancel.
        z = self._for_each_member(
            f"case when high{{0}} - low{{0}} > {SAME_REWARD} "
            f"then round((r{{0}} - mean{{0}}) / deviation{{0}}, {_DIGITS}) end as z{{0}}, "
            f"high{{0}} - r{{0}} <= {SAME_REWARD} as top{{0}}"
        )
        self._connection.execute(
            f"create table measured as select *, sqrt(({squares}) / {len(self._members) - 1}) as u from "
            f"(select place, prompt, {z} from responses join baseline using (prompt) where {_IS_SCORED})"
        )

    def _combine(self, combination: CombineSettings, fields: Sequence[str]) -> None:
        rewards, z = ([f"{letter}{number}" for number in self._members] for letter in "rz")
        scores = dict(zip(fields, [*rewards, *_statistics(rewards), *z, *_statistics(z), "u", "zu"], strict=True))
        chosen = scores[combination.combine.value.replace("-", "_")]
        struct = ", ".join(f"{quoted(name)} := {number}" for name, number in scores.items())
        # Every member scored it, but there is no z-score: its prompt has no other response, or only equal ones.
        has_no_baseline = f"{_IS_SCORED} and {chosen} is null"
        is_suspect = (
            f"{scores['z_mean']} > {combination.suspect_reward}::double "
            f"and coalesce(zu > {combination.suspect_disagreement}::double, false)"
        )
        # Left joins: responses without a z-score, or not scored by all members, stay, with nulls.
        # Ordered by place, so that `numbers` reads a range of row groups instead of the whole table.
        self._connection.execute(
            f"create table numbers as select place, {chosen} as reward, "
            f"case when {chosen} is not null then struct_pack({struct}) end as scores, "
            f"case when {has_no_baseline} then '{Status.REJECTED}' else status end as status, "
            f"case when {has_no_baseline} then '{Reason.NO_BASELINE}' else reason end as reason, tokens, truncated, "
            f"case when {scores['z_mean']} is not null then {is_suspect} end as suspect from "
            f"(select responses.*, {', '.join(z)}, u, case when width > {SAME_REWARD} then (u - mean) / deviation end as zu "
            "from responses left join measured using (place) "
            "left join disagreement on responses.prompt = disagreement.prompt) order by place"
        )

    def _agreement(self, first: int, second: int) -> MemberAgreement:
        (share,) = self._fetch_row(f"select avg(same{first}_{second}::int) from disagreement")
        (correlation,) = self._fetch_row(f"select corr(z{first}, z{second}) from measured where u is not null")
        # NaN if one member's z-scores are all equal, or there are fewer than two of them; null without rows.
        is_defined = correlation is not None and math.isfinite(correlation)
        return MemberAgreement(self._names[first], self._names[second], share, correlation if is_defined else None)

    def _pairs(self) -> Iterator[tuple[int, int]]:
        return itertools.combinations(self._members, 2)

    def _for_each_member(self, text: str) -> str:
        """SQL columns for each member: `text` with the member's number in place of each `{}` or `{0}`."""
        return ", ".join(text.format(number) for number in self._members)

    def _fetch_row(self, query: str) -> tuple[Any, ...]:
        row = self._connection.execute(query).fetchone()
        assert row is not None  # an aggregate without groups always has one row
        return tuple(row)


def _statistics(columns: Sequence[str]) -> list[str]:
    """The mean, the least and the spread of columns in SQL; null if one of them is, which `least` alone would leave out."""
    mean, names = f"({' + '.join(columns)}) / {len(columns)}", ", ".join(columns)
    is_whole = f"case when {mean} is not null then"
    return [mean, f"{is_whole} least({names}) end", f"{is_whole} greatest({names}) - least({names}) end"]
