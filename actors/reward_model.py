"""A resolved reward model: its family, its checkpoint, and everything that determines its prompts and how it is read.

Families are found by being in `actors/models/`, or in the group `assay.families` of a plug-in: adding one is adding a
module with a `FAMILY` in it (`actors/contracts/family.py` says what it holds), and its test.
"""

import importlib.metadata
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Self

from actors.checkpoint.checkpoint_files import Adapter, Checkpoint
from actors.contracts.family import Family
from actors.contracts.judge import Judge
from actors.contracts.pooled_head import PooledHead
from actors.contracts.served import Served
from actors.contracts.stopping import Stopping
from actors.contracts.verifier import Verifier
from actors.endpoint.account import BYTES_PER_TOKEN
from actors.endpoint.remote_model import RemoteModel
from actors.engine.engine_arguments import arguments_identity
from actors.engine.protocol import Task
from actors.errors import EndpointError, ModelError, SettingsError
from actors.extensions import Extensions
from actors.records import Prompt, Reasoning
from actors.settings.replica import (
    AS_ITS_CARD,
    AS_PUBLISHED,
    Dtype,
    EngineSettings,
    JudgeSettings,
    ModelSettings,
    ReadSettings,
    RenderSettings,
    TooLong,
)
from actors.settings.same_plugin import find
from actors.settings.verifier import AS_GIVEN, VerifierSettings

RUBRIC = "rubric"  # the family of judges that a user defines by a rubric file
_LISTED = 5  # families that a message lists


@dataclass(frozen=True)
class RewardModel:
    """A model with everything that workers need to load it and to read it. Small and picklable.

    `max_model_len` is the longest prompt in tokens; a judge's answer has up to `answer_tokens` in addition.
    """

    model: str
    revision: str | None
    family_name: str
    task: Task
    labels: int
    dtype: str
    max_model_len: int
    weights: Mapping[str, float]
    hashes: Mapping[str, str]  # see `Checkpoint.hashes`
    overrides: Mapping[str, Any] = field(default_factory=dict)
    read: ReadSettings = AS_PUBLISHED
    one_pass: bool = False  # whether all turns of a conversation are read in one forward pass
    judge: JudgeSettings = AS_ITS_CARD
    answer_tokens: int = 0
    verdict_ids: tuple[int, ...] = ()  # the tokens by whose log-probability a judge is read
    adapter: str | None = None  # the folder of a LoRA adapter
    chat_template: str | None = None  # the text of a chat template that prompts are written by in place of the checkpoint's
    verifier: VerifierSettings = AS_GIVEN
    remote: RemoteModel | None = None  # the endpoint where it is asked; None of a model that runs here
    family_plugin: str | None = None  # as `Extensions.plugin_of`, where the model was resolved

    def __getstate__(self) -> dict[str, Any]:
        # Without `family`, which was looked up here: a worker looks it up itself, where a plug-in may be of another version.
        return {name: value for name, value in self.__dict__.items() if name != "family"}

    @property
    def known_as(self) -> str:
        """The id or path under which its family looks it up (`Family.knows`): an adapter decides how the model is read."""
        return self.adapter or self.model

    @property
    def checkpoint(self) -> Checkpoint:
        """Its files, on the machine where this is called. Raises as `Checkpoint.find`."""
        return replace(Checkpoint.find(self.model, self.revision), given_template=self.chat_template)

    @cached_property
    def family(self) -> Family:
        if self.remote is not None and self.remote.is_assay:
            return Served(self.remote.card)
        family = find(families(), self.family_name, self.family_plugin).of_model(self.known_as).reading_by(self.read)
        if isinstance(family, Verifier):
            return family.with_verifier_settings(self.verifier)
        return family.with_settings(self.judge, self.verdict_ids) if isinstance(family, Judge) else family

    @property
    def tracing(self) -> Self:
        """The same model; if it is a judge, its scores hold what it wrote."""
        return replace(self, judge=self.judge.model_copy(update={"trace": True}))

    def reasoning_by(self, settings: RenderSettings) -> Reasoning | None:
        return self.family.reasoning_by(settings)

    def identity_on(self, engine: EngineSettings) -> dict[str, Any]:
        """All that decides its numbers on an engine, but how conversations become prompts."""
        family = self.family
        if self.remote is not None:
            return {**(self._judging if isinstance(family, Judge) else {}), **self.remote.identity}
        return {
            **self.hashes,
            **self._judging,
            "dtype": self.dtype,
            "max_model_len": self.max_model_len,
            **({"verifier": family.recorded()} if isinstance(family, Verifier) else {}),
            "engine": engine.engine,
            "engine_args": arguments_identity(engine),
        }

    @property
    def _judging(self) -> dict[str, Any]:
        family = self.family
        return {
            "family": self.family_name,
            "family_plugin": self.family_plugin,
            "reward_weights": dict(self.weights),
            "read": self.read.model_dump(mode="json", exclude_defaults=True),
            **({"judge": family.recorded(self.answer_tokens)} if isinstance(family, Judge) else {}),
        }

    @property
    def context(self) -> int:
        return self.max_model_len + self.answer_tokens

    def token_count(self, prompt: Prompt) -> int:
        """The tokens of a prompt; behind an address, where nobody counts them before they are paid, about as many."""
        if self.remote is None:
            return len(prompt.ids)
        return -(-sum(map(len, (prompt.ids, *prompt.texts))) // BYTES_PER_TOKEN)


_FAMILIES = Extensions("assay.families", "actors.models", "FAMILY", Family)  # type: ignore[type-abstract]


def families() -> Extensions[Family]:
    """All families by name: ours in `actors/models`, and those of plug-ins.

    They are imported at the first look; a plug-in that can't be is left out with a warning.
    """
    return _FAMILIES


def resolve_model(
    settings: ModelSettings,
    render: RenderSettings,
    every_turn: bool = False,
    tensor_parallel: int = 1,
    *,
    weights: bool = True,
) -> RewardModel:
    """Find a model and the family that reads it. Raises `ModelError` if it is no reward model, or none that we know.

    If `every_turn` of conversations is judged, the engine reads every position, provided that the outputs there are exact.
    Prompts may be as long as those that the model was trained on, if its card says that, unless the settings say otherwise.
    `weights`: they must be there, which a plan does without.
    """
    if settings.endpoint.endpoint is not None:
        return _resolve_remote(settings, render)
    if isinstance(verifier := families().get(settings.model), Verifier):
        return _resolve_verifier(verifier, settings)
    if of_verifiers := sorted(settings.verifier.model_dump(exclude_defaults=True)):
        raise SettingsError(f"verifier.{of_verifiers[0]}: for verifiers, and {settings.model} is a model with weights")
    # By the checkpoint's own files from here on: what a user says is only believed where they leave it open.
    checkpoint = replace(Checkpoint.find(settings.model, settings.revision), given_template=settings.chat_template)
    named = settings.family or (RUBRIC if settings.judge.rubric else None)
    known_as = settings.adapter or settings.model  # as `RewardModel.known_as`
    family = family_of(known_as, checkpoint, named).of_model(known_as).reading_by(settings.read)
    family = _apply_judge_settings(family, settings)
    published = family.knows(known_as)
    family.check(checkpoint, published, tensor_parallel)
    if settings.adapter is not None:
        Adapter.find(settings.adapter).check_template(checkpoint)
    limit = checkpoint.max_model_len
    judge = family if isinstance(family, Judge) else None
    if render.too_long is TooLong.CUT_LEFT:
        _check_can_be_cut(family, settings.model)
    answer_tokens = judge.answer_tokens(limit) if judge else 0
    limit = limit and limit - answer_tokens  # a context holds the prompt and the answer
    trained = published and published.context
    # Beyond what a card says the model was trained on, its numbers mean nothing, though config.json allows more positions.
    max_model_len = render.max_model_len or (min(trained, limit or trained) if trained else limit)
    if max_model_len is None:
        raise ModelError(f"{settings.model} doesn't say max_position_embeddings in its config; give --set max_model_len=...")
    if limit is not None and limit < 1:
        raise ModelError(
            f"--set max_tokens={answer_tokens} leaves no room for a prompt: {settings.model} takes {limit + answer_tokens}"
        )
    if limit is not None and max_model_len > limit:
        answers = f", with {answer_tokens} tokens for the answer (judge.max_tokens)" if answer_tokens else ""
        raise ModelError(f"--set max_model_len={max_model_len} is more than {settings.model} takes ({limit}{answers})")
    # In a causal model the outputs at the end of a turn don't depend on the turns after it: one pass reads them all. In
    # others each turn is a prompt of its own.
    one_pass = every_turn and family.one_pass and checkpoint.causal
    return RewardModel(
        model=settings.model,
        revision=checkpoint.hub_commit,
        family_name=family.name,
        family_plugin=_FAMILIES.plugin_of(family.name),
        task=Task.TOKEN_CLASSIFY if one_pass else family.task,
        labels=family.labels(checkpoint),
        overrides=family.overrides(checkpoint),
        read=settings.read,
        one_pass=one_pass,
        dtype=checkpoint.dtype if settings.dtype is Dtype.AUTO else settings.dtype.value,
        max_model_len=max_model_len,
        weights=_find_weights(family, settings),
        hashes=checkpoint.hashes(settings.adapter, weights=weights),
        judge=settings.judge,
        answer_tokens=answer_tokens,
        verdict_ids=judge.find_verdict_ids(checkpoint) if judge else (),
        adapter=settings.adapter,
        chat_template=settings.chat_template,
    )


def _resolve_verifier(verifier: Verifier, settings: ModelSettings) -> RewardModel:
    """A family without weights, whose name is the model. Raises `SettingsError` for a setting that it doesn't take."""
    _apply_judge_settings(verifier.reading_by(settings.read), settings)
    of_weights = {"revision", "family", "dtype", "chat_template"} & settings.model_dump(exclude_defaults=True).keys()
    if of_weights:
        raise SettingsError(f"{', '.join(sorted(of_weights))}: {settings.model} has no weights")
    verifier = verifier.with_verifier_settings(settings.verifier)
    try:
        versions = {name: importlib.metadata.version(name) for name in verifier.libraries}
    except importlib.metadata.PackageNotFoundError as error:
        hint = f': pip install "assay[{verifier.extra}]"' if verifier.extra else ""
        raise ModelError(f"{settings.model} needs {error.name}, which isn't installed{hint}") from error
    return RewardModel(
        model=settings.model,
        revision=None,
        family_name=verifier.name,
        family_plugin=_FAMILIES.plugin_of(verifier.name),
        task=verifier.task,
        labels=0,
        dtype="float64",
        max_model_len=0,  # nothing is tokenized
        weights=verifier.weights(settings.weights),
        hashes=versions,  # what decides a verifier's numbers is the code of its libraries
        verifier=settings.verifier,
    )


def _resolve_remote(settings: ModelSettings, render: RenderSettings) -> RewardModel:
    """A model of an endpoint: one of `assay serve`, or else a judge that writes chat completions.

    Raises `EndpointError` if it can't be asked as the settings say, `RunStopped` if the endpoint doesn't answer now.
    """
    named = settings.model_dump(exclude_defaults=True).keys()
    if wrong := sorted(named & {"revision", "dtype", "adapter", "chat_template", "verifier"}):
        raise SettingsError(f"{', '.join(wrong)}: of a model that runs here, and --endpoint has its own")
    remote = RemoteModel.find(settings.endpoint, settings.model)
    name = settings.family or (RUBRIC if settings.judge.rubric else None)
    if remote.is_assay:
        if of_judge := named & {"family", "judge", "read"}:
            raise EndpointError(
                f"the endpoint {remote.url} asks {settings.model} as it was started: leave out the settings of judges, "
                f"--rubric and --family ({', '.join(sorted(of_judge))})"
            )
        if render.system is not None:
            raise SettingsError(f"system: the endpoint {remote.url} makes prompts as it was started")
        if settings.endpoint.batch:
            raise SettingsError(f"endpoint.batch: of OpenAI's Batch API, and {remote.url} is an endpoint of `assay serve`")
        family: Family = Served(remote.card)
    elif name is None:
        raise EndpointError(
            f"the endpoint {remote.url} doesn't say what {settings.model} is, as that of `assay serve` does; to ask it as a "
            "judge that writes, give --rubric FILE, or --family if it is a published judge"
        )
    elif isinstance(judge := families().get(name), Judge):
        family = judge.reading_by(settings.read).with_settings(settings.judge)
        if family.marks:
            raise SettingsError(
                f"{name} is read by the log-probabilities of {' and '.join(map(repr, family.marks))}, which chat "
                "completions don't promise: give a model that runs here, or a rubric with a pattern or a schema"
            )
    else:
        judges = ", ".join(name for name, family in families().items() if isinstance(family, Judge))
        raise SettingsError(
            f"--family {name}: a model of chat completions is asked as a judge that writes: give --rubric FILE, or one of "
            f"{judges}"
        )
    return RewardModel(
        model=settings.model,
        revision=None,
        family_name=family.name,
        family_plugin=_FAMILIES.plugin_of(family.name),
        task=family.task,
        labels=0,
        dtype="bfloat16",  # a placeholder: the identity of a remote model has null for it
        max_model_len=remote.longest or 0,
        weights=_find_weights(family, settings),
        hashes={},
        read=settings.read,
        judge=settings.judge,
        answer_tokens=family.answer_tokens(remote.longest) if isinstance(family, Judge) else 0,
        remote=remote,
    )


def _check_can_be_cut(family: Family, model: str) -> None:
    """Raise `SettingsError` for a family whose prompts can't lose their beginning."""
    if isinstance(family, Judge):
        raise SettingsError(f"--set too_long=cut-left is for reward heads: {model} would lose what it is asked to do")
    if isinstance(family, PooledHead) and family.gate_text:
        raise SettingsError(
            f"--set too_long=cut-left: the gate of {model}'s head is read where the response begins, which may be cut off"
        )
    if family.needed_fields:
        raise SettingsError(
            f"--set too_long=cut-left is for models of conversations: {model} would lose its {family.needed_fields[0]}"
        )
    if family.steps:  # the rest would be scored as if it were the whole response, from another number of steps
        raise SettingsError(f"--set too_long=cut-left is for models of whole responses: {model} would lose the first steps")


def _apply_judge_settings(family: Family, settings: ModelSettings) -> Family:
    """The family with the judge's settings. Raises `SettingsError` if a reward head is given any."""
    if isinstance(family, Judge):
        return family.with_settings(settings.judge)
    options = sorted(settings.judge.model_dump(exclude_defaults=True)) + ["adapter"] * (settings.adapter is not None)
    if options:
        raise SettingsError(f"{', '.join(options)}: for judges that write, and {family.name} is none")
    return family


def _find_weights(family: Family, settings: ModelSettings) -> Mapping[str, float]:
    """The weights of the outputs in the reward. Raises `SettingsError`, also for votes that may stop where none can."""
    weights = family.weights(settings.weights)
    if isinstance(family, Judge) and family.asks.stop:
        Stopping(family, weights).check()
    return weights


def family_of(model: str, checkpoint: Checkpoint, named: str | None = None) -> Family:
    """The family that reads a model: the `named` one, or by its id, or by its config.json.

    It is never guessed: raises `ModelError` if there is none, or more than one.
    """
    # Of a language model, config.json says no number of labels, and a default would mislead.
    labels = "" if checkpoint.architecture.endswith("ForCausalLM") else f" with {checkpoint.labels} labels"
    description = f"{model} is a {checkpoint.architecture or 'model without architectures'}{labels}"
    if labels and checkpoint.omits_labels and not checkpoint.omits_one_label:
        description += ' (config.json says no number, which means 2; if its head has one output, add "num_labels": 1)'
    if named is not None:
        family = families().get(named)
        if family is None:
            raise ModelError(f"--family {named} isn't a family that Assay knows; there are {', '.join(sorted(families()))}")
        if not family.fits(checkpoint):
            raise ModelError(f"{description}, which --family {named} can't read: it reads {family.summary}")
        published = family_known(model)
        # A rubric defines prompt and parser itself, so it may use any model, also a published reward model.
        if published is not None and published is not family and not family.any_model:
            raise ModelError(f"{model} is published as --family {published.name}, and would be misread by --family {named}")
        return family
    # An id is certain, then a mark in config.json. What merely fits an architecture is never taken: several
    # published families are a Llama with one label, and differ in the template or in what the number means.
    by_id = [family for family in families().values() if family.knows(model) and family.fits(checkpoint)]
    if certain := by_id or [family for family in families().values() if family.recognises(checkpoint)]:
        if len(certain) == 1:
            return certain[0]
        raise ModelError(
            f"{description}, which several families read. Say which with --family:{_listed(certain, checkpoint)}"
        )
    if possible := [family for family in families().values() if family.fits(checkpoint)]:
        # LLaMA-Factory saves a language model with a value head beside it.
        heads = ", ".join(checkpoint.unread_heads)
        unread = f" Its value head ({heads}) is read by none of the families below." if heads and not labels else ""
        raise ModelError(
            f"{description}. That alone doesn't tell whether it is a reward model, nor how it is read.{unread} If it is "
            f"one, say which with --family:{_listed(possible, checkpoint)}"
        )
    raise ModelError(f"{description}, which no family of reward models here reads; `assay models` lists them")


def family_known(model: str) -> Family | None:
    """The family of a published model, by its id alone.

    None for an id that no family lists: then a checkpoint or the user must say how it is read.
    """
    return next((family for family in families().values() if family.knows(model)), None)


def _listed(some: Collection[Family], checkpoint: Checkpoint) -> str:
    """A line for each of the likeliest families: first those that name the architecture, then a rubric, which any takes."""
    likely = sorted(some, key=lambda kind: (checkpoint.architecture not in kind.summary, kind.name != RUBRIC, kind.name))
    lines = [f"\n  {family.name}: {family.summary}" for family in likely[:_LISTED]]
    return "".join(lines) + f"\n  {len(likely) - _LISTED} more: `assay models`" * (len(likely) > _LISTED)
