"""The cost of a plan's tokens: seconds, GPU-hours and money, by the speed of an engine.

The speed is given (`--tokens-per-s`), measured in an earlier run (`--like`), or expected of the card (`throughputs`).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from actors.capacity.cards import NO_GPU, Card, find_card
from actors.capacity.layout import Layout, Size, precision_of
from actors.capacity.throughputs import expected_speed, least_seconds
from actors.endpoint.account import BYTES_PER_TOKEN
from actors.endpoint.remote_model import RemoteModel
from actors.engine.protocol import Task
from actors.errors import SettingsError
from actors.reward_model import RewardModel
from actors.text.counted import number_of
from pipelines.folders.run_folder.columns import FROM_STORE
from pipelines.folders.run_folder.manifest import Manifest, differences, read_manifest
from pipelines.settings.estimate_settings import BillSettings, CardSettings
from pipelines.settings.run_settings import ReplicaSettings
from pipelines.workflows.estimate.intervals import Estimate

# Identity fields that two runs must share for the speed of one to hold for the other.
_SAME = ("model", "revision", "weights", "dtype", "judge", "turns")


@dataclass(frozen=True)
class CostBasis:
    """Model, card, layout and number of engines: what a run's speed depends on. No `layout` if the `size` isn't known."""

    model: RewardModel
    identity: Mapping[str, Any]
    card: CardSettings
    layout: Layout | None
    size: Size | None
    pool: ReplicaSettings

    @property
    def precision(self) -> str:
        """The precision of the weights, a key of `BYTES`: as asked for, as the checkpoint has it, or by the dtype."""
        return self.card.precision or (self.size and self.size.quantised) or precision_of(self.model.dtype)

    @property
    def gpu(self) -> Card | None:
        return None if self.card.gpu == NO_GPU else find_card(self.card.gpu)

    @property
    def engine_layout(self) -> Layout:
        """The layout of an engine; where the model's size isn't known, the one that the card's settings give."""
        return self.layout or Layout(self.card.tensor_parallel or 1, self.card.pipeline_parallel)

    @property
    def gpus(self) -> int:
        return 0 if self.gpu is None else self.engine_layout.gpus  # of an engine

    @property
    def verifies(self) -> bool:
        return self.model.task is Task.VERIFY  # code on CPUs: no model computes anything


class EngineSpeed(NamedTuple):
    """Tokens per second of one engine: prompt tokens `read`, and tokens `written` by a judge (None: included in `read`).

    With `passes`, `read` counts the tokens of forward passes (`read_tokens`), not `prompt_tokens`. `start_s` is how long an
    engine takes to start, in seconds. The true speed is expected between `low` and `high` times this one.
    """

    read: float
    written: float | None
    source: str
    passes: bool = False
    start_s: float | None = None
    low: float = 1.0
    high: float = 1.0


@dataclass(frozen=True)
class CostEstimate:
    """Time and cost of a run. None where no speed, no price or no size is known; on CPUs there are no GPU-hours.

    `least_s` is a lower bound: all tokens at the peak FLOP/s of the card.
    """

    gpus: int
    engines: int
    speed: EngineSpeed | None
    written: Estimate | None
    work_s: Estimate | None
    gpu_hours: Estimate | None
    cost: Estimate | None
    least_s: Estimate | None
    assumptions: tuple[str, ...]
    least_source: str | None = None

    def as_json(self) -> dict[str, Any]:
        speed = self.speed
        return {
            "gpus": self.gpus,
            "engines": self.engines,
            "speed": speed and {name: getattr(speed, name) for name in ("read", "written", "source", "low", "high")},
            "start_s": speed.start_s if speed else None,
            "written_tokens": _json(self.written),
            "work_s": _json(self.work_s),
            "gpu_hours": _json(self.gpu_hours),
            "cost": _json(self.cost),
            "least_s": _json(self.least_s),
            "least_source": self.least_source,
        }


def estimate_cost(tokens: Mapping[str, Estimate], basis: CostBasis, settings: BillSettings) -> CostEstimate:
    """The bill for these tokens. Raises `SettingsError` if `gpus` are too few for the engines, or `like` is unusable."""
    if basis.model.remote is not None:
        return _remote_cost(tokens, basis.model, basis.model.remote, settings)
    if basis.verifies:
        nothing = Estimate.exact(0)
        return CostEstimate(0, basis.pool.replicas or 1, None, None, None, nothing, nothing, None, ())
    if basis.gpu is None and (settings.gpus is not None or settings.gpu_price is not None):
        raise SettingsError("--gpu none plans engines on CPUs, which have no --gpus and no --gpu-price: leave those out")
    engine_gpus, engines = basis.gpus, _count_engines(basis, settings.gpus)
    earlier = _earlier(settings.like, basis.identity) if settings.like else None
    speed = _speed(settings, basis, earlier)
    assumptions = []
    if most := basis.pool.max_replicas:
        assumptions.append(f"the pool has {engines} engines from its start to its end (--max-replicas {most})")
    written = None
    if basis.model.task.writes:
        written, assumption = _written_tokens(tokens, basis.model, settings, earlier)
        assumptions += [assumption, "no retries of answers without a verdict"]
    # Seconds of one engine for reading, plus those for writing, spread evenly over the engines: no idle end is assumed.
    work = None
    if speed is not None:
        work = tokens["read_tokens" if speed.passes else "tokens"].times(1 / speed.read)
        if written is not None and speed.written is not None:
            work = work.plus(written.times(1 / speed.written))
        work = work.times(1 / engines)
        work = Estimate(work.value, work.low / speed.high, work.high / speed.low)
        several = f", and {engines} are {engines} times as fast as one" if engines > 1 else ""
        assumptions.append(f"engines are kept busy to the end{several}")
    gpu_hours = work.times(engines * engine_gpus / 3600) if work and engine_gpus else None
    cost = gpu_hours.times(settings.gpu_price) if gpu_hours and settings.gpu_price else None
    gpus, least, source = engines * engine_gpus, None, None
    if basis.size is not None and basis.gpu is not None:
        passed = tokens["read_tokens"].plus(written) if written is not None else tokens["read_tokens"]
        if a_token := least_seconds(basis.size, basis.gpu, basis.precision, 1, gpus):
            least, source = passed.times(a_token), f"the card's peak without sparsity, {basis.gpu.source}"
    return CostEstimate(gpus, engines, speed, written, work, gpu_hours, cost, least, tuple(assumptions), source)


def _remote_cost(
    tokens: Mapping[str, Estimate], model: RewardModel, remote: RemoteModel, settings: BillSettings
) -> CostEstimate:
    """The price of the tokens that an endpoint is asked for; None without prices, as any other endpoint's time."""
    assumptions = [f"a prompt has a token for {BYTES_PER_TOKEN} bytes, which only the endpoint counts"]
    written = None
    if model.task.writes and model.answer_tokens:
        written, assumption = _written_tokens(tokens, model, settings, None)
        assumptions += [assumption, "no retries of answers without a verdict"]
    prices, cost = remote.settings, None
    if prices.input_price is not None:
        cost = tokens["read_tokens"].times(prices.input_price / 1e6)
        if written is not None and prices.output_price is not None:
            cost = cost.plus(written.times(prices.output_price / 1e6))
    return CostEstimate(0, 1, None, written, None, None, cost, None, tuple(assumptions))


def _count_engines(basis: CostBasis, gpus: int | None) -> int:
    """The engines of the run on so many GPUs; all that it may have if None. Raises `SettingsError` if they don't fit."""
    pool = basis.pool
    least, most = pool.replicas or pool.min_replicas or 1, pool.replicas or pool.max_replicas
    if gpus is None:
        return most or 1
    if gpus < least * basis.gpus:
        takes = "an engine takes" if least == 1 else f"{least} engines take"
        raise SettingsError(f"--gpus {gpus}: {takes} {least * basis.gpus} ({basis.engine_layout})")
    room = gpus // basis.gpus  # planned engines share no GPU: what remains stays idle
    return min(room, most or room)


def _speed(settings: BillSettings, basis: CostBasis, earlier: Manifest | None) -> EngineSpeed | None:
    if settings.tokens_per_s is not None:
        if basis.model.task.writes and settings.written_per_s is None:
            raise SettingsError(
                "--tokens-per-s says how fast a judge reads; --set written_per_s=... how fast it writes, goes with it"
            )
        written = settings.written_per_s if basis.model.task.writes else None
        return EngineSpeed(settings.tokens_per_s, written, "given by --tokens-per-s")
    if settings.written_per_s is not None:
        raise SettingsError("bill.written_per_s is of judges, and goes with --tokens-per-s")
    if earlier is not None:
        return _measured_speed(earlier, str(settings.like), basis)
    expected = expected_speed(basis.size, basis.gpu, basis.precision) if basis.size and basis.gpu else None
    if expected is None:
        return None
    written = expected.written * basis.gpus if basis.model.task.writes else None
    source = expected.source + (f"; {expected.writing_source}" if basis.model.task.writes else "")
    # Expected speeds are per GPU, and taken to grow with the GPUs of an engine.
    return EngineSpeed(expected.read * basis.gpus, written, source, passes=True, low=expected.low, high=expected.high)


def _measured_speed(earlier: Manifest, folder: str, basis: CostBasis) -> EngineSpeed:
    """The speed of an engine in an earlier run.

    Raises `SettingsError` if the run tells no timing or no layout, or if its engines had another layout, or CPUs where these
    have GPUs.
    """
    layout = basis.engine_layout
    tensor, pipeline = (earlier.made_with.get(name) for name in Layout._fields)
    if tensor is None or pipeline is None:
        raise SettingsError(f"--like {folder} doesn't tell how many GPUs an engine had; give --tokens-per-s")
    if (tensor, pipeline) != layout:  # the speed of one layout says nothing of another's
        raise SettingsError(
            f"--like {folder} had engines of {tensor} x {pipeline} GPUs, and here one takes {layout.tensor_parallel} x "
            f"{layout.pipeline_parallel}: give --tensor-parallel {tensor} --set pipeline_parallel={pipeline}, or a speed"
        )
    summary = earlier.summary or {}  # `_earlier` takes none without
    work = summary.get("work") or {}
    if None in (work.get("seconds"), work.get("starting"), work.get("engines")):
        why = work.get("why") or "its engines' working time wasn't recorded"
        raise SettingsError(f"--like {folder} doesn't tell how fast it was: {why}; give --tokens-per-s")
    if bool(work.get("gpu_hours")) is (basis.gpu is None):
        ran, planned, way = ("GPUs", "CPUs", "leave out") if basis.gpu is None else ("CPUs", "a GPU's", "add")
        raise SettingsError(
            f"--like {folder} ran on {ran}, whose speed says nothing of {planned}: {way} --gpu none, or give --tokens-per-s"
        )
    if from_store := summary.get("flags", {}).get(FROM_STORE):
        raise SettingsError(
            f"--like {folder} doesn't tell how fast an engine was: {from_store:,} of its responses came from a store; give "
            "--tokens-per-s"
        )
    # A judge's writing is inside these seconds, so `written` is None below: reading alone stands for both.
    # Seconds are from the first engine's start of work on.
    tokens, seconds = summary["prompt_tokens"], work["seconds"] - work["starting"]
    if not tokens or seconds <= 0:
        raise SettingsError(f"--like {folder} read no tokens, so it doesn't tell how fast it was; give --tokens-per-s")
    engines = work["engines"]
    source = f"measured in {folder}: {tokens:,} tokens in {seconds:,.0f} s by {number_of(engines, 'engine')}"
    return EngineSpeed(tokens / seconds / engines, None, source, start_s=work["start"])


def _earlier(folder: str, identity: Mapping[str, Any]) -> Manifest:
    """A complete run by the same model, of the same turns. Raises `SettingsError` if there is none."""
    manifest = read_manifest(folder)
    if manifest is None or manifest.summary is None:
        raise SettingsError(f"--like {folder} holds no run that is complete")
    earlier = manifest.identity
    if earlier.get("engine") == "fake":
        raise SettingsError(f"--like {folder} was a rehearsal with --engine fake, which says nothing of a model's speed")
    if differ := differences({name: earlier.get(name) for name in _SAME}, {name: identity.get(name) for name in _SAME}):
        raise SettingsError(f"--like {folder} is of another run:\n  " + "\n  ".join(differ))
    return manifest


def _written_tokens(
    tokens: Mapping[str, Estimate], model: RewardModel, settings: BillSettings, earlier: Manifest | None
) -> tuple[Estimate, str]:
    """How many tokens a judge writes, and the assumption behind the number, as text.

    In this order: as given, as in an earlier run, or half of what an answer may have.
    """
    prompts, limit = tokens["prompts"], model.answer_tokens
    if settings.answer_tokens is not None:
        if settings.answer_tokens > limit:
            raise SettingsError(
                f"bill.answer_tokens={settings.answer_tokens:g}: an answer has {limit} at most (judge.max_tokens)"
            )
        return (
            prompts.times(settings.answer_tokens),
            f"answers have {settings.answer_tokens:g} tokens on average (bill.answer_tokens)",
        )
    if earlier is not None and earlier.summary and earlier.summary["responses"]:
        per_response = earlier.summary["completion_tokens"] / earlier.summary["responses"]
        return (
            tokens["responses"].times(per_response),
            f"{per_response:,.0f} tokens are written for each response, as in {settings.like}",
        )
    # Nothing is known about the length of answers: the middle, with the widest bounds that can be.
    return (
        Estimate(prompts.value * limit / 2, prompts.low, prompts.high * limit),
        f"answers have half of the {limit:,} tokens that they may have (judge.max_tokens), and between one and all of them: "
        "unknown before the run; --set bill.answer_tokens=... sets it",
    )


def _json(estimate: Estimate | None) -> dict[str, float] | None:
    return estimate and estimate._asdict()
