"""What sampling and refining share: checks of a policy's settings, its engines or endpoint, and the judge's engines."""

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

from actors.contracts.judge import Judge
from actors.endpoint.account import Notes
from actors.engine import engine_arguments
from actors.errors import SettingsError
from actors.launch.placement import actor_options, cluster_gpus, engine_gpus, wait_for_room
from actors.reward_model import RewardModel
from actors.scorers.policy import Policy, resolve_policy
from actors.settings.replica import EngineSettings, PolicySettings, RenderSettings
from actors.text.reasoning import mark_in
from actors.workers.batch_actor import BatchActor
from actors.workers.policy_actor import PolicyActor
from pipelines.folders.score_store.open_store import OpenStore
from pipelines.folders.scored_corpus.unscored import SAY_REASONING
from pipelines.run.runtime.engine_actors import Pool, pool
from pipelines.run.runtime.engine_pool import ledger
from pipelines.run.sampling.generate import FromEndpoint, FromPool, served_by
from pipelines.settings.refine_settings import RefineSettings
from pipelines.settings.run_settings import (
    DatasetSampleSettings,
    DrawSettings,
    PoolSettings,
    SampleSettings,
    Turns,
)

_FROM_ENDPOINT = 512  # requests at a time, without `policy_max_in_flight`

Sampling = SampleSettings | RefineSettings | DatasetSampleSettings


def policy_of(settings: PolicySettings) -> Policy | None:
    """The policy as workers need it; None for an endpoint, which tokenises by itself.

    Raises `ModelError` if the model can't be one.
    """
    return None if settings.is_endpoint else resolve_policy(settings)


def policy_identity(settings: PolicySettings, policy: Policy | None, engine: EngineSettings) -> dict[str, Any]:
    """All that determines the policy's texts, for the run's identity; `engine` holds the settings of its engines.

    Of an endpoint, what it says of its model: weights behind an address can't be pinned. Raises as `served_by`.
    """
    if policy is None:
        return {**settings.recorded(), "served": served_by(settings) or None}
    return {**settings.recorded(), **policy.identity_on(engine)}


def check(settings: Sampling, texts: int) -> None:
    """Raise `SettingsError` if settings contradict each other; `texts` is the number of texts generated for one prompt."""
    policy = settings.policy
    engine_arguments.check_installed(policy_engine(settings))
    if not policy.policy_temperature and texts > 1:
        raise SettingsError(
            f"policy_temperature=0 draws the same text each time, and {texts} are asked for: give a higher one"
        )
    if pool_of(settings).max_replicas is not None:
        raise SettingsError(
            "--max-replicas is for scoring: here a prompt keeps to one engine and its cache, so engines don't come and go; "
            "give --set replicas=... and --set policy_replicas=..."
        )
    rows = settings.rows if isinstance(settings, DatasetSampleSettings) else settings.corpus
    if rows.turns is not Turns.FINAL:
        raise SettingsError("--set turns=all judges what the rows hold, and with --policy their last turn is drawn anew")
    if policy.is_endpoint and (policy.policy_adapter or policy.policy_revision or policy.policy_chat_template):
        raise SettingsError(
            "policy_adapter, policy_revision and policy_chat_template are for a model that runs here, not for an endpoint"
        )
    if policy.policy_name and not policy.is_endpoint:
        raise SettingsError("policy_name is what an endpoint calls its model, and --policy is none")


def check_reasoning(policy: Policy | None, model: RewardModel, render: RenderSettings) -> None:
    """Raise `SettingsError` if the policy's template has a mark of reasoning, and `reasoning` isn't set.

    An endpoint's template isn't known: its texts are looked at when they come (`UsageCounter`).
    """
    if policy is None or model.reasoning_by(render) is not None:
        return
    if (mark := mark_in(policy.template_text)) is not None:
        raise SettingsError(f"{policy.model} may reason before it answers: its chat template holds {mark}. {SAY_REASONING}")


def check_judge(model: RewardModel, draw: DrawSettings) -> None:
    """Raise `SettingsError` if a judge compares candidates, and they would come to it one by one."""
    compares = isinstance(model.family, Judge) and model.family.together
    # With an adaptive budget a round is judged before the next is drawn, so candidates of two rounds never meet.
    if compares and (draw.adaptive or draw.n == 1):
        raise SettingsError(
            f"{model.model} compares candidates with each other: give -n 2 or more, without draw.enough and draw.min_gain"
        )


def lacking_room(settings: Sampling) -> str:
    """What the cluster's GPUs don't hold: an engine of the policy and one of the judge. Empty where they do, or may grow.

    Part of a sentence for the user.
    """
    judge, policy, gpus = engine_gpus(settings.engine), engine_gpus(policy_engine(settings)), cluster_gpus()
    # Without GPUs all engines run on the CPU, where they share what there is: 0 + 0 <= 0.
    if settings.policy.is_endpoint or settings.engine.autoscaled or judge + policy <= gpus:
        return ""
    return f"the policy ({policy} GPUs) and the judge ({judge}) side by side, and the cluster has {gpus} GPUs"


def pool_of(settings: Sampling) -> PoolSettings:
    """The settings of how many engines the judge has."""
    return settings.pool if isinstance(settings, DatasetSampleSettings) else settings.work


def policy_engine(settings: Sampling) -> EngineSettings:
    """The settings of a policy's engine: its own `--policy-...`, and what it shares with the judge's engine."""
    overrides = settings.policy_engine
    return settings.engine.model_copy(
        update={
            "engine": "vllm"
            if settings.engine.engine == "none"
            else settings.engine.engine,  # none: an endpoint or a verifier judges
            "tensor_parallel": overrides.policy_tensor_parallel,
            "pipeline_parallel": overrides.policy_pipeline_parallel,
            "max_in_flight": overrides.policy_max_in_flight,
            "engine_args": overrides.policy_engine_args,
        }
    )


@dataclass
class Engines:
    """The pools of a run, which end with the stack.

    `note` is called with what they wait for; `ledgers` count dead engines, `endpoint_ledgers` keep what endpoints fail by.
    """

    stack: ExitStack
    settings: Sampling
    note: Callable[[str], None]
    ledgers: list[Any] = field(default_factory=list)
    endpoint_ledgers: list[Any] = field(default_factory=list)

    def source(self, settings: PolicySettings, policy: Policy | None, replicas: int) -> FromPool | FromEndpoint:
        """The source of a policy's candidates: a pool of `replicas` engines, or an endpoint if `policy` is None.

        A pool's engines have begun to start when this returns; it waits only until there are GPUs for the first one.
        """
        engine = policy_engine(self.settings)
        if policy is None:
            patience_s = self.settings.policy_engine.endpoint_patience_s
            at_a_time = engine.max_in_flight or _FROM_ENDPOINT
            # By default 600 s, as in OpenAI's package: a request without an answer must end some time.
            timeout_s = engine.request_timeout_s or 600.0
            self.endpoint_ledgers.append(self.stack.enter_context(ledger(pool_of(self.settings))))
            name = settings.policy_name or served_by(settings)["id"]
            return FromEndpoint(settings, name, at_a_time, timeout_s, patience_s, self.endpoint_ledgers[-1])
        return FromPool(self._pool(PolicyActor, policy, engine, replicas))

    def judges(self, model: RewardModel, replicas: int, store: OpenStore | None, notes: Notes | None = None) -> Pool:
        """The judge's pool, with a store of scores if there is one, and notes of what an endpoint was asked for."""
        return self._pool(BatchActor, model, self.settings.engine, replicas, remember=store, notes=notes)

    def _pool(self, kind: type, model: RewardModel, engine: EngineSettings, replicas: int, **named: Any) -> Pool:
        wait_for_room(engine, model, self.note)
        deaths, options = self.stack.enter_context(ledger(pool_of(self.settings))), actor_options(engine)
        self.ledgers.append(deaths)
        return self.stack.enter_context(pool(kind, model, engine, deaths, size=replicas, options=options, **named))


def sizes(settings: Sampling, writers: int, *, with_judge: bool = True) -> tuple[int, int]:
    """Numbers of engines: for each of `writers` models that write, and for the judge.

    The judge gets a quarter of the GPUs, since it generates less; all of them without a writer here (an endpoint, an earlier
    run), and none without `with_judge`. Numbers that the user gives are cut to what there is room for, unless the cluster
    grows: a prompt keeps to one engine of the pool, and would wait for ever for one that never starts.
    """
    gpus, policy = cluster_gpus(), engine_gpus(policy_engine(settings))
    judge = engine_gpus(settings.engine) if with_judge else 0
    writers = 0 if settings.policy.is_endpoint else writers
    set_writers, set_judges = settings.policy_engine.policy_replicas, pool_of(settings).replicas
    judges = set_judges or 1
    if judge:  # 0 GPUs an engine, on a CPU: numbers as set, and no division by zero
        # The judge is sized first, with one engine of each writer left out of its room; the writers get the rest.
        default, room = gpus // (4 if writers else 1) // judge, (gpus - policy * writers) // judge
        judges = _within_room(settings, set_judges or max(1, default), room)
    if not (policy and writers):
        return set_writers or 1, judges
    room = (gpus - judges * judge) // (policy * writers)
    return _within_room(settings, set_writers or max(1, room), room), judges


def _within_room(settings: Sampling, number: int, room: int) -> int:
    """A number of engines cut to the room for them, though never below 1; as it is on a cluster that grows."""
    return number if settings.engine.autoscaled else min(number, max(1, room))
