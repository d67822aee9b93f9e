"""Two engines on one card: two small reward models side by side, and a policy beside its judge."""

from functools import partial
from pathlib import Path

from bench.card.hosts import Host, Load, Scored, made_up_rows, on_gpu, running, start_policy, start_scorer
from bench.card.rates import ROUNDS, SHORT_WORDS, cpus, utilisation
from bench.card.weights import write_weights, write_writer
from bench.speed import SIZES

LONG_WORDS = 800
"""Words of a response on average, with which a prompt has a thousand tokens."""


def measure_sharing(name: str, place: Path) -> None:
    """When do two engines on one card pay? Rows of 300 and 1,000 tokens, and candidates that are drawn and judged."""
    size = SIZES[name]
    folder = write_weights(place / "model", size)
    policy = write_writer(place / "policy", size, "policy")
    scorer = partial(Host, start=start_scorer, folder=folder, rows=partial(made_up_rows, size))
    with running(
        partial(scorer, "one"),
        partial(scorer, "two"),
        partial(Host, "policy", start_policy, folder=place / "policy", **policy),
    ) as hosts:
        for words, count in ((SHORT_WORDS, 4000), (LONG_WORDS, 1500)):
            _compare_halves(words, hosts["one"], hosts["two"], count if on_gpu() else 10)
        _compare_turns(hosts["policy"], hosts["one"], 1024 if on_gpu() else 8)


def _compare_halves(words: int, first_host: Host, second_host: Host, count: int) -> None:
    """All rows by one engine, and a half by each of two at the same time."""
    for number in range(ROUNDS + 1):
        first = 10_000 + 2 * number * count
        with utilisation() as busy_alone:
            alone = first_host.score(Load(first, count, words=words))
        with utilisation() as busy:
            starts = {first_host: first + count, second_host: first + count + count // 2}
            halves = _at_once({host: Load(start, count // 2, words=words) for host, start in starts.items()})
        slower = max(half.seconds for half in halves)
        if number:  # the first round warms both up
            print(
                f"rows of {alone.tokens / count:,.0f} tokens: one engine {count / alone.seconds:,.0f} rows/s "
                f"({cpus(alone)}; GPU busy {busy_alone[0]}); two {count / slower:,.0f}, "
                f"{alone.seconds / slower:.2f} times as many (GPU busy {busy[0]})",
                flush=True,
            )


def _compare_turns(policy: Host, judge: Host, count: int) -> None:
    """As many candidates drawn, then judged, and both at the same time, as a run does whose judge lags a block behind."""
    for number in range(ROUNDS + 1):
        first = 10_000 + 2 * number * count
        drawn, judged = policy.score(Load(first, count)), judge.score(Load(first, count, words=SHORT_WORDS))
        with utilisation() as busy:
            at_once = _at_once({policy: Load(first + count, count), judge: Load(first + count, count, words=SHORT_WORDS)})
        in_turns, together = drawn.seconds + judged.seconds, max(scored.seconds for scored in at_once)
        if number:
            print(
                f"{count} candidates: drawn in {drawn.seconds:.2f} s, then judged in {judged.seconds:.2f} s; "
                f"at the same time in {together:.2f} s, {in_turns / together:.2f} times as fast (GPU busy {busy[0]})",
                flush=True,
            )


def _at_once(loads: dict[Host, Load]) -> list[Scored]:
    for host, load in loads.items():
        host.send(load)
    return [host.receive() for host in loads]
