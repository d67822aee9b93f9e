"""What sampling and refining have in common: models that write, as pools of engines or behind an endpoint."""

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

from actors.contracts.judge import Judge
from actors.engine import engine_arguments
from actors.errors import SettingsError
from actors.launch.placement import actor_options, cluster_gpus, engine_gpus, wait_for_room
from actors.reward_model import RewardModel
from actors.scorers.policy import Policy, resolve_policy
from actors.settings.replica import EngineSettings, PolicySettings, RenderSettings
from actors.text.reasoning import mark_in
from actors.workers.batch_actor import BatchActor
from actors.workers.policy_actor import PolicyActor
from pipelines.prepare.resolve_run import SAY_REASONING
from pipelines.runtime.engine_pool import ledger
from pipelines.sampling.engine_actors import Pool, pool
from pipelines.sampling.generate import FromEndpoint, FromPool, served_by
from pipelines.settings.run_settings import (
    DatasetSampleSettings,
    DrawSettings,
    PoolSettings,
    RefineSettings,
    RowSettings,
    SampleSettings,
    Turns,
)

_FROM_ENDPOINT = 512  # candidates at a time

Sampling = SampleSettings | RefineSettings | DatasetSampleSettings


def policy_of(settings: PolicySettings) -> Policy | None:
    """The policy as workers need it; None for an endpoint. Raises `ModelError`."""
    return None if settings.is_endpoint else resolve_policy(settings)


def policy_identity(settings: PolicySettings, policy: Policy | None, engine: EngineSettings) -> dict[str, Any]:
    """What decides what it writes, for a run's identity; `engine` is how its engines are started."""
    if policy is None:
        return {**settings.recorded(), "served": served_by(settings)}
    return {**policy.recorded(), **engine_arguments.arguments_identity(engine)}


def check(settings: Sampling, texts: int) -> None:
    """Raise `SettingsError` unless what is asked of a policy goes together; it draws so many texts of one prompt."""
    policy = settings.policy
    if not policy.policy_temperature and texts > 1:
        raise SettingsError(
            f"--policy-temperature 0 draws the same text each time, and {texts} are asked for: give a higher one"
        )
    if pool_of(settings).max_replicas is not None:
        raise SettingsError(
            "--max-replicas is for scoring: here a prompt keeps to one engine and its cache, so engines don't come and go; "
            "give --replicas and --policy-replicas"
        )
    if rows_of(settings).turns is not Turns.FINAL:
        raise SettingsError("--turns all judges what the rows hold, and with --policy their last turn is drawn anew")
    if policy.is_endpoint and (policy.policy_adapter or policy.policy_revision):
        raise SettingsError("--policy-adapter and --policy-revision are for a policy that runs here, not for an endpoint")
    if policy.policy_name and not policy.is_endpoint:
        raise SettingsError("--policy-name is what an endpoint calls its model, and --policy is none")


def check_reasoning(policy: Policy | None, model: RewardModel, render: RenderSettings) -> None:
    """Raise `SettingsError` if a policy reasons before it answers, by its template, and nobody says what becomes of it."""
    if policy is None or model.reasoning_by(render) is not None:
        return
    if (mark := mark_in(policy.template_text)) is not None:
        raise SettingsError(f"{policy.model} may reason before it answers: its chat template holds {mark}. {SAY_REASONING}")


def check_judge(model: RewardModel, draw: DrawSettings) -> None:
    """Raise `SettingsError` if a judge needs candidates together that aren't."""
    together = isinstance(model.family, Judge) and model.family.together
    if together and (draw.adaptive or draw.n == 1):
        raise SettingsError(
            f"{model.model} compares candidates with each other: give -n 2 or more, without --enough and --min-gain"
        )


def rows_of(settings: Sampling) -> RowSettings:
    """How rows are understood."""
    return settings.rows if isinstance(settings, DatasetSampleSettings) else settings.corpus


def pool_of(settings: Sampling) -> PoolSettings:
    """How many engines the judge has."""
    return settings.pool if isinstance(settings, DatasetSampleSettings) else settings.work


def policy_engine(settings: Sampling) -> EngineSettings:
    """How an engine of a policy is started."""
    own = settings.policy_engine
    return EngineSettings(
        engine=settings.engine.engine,
        tensor_parallel=own.policy_tensor_parallel,
        pipeline_parallel=own.policy_pipeline_parallel,
        max_in_flight=own.policy_max_in_flight,
        request_timeout_s=settings.engine.request_timeout_s,
        autoscaled=settings.engine.autoscaled,
        placement_timeout_s=settings.engine.placement_timeout_s,
        engine_args=own.policy_engine_args,
    )


@dataclass
class Engines:
    """The pools of a run, which end with the stack. `noted` is told what they wait for, `ledgers` know of dead engines."""

    stack: ExitStack
    settings: Sampling
    noted: Callable[[str], None]
    ledgers: list[Any] = field(default_factory=list)

    def drawer(self, settings: PolicySettings, policy: Policy | None, replicas: int) -> FromPool | FromEndpoint:
        """What draws from a policy."""
        engine = policy_engine(self.settings)
        if policy is None:
            patience_s = self.settings.policy_engine.endpoint_patience_s
            most = engine.max_in_flight or _FROM_ENDPOINT
            return FromEndpoint(settings, most, engine.request_timeout_s or 600.0, patience_s)
        return FromPool(self._pool(PolicyActor, policy, engine, replicas))

    def judges(self, model: RewardModel, replicas: int) -> Pool:
        """What judges."""
        return self._pool(BatchActor, model, self.settings.engine, replicas)

    def _pool(self, kind: type, model: RewardModel, engine: EngineSettings, replicas: int) -> Pool:
        wait_for_room(engine, model, self.noted)
        self.ledgers.append(ledger(pool_of(self.settings)))
        arguments = (model, engine, self.ledgers[-1])
        return self.stack.enter_context(pool(kind, arguments, size=replicas, options=actor_options(engine)))


def sizes(settings: Sampling, writers: int, *, judged: bool = True) -> tuple[int, int]:
    """How many engines each of so many writers has, and the judge: a quarter of the GPUs is its, since it writes less.

    Without a writer here all are the judge's, and none where nothing is `judged`. More than there is room for are no use,
    unless the cluster grows: a prompt may belong to one that never starts.
    """
    there, policy = cluster_gpus(), engine_gpus(policy_engine(settings))
    judge = engine_gpus(settings.engine) if judged else 0
    writers = 0 if settings.policy.is_endpoint else writers
    asked_writers, asked_judges = settings.policy_engine.policy_replicas, pool_of(settings).replicas
    judges = asked_judges or 1
    if judge:
        usual, most = there // (4 if writers else 1) // judge, (there - policy * writers) // judge
        judges = _number(settings, asked_judges or max(1, usual), most)
    if not (policy and writers):
        return asked_writers or 1, judges
    most = (there - judges * judge) // (policy * writers)
    return _number(settings, asked_writers or max(1, most), most), judges


def _number(settings: Sampling, wanted: int, most: int) -> int:
    """How many engines, where there is room for so many."""
    return wanted if settings.engine.autoscaled else min(wanted, max(1, most))
