"""What the responses to a prompt are compared by: the z-scores of each member of an ensemble, and their disagreement.

Only responses that every member scored count, so that all members are compared over the same ones. Of these, for a prompt:

    z   of a member's reward: (reward - mean) / standard deviation, of that member's rewards of the prompt's responses
    U   the disagreement on a response: the standard deviation of the members' z-scores of it
    Z   of U: (U - mean) / standard deviation, of U over the prompt's responses

Standard deviations are of samples (divided by n - 1). The test is that of Adv-RM (arXiv 2504.06141), whose baseline is
responses of a policy to the same prompt; how it normalises U isn't known to us, and this is our reading: Z of U.

A number that can't be had is null: z where a prompt has one response, or a member's rewards of all of them are equal; U
where a z is null. What differs by no more than `SAME_REWARD` is equal: the z-scores of two equal responses would be made
of the last bits of a batch.

DuckDB does it on disk, in one thread, so that the same input gives the same bits: memory holds neither the responses nor
the prompts.
"""

import itertools
import math
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

from actors.errors import RunStopped
from pipelines.scored_corpus.candidates import SAME_REWARD

_MEMORY = "2GB"
_INSERTED_ROWS = 2**17


@dataclass(frozen=True)
class MemberAgreement:
    """How far two members agree. `correlation` is Pearson's, of their z-scores; None if there are too few."""

    first: str
    second: str
    same_best: float | None
    """Share of the compared prompts in which one response is the best, or among the best, of both."""
    correlation: float | None


@dataclass(frozen=True)
class EnsembleAgreement:
    """How far members agree, by prompt.

    `prompts` have a response that every member scored; `compared` of them have z-scores of every member. A prompt with
    fewer than `needed` such responses can't have a suspect one, and `too_few` are those.
    """

    prompts: int
    compared: int
    needed: int
    too_few: int
    pairs: tuple[MemberAgreement, ...]

    def as_json(self) -> dict[str, Any]:
        """For the manifest and for `--json`."""
        return asdict(self)

    @classmethod
    def of_json(cls, document: dict[str, Any]) -> "EnsembleAgreement":
        """What `as_json` gave."""
        return cls(**(document | {"pairs": tuple(MemberAgreement(**pair) for pair in document["pairs"])}))


def responses_needed(z: float) -> int:
    """The fewest responses of which one can have a z-score above `z` (from 0): the greatest of n is (n - 1) / sqrt(n)."""
    root = (z + math.sqrt(z * z + 4)) / 2
    count = max(2, math.floor(root * root) - 1)
    while (count - 1) / math.sqrt(count) <= z:
        count += 1
    return count


class Baselines:
    """The rewards of all responses, in the order of the corpus; and once they are settled, what they are compared by."""

    def __init__(self, connection: duckdb.DuckDBPyConnection, names: tuple[str, ...]) -> None:
        self._connection = connection
        self._names = names
        self._members = range(len(names))
        self._waiting: list[pa.Table] = []
        self._count = 0
        self._begun = False

    def add(self, table: pa.Table) -> None:
        """Add the next responses: `prompt`, and each member's reward as `r0`, `r1` ..., all null unless all scored it.

        Other columns come back with `numbers`, and are the same in every table.
        """
        place = pa.array(range(self._count, self._count + table.num_rows), pa.int64())
        self._count += table.num_rows
        self._begun = True
        self._waiting.append(table.append_column("place", place))
        if sum(waiting.num_rows for waiting in self._waiting) >= _INSERTED_ROWS:
            self._insert()

    def _insert(self) -> None:
        if self._waiting:
            self._connection.register("waiting", pa.concat_tables(self._waiting))
            self._connection.execute("create table if not exists responses as from waiting limit 0")
            self._connection.execute("insert into responses from waiting")
            self._connection.unregister("waiting")
        self._waiting = []

    def settle(self, needed: int) -> EnsembleAgreement:
        """Compare them. `needed` is how many responses a prompt must have for a suspect one."""
        self._insert()
        if not self._begun:
            return EnsembleAgreement(0, 0, needed, 0, ())
        self._measure()
        prompts, few = self._row(f"select count(*), count(*) filter (n < {needed}) from baseline")
        same = ", ".join(f"bool_or(top{one} and top{other}) as same{one}_{other}" for one, other in self._pairs())
        self._connection.execute(
            "create table disagreement as select prompt, avg(u) as mean, stddev_samp(u) as deviation, "
            f"max(u) - min(u) as width, {same} from measured where u is not null group by prompt"
        )
        pairs = tuple(self._pair(one, other) for one, other in self._pairs())
        (compared,) = self._row("select count(*) from disagreement")
        self._connection.execute(
            "create table numbers as select responses.* exclude (prompt), "
            f"{self._each('z{}')}, u, case when width > {SAME_REWARD} then (u - mean) / deviation end as zu "
            "from responses left join measured using (place) "
            "left join disagreement on responses.prompt = disagreement.prompt order by place"
        )
        self._connection.execute("drop table responses; drop table measured")
        return EnsembleAgreement(prompts, compared, needed, few, pairs)

    def _measure(self) -> None:
        """The members' rewards of each response among those of its prompt: z, whether it is the best, and U."""
        self._connection.execute(
            "create table baseline as select prompt, count(*) as n, "
            + self._each(
                "avg(r{0}) as mean{0}, stddev_samp(r{0}) as deviation{0}, min(r{0}) as low{0}, max(r{0}) as high{0}"
            )
            + f" from responses where {self._scored} group by prompt"
        )
        mean = f"(({' + '.join(f'z{at}' for at in self._members)}) / {len(self._members)})"
        squares = " + ".join(f"(z{at} - {mean}) * (z{at} - {mean})" for at in self._members)
        z = self._each(
            f"case when high{{0}} - low{{0}} > {SAME_REWARD} then (r{{0}} - mean{{0}}) / deviation{{0}} end as z{{0}}, "
            f"high{{0}} - r{{0}} <= {SAME_REWARD} as top{{0}}"
        )
        self._connection.execute(
            f"create table measured as select *, sqrt(({squares}) / {len(self._members) - 1}) as u from "
            f"(select place, prompt, {z} from responses join baseline using (prompt) where {self._scored})"
        )

    def numbers(self, first: int, count: int) -> pa.Table:
        """What is known of `count` responses from `first` on: the columns added, `z0`, `z1` ..., `u`, and `zu`, its Z."""
        return self._connection.sql(
            f"from numbers where place >= {first} and place < {first + count} order by place"
        ).to_arrow_table()

    def _pair(self, one: int, other: int) -> MemberAgreement:
        (share,) = self._row(f"select avg(same{one}_{other}::int) from disagreement")
        (correlation,) = self._row(f"select corr(z{one}, z{other}) from measured where u is not null")
        known = correlation is not None and math.isfinite(correlation)
        return MemberAgreement(self._names[one], self._names[other], share, correlation if known else None)

    def _pairs(self) -> Iterator[tuple[int, int]]:
        return itertools.combinations(self._members, 2)

    @property
    def _scored(self) -> str:
        return "r0 is not null"

    def _each(self, text: str) -> str:
        return ", ".join(text.format(at) for at in self._members)

    def _row(self, query: str) -> tuple[Any, ...]:
        row = self._connection.execute(query).fetchone()
        assert row is not None  # an aggregate without groups always has one row
        return tuple(row)


@contextmanager
def baselines(names: tuple[str, ...]) -> Iterator[Baselines]:
    """Room for the rewards of these members, in a temporary folder (TMPDIR says where).

    Raises `RunStopped` if DuckDB can't go on, as when the disk is full.
    """
    with tempfile.TemporaryDirectory(prefix="assay-ensemble-") as folder:
        file = str(Path(folder, "responses.duckdb"))
        try:
            with duckdb.connect(
                file, config={"threads": 1, "memory_limit": _MEMORY, "temp_directory": folder}
            ) as connection:
                yield Baselines(connection, names)
        except duckdb.Error as error:
            raise RunStopped(f"the rewards can't be compared in {folder}: {error}") from error
