"""What a family of reward models is: how it is asked, and how its answer is read. `actors/models/` has one file for each.

A family never changes. It turns a request into questions, a question into the exact text that the model's
authors rendered, and the engine's raw outputs into a reward. Everything else (tokens, length, engines, Ray) is shared.
"""

import copy
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from typing import Any, ClassVar, Protocol, Self

from actors.checkpoint.checkpoint_files import Checkpoint
from actors.engine.protocol import Task
from actors.errors import ModelError, SettingsError
from actors.records import Message, Reading, Reasoning, Response, Role, ScoreRequest
from actors.settings.replica import AS_PUBLISHED, ReadSettings, RenderSettings

Rows = Sequence[Sequence[float]]
"""The head's raw outputs at each position where a prompt is read."""


class ChatTemplate(Protocol):
    """The checkpoint's own chat template. Raises `Rejected` if the template refuses."""

    def __call__(self, messages: Sequence[Message], *, generation_prompt: bool = False) -> str:
        """The text of a conversation; a generation prompt opens the next assistant turn."""


@dataclass(frozen=True, slots=True)
class Question:
    """Responses to be judged, in the order in which they are shown; `judges` are their positions in the request.

    `principle` is what a principle-following judge goes by; a judge that writes is asked `times` times.
    """

    context: tuple[Message, ...]
    responses: tuple[str, ...]
    judges: tuple[int, ...]
    principle: str | None = None
    times: int = 1

    @property
    def messages(self) -> tuple[Message, ...]:
        """The conversation that ends with the response, where there is one."""
        (response,) = self.responses
        return (*self.context, Message(Role.ASSISTANT, response))


@dataclass(frozen=True, slots=True)
class Golden:
    """A conversation whose reward its authors published, or that was measured with transformers in float32."""

    request: ScoreRequest
    rewards: tuple[float, ...]
    """One for each response."""
    tolerance: float

    @classmethod
    def answer(cls, question: str, answer: str, reward: float, tolerance: float, principle: str | None = None) -> Self:
        """A question, and an answer to it."""
        return cls.answers((Message(Role.USER, question),), {answer: reward}, tolerance, principle)

    @classmethod
    def answers(
        cls, context: tuple[Message, ...], rewards: Mapping[str, float], tolerance: float, principle: str | None = None
    ) -> Self:
        """A conversation, and answers to it with their rewards."""
        responses = tuple(Response(f"golden[{at}]", answer) for at, answer in enumerate(rewards))
        return cls(ScoreRequest(context, responses, (principle,) if principle else ()), tuple(rewards.values()), tolerance)


@dataclass(frozen=True, slots=True)
class KnownModel:
    """A published model of a family, or all whose ids match a pattern: `Skywork/Skywork-Reward-*`.

    `context` is how many tokens its card says it was trained on, `card` where that is said.
    """

    id: str
    note: str
    licence: str = "its card's"
    context: int | None = None
    card: str = ""
    golden: tuple[Golden, ...] = ()
    token_ids: Mapping[str, int] = field(default_factory=dict)
    """The tokens that it is read by, with the ids that its card names."""

    def matches(self, model: str) -> bool:
        """Whether it stands for a model: a hub id, whose case doesn't matter, its name alone, or a folder of that name."""
        is_id = model.count("/") == 1 and not model.startswith((".", "/", "~"))
        pattern, name = (self.id, model) if is_id else (_base_name(self.id), _base_name(model.rstrip("/")))
        return fnmatchcase(name.lower(), pattern.lower())


class Family(ABC):
    """One kind of reward model. The default asks about one response at a time, with the conversation before it."""

    name: ClassVar[str]
    summary: ClassVar[str]
    source: ClassVar[str]
    asked: ClassVar[str]
    """With what text; like the next two for people, in a few words."""
    read_at: ClassVar[str]
    range: ClassVar[str]
    order_matters: ClassVar[bool] = False
    """Whether the answer changes with the order in which responses are shown."""
    models: ClassVar[tuple[KnownModel, ...]]
    task: ClassVar[Task] = Task.CLASSIFY
    one_pass: ClassVar[bool] = False
    """Whether a turn's reward can be read inside a longer conversation, because the token that is read is there too."""
    step_token: ClassVar[str | None] = None
    """The token at which the outputs are read wherever it stands, if each step of a response has a reward."""
    begins: ClassVar[int | None] = None
    """How many tokens for the beginning of a text a prompt has, if the family knows it better than the tokenizer."""
    ways: ClassVar[frozenset[str]] = frozenset()
    """The fields of `ReadSettings` that it knows."""
    way: ReadSettings = AS_PUBLISHED
    skips_padding: ClassVar[bool] = False
    """Whether its class in transformers reads the last token that isn't `pad_token_id`, where the engine reads the last."""
    head: ClassVar[str] = "score.weight"
    """The weights that a checkpoint without its reward head lacks."""
    reasoning: ClassVar[Reasoning | None] = None
    """What its authors do with the reasoning in what is judged, where they say it."""
    control_texts: ClassVar[tuple[str, ...]] = ()
    """Texts that speak for the template beside the tokenizer's special tokens."""
    delimiters: ClassVar[tuple[str, ...]] = ()
    """Texts that tell where in a prompt a response begins or ends (`actors/text/delimiters.py`)."""
    probes_delimiters: ClassVar[bool] = False
    """Whether more of them may be in a prompt than it names: those of the checkpoint's template, or of the user's."""

    @abstractmethod
    def fits(self, checkpoint: Checkpoint) -> bool:
        """Whether this family can read such a checkpoint, by the facts in its config.json."""

    def recognises(self, checkpoint: Checkpoint) -> bool:
        """Whether these facts alone tell that a checkpoint is of this family, whatever it is called."""
        return self.fits(checkpoint)

    def knows(self, model: str) -> KnownModel | None:
        """What is known of a model by its id."""
        return next((entry for entry in self.models if entry.matches(model)), None)

    def labels(self, checkpoint: Checkpoint) -> int:
        """How many raw outputs the engine gives for a prompt."""
        return checkpoint.labels

    def overrides(self, checkpoint: Checkpoint) -> Mapping[str, Any]:
        """What vLLM is told instead of the checkpoint's own config, so that it gives these outputs."""
        return {}

    @abstractmethod
    def outputs(self) -> tuple[str, ...]:
        """The names of the model's outputs, as they appear in `scores`."""

    @abstractmethod
    def card_weights(self) -> Mapping[str, float]:
        """The weights of the outputs in the reward, as the model card has them."""

    @abstractmethod
    def text(self, question: Question, template: ChatTemplate) -> str:
        """The exact text that the model was trained to read, up to the token where the reward is."""

    def read(self, values: Sequence[float]) -> Mapping[str, float]:
        """The named outputs in the head's raw outputs, where each response has one answer, read in one place."""
        raise NotImplementedError

    def shown(self, question: Question) -> tuple[str, ...]:
        """What must be in the text, in this order: a template may leave out, or change, what it doesn't expect."""
        principle = () if question.principle is None else (question.principle.strip(),)
        return (*map(str.strip, question.responses), *principle)

    def blank(self, question: Question, word: str) -> Question:
        """The same question with a word in place of everybody's text."""
        context = tuple(Message(message.role, word) for message in question.context)
        responses = (word,) * len(question.responses)
        return replace(question, context=context, responses=responses, principle=question.principle and word)

    @property
    def needs_principles(self) -> bool:
        """Whether it can't do without the principles of each row."""
        return False

    @property
    def takes_principles(self) -> bool:
        """Whether it goes by the principles of each row, where there are any."""
        return self.needs_principles

    @property
    def together(self) -> bool:
        """Whether responses are shown together, so that one which can't be shown is left out, and the others are judged."""
        return False

    @property
    def counts(self) -> tuple[int, ...]:
        """With how many responses it is tried out."""
        return (1,)

    def example_principle(self, word: str) -> str:
        """A principle with a word in it, to try it out with."""
        return word

    def opening(self, text: str) -> str:
        """What a prompt's text has written of the answer already."""
        return ""

    @property
    def steps(self) -> bool:
        """Whether each step of a response has a reward, too."""
        return self.step_token is not None

    def roles(self) -> frozenset[Role] | None:
        """The roles that `text` can render, or None if the checkpoint's template decides."""
        return None

    def check(self, checkpoint: Checkpoint, published: KnownModel | None = None, tensor_parallel: int = 1) -> None:
        """Raise `ModelError` if the checkpoint isn't what the family, and what is known of the model, need it to be.

        So, too, if its head can't be had where so many GPUs share a layer.
        """
        if checkpoint.tensors and self.head not in checkpoint.tensors:
            raise ModelError(
                f"{checkpoint.folder} has no {self.head}: it is a {checkpoint.architecture} without its reward head, "
                "which would be filled with random numbers. Give the reward model's own checkpoint"
            )

    def last_token(self) -> str | None:
        """The token where the reward is read, if the family knows it: it must be one token, and the prompt's last."""
        return None

    def appended(self, checkpoint: Checkpoint) -> tuple[int, ...]:
        """Token ids after those of the text."""
        return ()

    def register(self) -> None:  # noqa: B027  most need nothing
        """Tell transformers of a configuration that it has no class for. Called where it looks at the model's type."""

    def reading_by(self, settings: ReadSettings) -> Self:
        """The family that reads in this way. Raises `SettingsError` if it has no such way."""
        changed = settings.model_dump(exclude_defaults=True)
        if unknown := sorted(changed.keys() - self.ways):
            flags = ", ".join(f"--{name.replace('_', '-')}" for name in unknown)
            raise SettingsError(f"{flags}: the family {self.name} has no such way of being read")
        family = copy.copy(self)
        family.way = settings
        return family

    def reasoning_by(self, settings: RenderSettings) -> Reasoning | None:
        """What becomes of reasoning in what is judged: as the settings say, or else its authors; None if nobody does."""
        return settings.reasoning or self.reasoning

    def questions(self, request: ScoreRequest, among: Sequence[int]) -> Sequence[Question]:
        """What to ask about the responses at these positions, the others being no text that can be shown."""
        return [Question(request.context, (request.responses[at].content,), (at,)) for at in among]

    def question_count(self, responses: int, principles: int) -> int:
        """How many questions `questions` makes at most of a request with so many responses and principles."""
        return responses

    def weights(self, custom: Mapping[str, float] | None) -> Mapping[str, float]:
        """The weights of the reward: the user's own, or the card's. Raises `SettingsError` for an unknown output."""
        if custom is None:
            return self.card_weights()
        if unknown := sorted(custom.keys() - set(self.outputs())):
            raise SettingsError(
                f"weights name {', '.join(unknown)}, which {self.name} doesn't have; it has {', '.join(self.outputs())}"
            )
        if not any(custom.values()):
            raise SettingsError("all weights are 0, so every reward would be 0; give at least one that isn't")
        return custom

    def reading(self, answers: Sequence[Rows], weights: Mapping[str, float]) -> Reading:
        """What the answers to all questions about a response make: the weighted sum of the named outputs of the only one."""
        ((values,),) = answers
        return weighted_reward(self.read(values), weights)

    def compared(self, scores: Sequence[Mapping[str, float]]) -> Sequence[Mapping[str, float]]:
        """What the outputs of a request's responses say of each other, to be added to each; empty without a reward."""
        return [{} for _ in scores]


class OneLogit(Family):
    """A family that is asked with the checkpoint's own chat template, and whose reward is the one output of its head.

    A template closes each turn with the token that is read, so a turn's reward is there in a longer conversation too.
    """

    asked = "the checkpoint's chat template, without a generation prompt"
    one_pass = True

    def outputs(self) -> tuple[str, ...]:
        return ("score",)

    def card_weights(self) -> Mapping[str, float]:
        return {"score": 1.0}

    def text(self, question: Question, template: ChatTemplate) -> str:
        return template(question.messages)

    def read(self, values: Sequence[float]) -> Mapping[str, float]:
        (score,) = values
        return {"score": score}


def weighted_reward(scores: Mapping[str, float], weights: Mapping[str, float], steps: tuple[float, ...] = ()) -> Reading:
    """The weighted sum of some outputs as the reward."""
    return Reading(sum(weight * scores[name] for name, weight in weights.items()), scores, steps)


def _base_name(path: str) -> str:
    return path.rpartition("/")[2]
