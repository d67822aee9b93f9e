"""Do cascades and cuts by labels keep their bounds, and what do they save? Repetitions on made-up scores, and a real run.

Of the large judge's rewards the best two fifths are kept. The small judge agrees (its reward is the large one's with noise
of 0.3 of its spread), is noisy (2.0), or is an adversary (the large one's with the other sign). A repetition draws a
corpus, calibrates by a slice, and compares with what the large judge says of all.
"""

import json
import random
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import duckdb
import numpy as np

from pipelines.results.filtering.cuts import Mask, draw_of_strata, precision_cut, recall_cut
from pipelines.settings.run_settings import BoundSettings
from pipelines.workflows.cascades.bands import Allowed, calibrate

REPETITIONS = 200
ROWS = 50_000
SMALL_JUDGES = {"agreeing": (1.0, 0.3), "noisy": (1.0, 2.0), "adversarial": (-1.0, 0.3)}
"""The share of the large judge's reward in the small one's, and the noise beside it."""
LABELS = 400
BOUND = BoundSettings(where="reward >= 4")
_CUTS = np.arange(200) / 200


class Repetition(NamedTuple):
    """What a cascade came to: the shares that are wrong and lost, and that of the rows that the large judge scored."""

    error: float
    miss: float
    large: float


def main(arguments: Sequence[str]) -> None:
    """`cascade`, or `cascade REPETITIONS`."""
    repetitions = int(arguments[0]) if arguments else REPETITIONS
    print(f"{repetitions} repetitions of {ROWS:,} rows; error and miss of at most 0.05 with confidence 0.95")
    for name, judge in SMALL_JUDGES.items():
        results = [cascade_once(*judge, seed) for seed in range(repetitions)]
        held = sum(result.error <= BOUND.error and result.miss <= BOUND.miss for result in results)
        error, miss, large = np.mean(results, axis=0)
        print(f"{name}: held in {held / repetitions:.1%}; mean error {error:.3f}, miss {miss:.3f}, large judge {large:.1%}")
    for name, slope in (("steep", 8.0), ("flat", 2.0)):
        cuts = [label_once(slope, seed) for seed in range(repetitions)]
        for aim, place in (("precision", 0), ("recall", 1)):
            shares = [share for cut in cuts if (share := cut[place]) is not None]
            right = sum(share >= 0.9 for share in shares) + repetitions - len(shares)
            print(f"labels, {name}: {aim} 0.9 kept in {right / repetitions:.1%}; a cut in {len(shares) / repetitions:.1%}")
    for line in _run_models():
        print(line)


def cascade_once(share: float, noise: float, seed: int, rows: int = ROWS) -> Repetition:
    """A cascade of two judges on made-up scores, as `score_cascade` settles one."""
    draw = np.random.default_rng(seed)
    large = draw.normal(size=rows)
    wanted = large >= np.quantile(large, 0.6)
    small = share * large + noise * draw.normal(size=rows)
    allowed = Allowed.of(BOUND, 1)
    order = draw.permutation(rows)
    in_slice, checked = order[: allowed.sample], order[allowed.sample : allowed.sample * 3 // 2]
    band = calibrate(small[in_slice], wanted[in_slice], np.unique(np.quantile(small, _CUTS)), allowed)
    is_open = (small >= band.low) & (small < band.high)
    kept = np.where(is_open, wanted, small >= band.high)
    seen = is_open.copy()
    seen[in_slice] = seen[checked] = True
    return Repetition(
        float((kept & ~wanted).sum() / max(1, kept.sum())), float((wanted & ~kept).sum() / wanted.sum()), float(seen.mean())
    )


def label_once(slope: float, seed: int, rows: int = ROWS) -> tuple[float | None, float | None]:
    """The true precision of a cut for 0.9, and the recall of one for 0.9, by labels drawn as `label-sample` does."""
    draw = np.random.default_rng(seed)
    rewards = draw.normal(size=rows)
    is_true: Mask = draw.random(rows) < 1 / (1 + np.exp(-slope * rewards))
    drawn = np.argsort(rewards)[draw_of_strata(rows, LABELS, draw)]
    cuts = np.quantile(rewards, _CUTS)
    precise = precision_cut(rewards[drawn], is_true[drawn], cuts.tolist(), 0.9, 0.05)
    complete = recall_cut(rewards[drawn], is_true[drawn], cuts.tolist(), 0.9, 0.05)
    precision = None if precise is None else float(is_true[rewards >= precise].mean())
    recall = None if complete is None else float((is_true & (rewards >= complete)).sum() / is_true.sum())
    return precision, recall


def _run_models() -> Iterator[str]:
    """A cascade of two tiny models, against the last one's scores of all rows."""
    import assay  # starts what the repetitions above don't need

    with tempfile.TemporaryDirectory() as folder:
        corpus = Path(folder, "corpus.jsonl")
        corpus.write_text("".join(json.dumps(row) + "\n" for row in arithmetic_rows(6000)))
        models, where = ["tiny-scalar", "tiny-attributes"], "reward >= 7"
        done = assay.cascade(str(corpus), f"{folder}/cascade", models=models, where=where)
        assay.score(str(corpus), f"{folder}/large", model=models[-1])
        kept, wrong, wanted, lost = compare(Path(folder, "cascade"), Path(folder, "large"), where)
        scored = done.cascade["stages"][-1]["rows"] / done.cascade["rows"]
        check = done.cascade["check"]
        yield f"tiny models: error {wrong / max(1, kept):.4f}, miss {lost / max(1, wanted):.4f}, large judge {scored:.1%}"
        yield f"tiny models, by the second slice: {check}"


def arithmetic_rows(count: int) -> Iterator[dict[str, object]]:
    """Sums of numbers below ten with an answer, of which half are right."""
    draw = random.Random(0)
    for number in range(count):
        first, second = draw.randrange(10), draw.randrange(10)
        answer = first + second + (0 if draw.random() < 0.5 else draw.randrange(1, 9))
        turns = [{"role": "user", "content": f"What is {first} + {second}?"}, {"role": "assistant", "content": f"{answer}"}]
        yield {"messages": turns, "id": number}


def compare(cascade: Path, large: Path, where: str) -> tuple[int, int, int, int]:
    """Kept responses of a cascade, wrong ones among them, those that the large judge keeps, and lost ones among these."""
    query = f"""
        select count(*) filter (kept), count(*) filter (kept and not wanted), count(*) filter (wanted),
            count(*) filter (wanted and not kept)
        from '{cascade}/parts/*.parquet' join
            (select "row", response_name, coalesce({where}, false) as wanted from '{large}/parts/*.parquet')
            using ("row", response_name)
    """
    (counts,) = duckdb.connect().execute(query).fetchall()
    return counts
