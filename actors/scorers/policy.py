"""A policy: the chat model that generates candidates, which are then judged. Here on an engine of ours.

Its prompt is its chat template with a generation prompt, rendered as for reward models: token ids are made here, and no
row's text may contain control tokens. Every candidate has a seed of its own, so the first four of sixteen candidates are
those that a run of four generates.
"""

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import ClassVar

from actors.checkpoint.checkpoint_files import Adapter, Checkpoint
from actors.contracts.family import ChatTemplate, Family, Question
from actors.contracts.known_model import KnownModel
from actors.engine.protocol import Engine, Generation, Sampling, Task
from actors.errors import EngineDead, EngineError, ModelError
from actors.records import Reason, Score
from actors.reward_model import RewardModel
from actors.scorers.head_scorer import gather
from actors.settings.replica import Dtype, PolicySettings
from actors.text.reasoning import is_in_marks, opened_by


@dataclass(frozen=True, slots=True)
class GeneratedCandidate:
    """A candidate: its text, or the reason why it can't be judged.

    `finish_reason` is `stop` if the model ended by itself. `cached_tokens` of the prompt came out of the prefix cache. A
    refined candidate has the name of the one it was made from as `parent`, and the `feedback` that it was made with. Of an
    endpoint, `retries` says how often it was asked again, and `cause` what it said where it gave no candidate.
    """

    text: str
    finish_reason: str | None
    tokens: int
    prompt_tokens: int
    cached_tokens: int
    reason: Reason | None = None
    parent: str | None = None
    feedback: str | None = None
    retries: int = 0
    cause: str = ""

    @property
    def unjudged(self) -> Score | None:
        """The score of a candidate that no judge is shown; None of one that can be judged."""
        if self.reason is None:
            return None
        return Score.rejected(self.reason) if self.finish_reason is not None else Score.failed(self.reason)


@dataclass(frozen=True, slots=True)
class CandidatePrompt:
    """A prompt for a policy: its token ids, and a seed for each candidate.

    `opening` is the begin mark of reasoning with which the prompt ends, if it does.
    """

    ids: Sequence[int]
    seeds: tuple[int, ...]
    opening: str = ""


def seed_of(base: int, row: str, number: int) -> int:
    """The seed of candidate `number` of a row, 0 to 2^31 - 1: the same in every run, however many others are generated.

    `row` is the content-stable name of the row, never its position: rows may be read in any order.
    """
    # The row stands last: two numbers and spaces can't be confused with the beginning of a name. A name may hold half of a
    # surrogate pair, which UTF-8 refuses.
    digest = hashlib.blake2b(f"{base} {number} {row}".encode("utf-8", "surrogatepass"), digest_size=4).digest()
    return int.from_bytes(digest, "little") >> 1  # positive also where a seed is a signed number of 32 bits


def read_candidate(generation: Generation) -> GeneratedCandidate:
    """A candidate from a generation. One that was cut off isn't judged: its text isn't complete.

    Its reason is `unfinished`, or `empty_content` where nothing was written. Token counts are the engine's.
    """
    reason = None
    if generation.finish_reason != "stop":
        reason = Reason.UNFINISHED
    elif not generation.text.strip():
        reason = Reason.EMPTY_CONTENT
    cached_tokens, computed_tokens = generation.cached_tokens, generation.computed_tokens
    return GeneratedCandidate(
        generation.text,
        generation.finish_reason or "",
        len(generation.token_ids),
        cached_tokens + computed_tokens,
        cached_tokens,
        reason,
    )


def failed_candidate(reason: Reason, cause: str = "") -> GeneratedCandidate:
    """A candidate that the policy didn't generate, with the reason."""
    return GeneratedCandidate("", None, 0, 0, 0, reason, cause=cause)


class _PolicyFamily(Family):
    """How a policy is prompted: with the conversation alone."""

    name = "policy"
    models: ClassVar[tuple[KnownModel, ...]] = ()
    task = Task.GENERATE

    def fits(self, checkpoint: Checkpoint) -> bool:
        return checkpoint.architecture.endswith(("ForCausalLM", "LMHeadModel", "ForConditionalGeneration"))

    def check(self, checkpoint: Checkpoint, published: KnownModel | None = None, tensor_parallel: int = 1) -> None:
        """Nothing is read from its head."""

    def outputs(self) -> tuple[str, ...]:
        return ()

    def labels(self, checkpoint: Checkpoint) -> int:
        return 0

    def text(self, question: Question, template: ChatTemplate) -> str:
        return template(question.context, generation_prompt=True)

    def opening(self, text: str) -> str:
        return opened_by(text)

    def shown(self, question: Question) -> tuple[str, ...]:
        return ()


_POLICY_FAMILY = _PolicyFamily()


@dataclass(frozen=True)
class Policy(RewardModel):
    """A policy with everything that workers need to load it and to generate with it. Small and picklable.

    `max_model_len` is that of the prompt: the longest answer fits behind it.
    """

    settings: PolicySettings = field(kw_only=True)

    @property
    def family(self) -> Family:
        return _POLICY_FAMILY

    @property
    def sampling(self) -> Sampling:
        settings = self.settings
        return Sampling(
            max_tokens=settings.policy_max_tokens,
            temperature=settings.policy_temperature,
            top_p=settings.policy_top_p if settings.policy_temperature else 1.0,  # greedy decoding has no use for it
            stop=settings.policy_stop,
        )

    @property
    def template_text(self) -> str:
        """The given chat template, or the files that hold its own, one after another; empty if there are none.

        It is searched for marks of reasoning; nothing is rendered by it.
        """
        if self.chat_template is not None:
            return self.chat_template
        folder = self.checkpoint.folder
        files = (folder / name for name in ("chat_template.jinja", "tokenizer_config.json"))
        return "".join(file.read_text(encoding="utf-8") for file in files if file.exists())


def resolve_policy(settings: PolicySettings) -> Policy:
    """Find a policy. Raises `ModelError` if it can't be one.

    It must be a language model whose context holds more than `policy_max_tokens`, so that there is room for a prompt.
    """
    checkpoint = replace(
        Checkpoint.find(settings.policy, settings.policy_revision), given_template=settings.policy_chat_template
    )
    if not _POLICY_FAMILY.fits(checkpoint):
        raise ModelError(
            f"--policy {settings.policy} is a {checkpoint.architecture or 'model without architectures'}, which writes "
            "nothing: give a language model with a chat template"
        )
    limit = checkpoint.max_model_len
    if limit is None:
        raise ModelError(
            f"{settings.policy} doesn't say max_position_embeddings, its longest context in tokens; add it to config.json"
        )
    if limit <= settings.policy_max_tokens:
        raise ModelError(
            f"policy_max_tokens={settings.policy_max_tokens} leaves no room for a prompt: {settings.policy} takes {limit}"
        )
    adapter = settings.policy_adapter
    if adapter is not None:
        Adapter.find(adapter).check_template(checkpoint)
    return Policy(
        model=settings.policy,
        revision=checkpoint.hub_commit,
        family_name=_POLICY_FAMILY.name,
        task=Task.GENERATE,
        labels=0,
        dtype=checkpoint.dtype if settings.policy_dtype is Dtype.AUTO else settings.policy_dtype.value,
        max_model_len=limit - settings.policy_max_tokens,  # of the prompt: the longest answer must fit behind it
        weights={},
        # An adapter makes other candidates of the same weights, so it is part of what the run is resumed as.
        hashes=checkpoint.hashes(adapter),
        answer_tokens=settings.policy_max_tokens,
        adapter=adapter,
        chat_template=settings.policy_chat_template,
        settings=settings,
    )


class PolicyWriter:
    """A policy on a live engine.

    A candidate's text keeps the marks of reasoning, even if the prompt wrote them or the tokenizer calls them special:
    without them the reasoning couldn't be told from the answer. Other special tokens are removed.
    """

    def __init__(self, sampling: Sampling, engine: Engine, special: Mapping[int, str] = MappingProxyType({})) -> None:
        """`special` has the text of each special token id of the policy's tokenizer."""
        # Where `<think>` is a special token, a text without special tokens would lose it. Then all are kept, and those that
        # are no marks are taken out here; elsewhere the engine leaves them out.
        self._others = {token: text for token, text in special.items() if not is_in_marks(text)}
        self._marked = len(self._others) < len(special)
        self._sampling = replace(sampling, keep_special=self._marked)
        self._engine = engine

    def draw_block(self, draws: Sequence[CandidatePrompt]) -> list[tuple[GeneratedCandidate, ...]]:
        """The candidates of many prompts, from any thread, in one hop to the engine's loop. Raises `EngineDead`."""
        return self._engine.submit(self.draw(draws)).result()

    async def draw(self, draws: Sequence[CandidatePrompt]) -> list[tuple[GeneratedCandidate, ...]]:
        """The same on the engine's loop. A prompt's candidates are generated together, so that they share its cache."""
        return await gather(map(self._generate_all, draws))

    async def _generate_all(self, draw: CandidatePrompt) -> tuple[GeneratedCandidate, ...]:
        return tuple(await gather(self._generate(draw, seed) for seed in draw.seeds))

    async def _generate(self, draw: CandidatePrompt, seed: int) -> GeneratedCandidate:
        # A prompt for each candidate, not one with n: each has a seed of its own, and the prefix cache has the prompt.
        sampling = replace(self._sampling, seed=seed if self._sampling.temperature else None)
        try:
            (generation,) = await self._engine.generate(draw.ids, sampling)
        except EngineDead:
            raise
        except EngineError as error:
            return failed_candidate(error.reason)
        text = self._remove_special(generation) if self._marked else generation.text
        # An empty text stays empty: with the mark in front it would be judged as a candidate that only thought.
        return read_candidate(replace(generation, text=f"{draw.opening}{text}" if text.strip() else text))

    def _remove_special(self, generation: Generation) -> str:
        """The text without special tokens that aren't marks of reasoning.

        Only texts of ids that really occur are removed: an answer may spell a special token in ordinary characters.
        """
        # Tokens at the end come off first. Most texts have no others, and then keep a `</s>` that they spell in the middle.
        text, ids = generation.text, list(generation.token_ids)
        while ids and ids[-1] in self._others:
            text = text.removesuffix(self._others[ids.pop()])
        # The longest first: `<s>|<s>x` would leave an x of each `<s>x`.
        inside = sorted({self._others[token] for token in ids if token in self._others}, key=len, reverse=True)
        return re.sub("|".join(map(re.escape, inside)), "", text) if inside else text
