"""A family of reward models: how they are prompted, and how their answer is read. `actors/models/` has a file for each.

A family is immutable. It turns a request into questions, a question into exactly the text that the model's authors
rendered, and the engine's raw outputs into a reward. Everything else (tokens, length, engines, Ray) is shared.
"""

import copy
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Protocol, Self

from actors.checkpoint.checkpoint_files import Checkpoint
from actors.contracts.known_model import KnownModel
from actors.engine.protocol import Task
from actors.errors import ModelError, SettingsError
from actors.records import JudgeRole, Message, Reading, Reasoning, Response, Role, ScoreRequest, ToolCall
from actors.settings.replica import AS_PUBLISHED, ReadSettings, RenderSettings
from actors.text.tool_calls import blank_calls, blank_json, write_turn

# The field of a question that holds the principle which it is about: one of the request's, or of the run's.
PRINCIPLE = JudgeRole.PRINCIPLE.value
REFERENCE = "reference"  # the field with the right answer, or one that is known to be good
CRITERIA = "criteria"  # the field with a row's own criteria, as JSON
OF_ROW = "row."  # how the names of fields begin that are columns of the row, by their path

Rows = Sequence[Sequence[float]]  # the head's raw outputs at each position where a prompt is read


class ChatTemplate(Protocol):
    """The checkpoint's own chat template. Raises `Rejected` if the template refuses.

    The reason is then `template_refused`, with the template's own words.
    """

    def __call__(self, messages: Sequence[Message], *, generation_prompt: bool = False) -> str:
        """The text of a conversation; a generation prompt opens the next assistant turn."""


@dataclass(frozen=True, slots=True)
class Question:
    """Responses to judge in one prompt, in the order in which it shows them.

    `fields` are the texts that the prompt shows beside the conversation, by name; a judge generates `times` texts. `calls`
    are those of each response, or empty if none has any.
    """

    context: tuple[Message, ...]
    responses: tuple[str, ...]
    response_positions: tuple[int, ...]
    fields: Mapping[str, str] = field(default_factory=dict, hash=False)  # a hash of the texts would take as long as they are
    times: int = 1
    calls: tuple[tuple[ToolCall, ...], ...] = ()
    tools: tuple[str, ...] = ()

    @classmethod
    def about(cls, request: ScoreRequest, positions: tuple[int, ...], principle: str | None = None, times: int = 1) -> Self:
        """The question about the responses of a request at these positions."""
        responses = [request.responses[position] for position in positions]
        calls = tuple(response.calls for response in responses)
        texts = tuple(response.content for response in responses)
        fields = request.fields if principle is None else {**request.fields, PRINCIPLE: principle}
        return cls(request.context, texts, positions, fields, times, calls if any(calls) else (), request.tools)

    @property
    def call_count(self) -> int:
        return sum(len(turn.calls) for turn in self.context) + sum(map(len, self.calls))

    @property
    def written(self) -> tuple[str, ...]:
        """The responses with their calls as text.

        For a prompt that has the conversation inside a turn, where no template writes calls.
        """
        calls = self.calls or ((),) * len(self.responses)
        return tuple(write_turn(Response("", text, of)) for text, of in zip(self.responses, calls, strict=True))

    @property
    def principle(self) -> str | None:
        return self.fields.get(PRINCIPLE)

    @property
    def messages(self) -> tuple[Message, ...]:
        """The conversation that ends with the response, where there is one."""
        (response,) = self.responses
        (calls,) = self.calls or ((),)
        return (*self.context, Message(Role.ASSISTANT, response, calls))


class Family(ABC):
    """One kind of reward model. By default a prompt has one response, after the conversation before it.

    One instance serves all runs of a process: settings make a copy (`reading_by`), and nothing is changed in place.
    """

    name: ClassVar[str]
    summary: ClassVar[str]
    source: ClassVar[str]
    prompt_form: ClassVar[str]  # its prompt; like `read_at` and `range` a few words for people
    read_at: ClassVar[str]
    range: ClassVar[str]
    order_matters: ClassVar[bool] = False  # whether the verdict depends on the order in which responses are shown
    models: ClassVar[tuple[KnownModel, ...]]
    task: ClassVar[Task] = Task.CLASSIFY
    # Whether an earlier turn's reward can be read inside a longer conversation: the token that is read is there, too.
    one_pass: ClassVar[bool] = False
    # The token at each of whose positions the outputs are read, if every step of a response has a reward.
    step_token: ClassVar[str | None] = None
    # The token where the reward is read, if the family knows it: it must be one token, and the prompt's last.
    last_token: ClassVar[str | None] = None
    # The most tokens, BOS included, of each text that a prompt is about, where training cut what was longer.
    longest_text: ClassVar[int | None] = None
    # How many BOS tokens a prompt has, where the family's text writes or omits it, whatever the tokenizer would do.
    begins: ClassVar[int | None] = None
    # The fields of `ReadSettings` that apply to it. Another one is refused, as it would change nothing.
    ways: frozenset[str] = frozenset()
    way: ReadSettings = AS_PUBLISHED
    # Whether it defines prompt and reader for any chat model, also one that is published as another family's.
    any_model: ClassVar[bool] = False
    row_outputs: ClassVar[bool] = False  # whether its scores have further names, which differ by row
    # Whether its class in transformers reads the last token that isn't `pad_token_id`, where the engine reads the last.
    skips_padding: ClassVar[bool] = False
    # Whether it reads the texts of OpenRLHF's trainer: see `ModelTokenizer.close_text`.
    by_openrlhf: ClassVar[bool] = False
    # How the architecture in its config.json ends. What stands before is the body, which may be any that vLLM has.
    architecture: ClassVar[str] = "ForSequenceClassification"
    # How many labels its config.json must have, if any: with another number it is another kind of head.
    fitting_labels: ClassVar[int | None] = None
    # Whether the config.json alone shows that a checkpoint is of this family, whatever its name.
    recognised: ClassVar[bool] = True
    head_labels: ClassVar[int | None] = None  # how many raw outputs a prompt has, if the config.json doesn't say it
    # The roles that `text` can render: one that writes the text itself has no form for others. None: the template decides.
    roles: ClassVar[frozenset[Role] | None] = None
    # Whether `text` writes tool calls itself, as text; else the template does it, or they are refused.
    writes_calls: ClassVar[bool] = False
    # The name of the reward head's weights. A checkpoint without them is refused: vLLM would draw them at random.
    head: ClassVar[str] = "score.weight"
    # What its authors do with reasoning in responses; None if they don't say, and then a corpus with reasoning is refused.
    reasoning: ClassVar[Reasoning | None] = None
    # Texts that count as control tokens, beside the tokenizer's special tokens.
    control_texts: ClassVar[tuple[str, ...]] = ()
    # Texts between which a prompt has its parts, and that no text of a row may contain (`actors/text/delimiters.py`).
    delimiters: ClassVar[tuple[str, ...]] = ()
    # Whether prompts may have more delimiters than these, from the checkpoint's template or the user's rubric.
    probes_delimiters: ClassVar[bool] = False

    def fits(self, checkpoint: Checkpoint) -> bool:
        has_labels = self.fitting_labels in (None, checkpoint.labels)
        return has_labels and checkpoint.architecture.endswith(self.architecture)

    def recognises(self, checkpoint: Checkpoint) -> bool:
        return self.recognised and self.fits(checkpoint)

    def knows(self, model: str) -> KnownModel | None:
        return next((entry for entry in self.models if entry.matches(model)), None)

    def labels(self, checkpoint: Checkpoint) -> int:
        return checkpoint.labels if self.head_labels is None else self.head_labels

    def overrides(self, checkpoint: Checkpoint) -> Mapping[str, Any]:
        """Fields of config.json that vLLM gets with other values, so that it returns these outputs.

        Empty where vLLM has the class, and gives what the family reads, without being told.
        """
        number = self.head_labels or (1 if checkpoint.omits_one_label else None)  # else vLLM would expect two
        labels = {"num_labels": number} if number else {}
        # transformers has a class for the text alone of Gemma 3 and Qwen3.5, and vLLM converts what it calls without "Text".
        body, text, head = checkpoint.architecture.partition("TextFor")
        return labels | ({"architectures": [f"{body}For{head}"]} if text else {})

    @abstractmethod
    def outputs(self) -> tuple[str, ...]:
        """The names of the model's outputs, as they appear in `scores`.

        They are columns of the results, the same for every row; those that differ by row are beside them (`row_outputs`).
        """

    def card_weights(self) -> Mapping[str, float]:
        """The weights of the outputs in the reward, as the model card has them; by default the first one is the reward."""
        return {self.outputs()[0]: 1.0}

    @abstractmethod
    def text(self, question: Question, template: ChatTemplate) -> str:
        """The exact text that the model was trained to read, up to the token where the reward is.

        Raises `Rejected` for a question that the model has no form for, such as one without a principle.
        """

    def read(self, values: Sequence[float]) -> Mapping[str, float]:
        """The named outputs from the head's raw outputs at one position; for families with one answer per response.

        Raises `ValueError` for another number of them: a head with an output more is another model's.
        """
        raise NotImplementedError

    def shown(self, question: Question) -> tuple[str, ...]:
        """The texts that the prompt must contain, in this order: templates leave out, or change, what they don't expect.

        Stripped, as most templates strip a turn. A prompt without one of them is refused.
        """
        # Stripped, as most templates strip a turn, so that a response with a line break at its end would never be found.
        principle = () if question.principle is None else (question.principle.strip(),)
        return (*map(str.strip, question.responses), *principle)

    def blank(self, question: Question, word: str) -> Question:
        """The same question with `word` in place of every text of the row: to count the template's own control tokens."""
        context = tuple(
            Message(turn.role, turn.content and word, blank_calls(turn.calls, word), turn.call_id)
            for turn in question.context
        )
        return replace(
            question,
            context=context,
            responses=tuple(response and word for response in question.responses),
            fields={name: self.example_field(name, word) for name in question.fields},
            calls=tuple(blank_calls(calls, word) for calls in question.calls),
            tools=tuple(blank_json(tool, word) for tool in question.tools),
        )

    @property
    def field_names(self) -> tuple[str, ...]:
        """The names of the fields of a request that its prompts may show, but for the principle."""
        return ()

    @property
    def needed_fields(self) -> tuple[str, ...]:
        """Those of `field_names` without which there is no prompt."""
        return ()

    @property
    def needs_principles(self) -> bool:
        """Whether every row must have principles."""
        return False

    @property
    def takes_principles(self) -> bool:
        """Whether it uses the principles of a row that has some: not where the run has its own."""
        return "principles" in self.ways and self.way.principles is None

    @property
    def together(self) -> bool:
        """Whether a prompt shows several responses; then one that can't be shown is left out, and the others are judged."""
        return False

    @property
    def counts(self) -> tuple[int, ...]:
        return (1,)

    def example_field(self, name: str, word: str) -> str:
        """A valid value of a field, or of the principle, that contains `word`, for probes."""
        return word

    def opening(self, text: str) -> str:
        """The beginning of the answer that a prompt's text has written already; empty if none."""
        return ""

    @property
    def steps(self) -> bool:
        return self.step_token is not None

    def is_within_row(self, weights: Mapping[str, float]) -> bool:
        """Whether its rewards only compare the responses of one row, and not those of different rows.

        A filter by a cut, or a rank over a corpus, means nothing for those.
        """
        return False

    def check(self, checkpoint: Checkpoint, published: KnownModel | None = None, tensor_parallel: int = 1) -> None:
        """Raise `ModelError` if the checkpoint lacks what the family, or the published model, must have.

        Also if its head can't be read where `tensor_parallel` GPUs share each layer.
        """
        # No names are known in the driver of a hub model whose weights are one file, without an index. Every replica's
        # self-test checks again, with the weights.
        if checkpoint.tensors and self.head not in checkpoint.tensors:
            raise ModelError(
                f"{checkpoint.folder} has no {self.head}: it is a {checkpoint.architecture} without its reward head, "
                f"which would be filled with random numbers. {self.advise_on_head(checkpoint)}"
            )

    def advise_on_head(self, checkpoint: Checkpoint) -> str:
        """What to do about a checkpoint without this family's head, which may have one by another name."""
        if not checkpoint.unread_heads:
            return "Give the reward model's own checkpoint"
        return (
            f"It has {', '.join(checkpoint.unread_heads)}, and {self.name} reads no head by that name: if OpenRLHF trained "
            'it, say so in config.json with "value_head_prefix": "value_head"; else it can\'t be read here'
        )

    def appended(self, checkpoint: Checkpoint) -> tuple[int, ...]:
        """Token ids that are appended to those of the text."""
        return ()

    def needed_ids(self, checkpoint: Checkpoint) -> Sequence[int]:
        """Token ids that every prompt must hold, one after another: where a gate is read, or between a prompt's parts."""
        return ()

    def register(self) -> None:  # noqa: B027  most need nothing
        """Register a configuration class that transformers lacks. Called before it looks up the model's type."""

    def of_model(self, model: str) -> Self:
        """The family as it reads a model: without principles, if that is a published one that takes none."""
        published = self.knows(model)
        if published is None or published.takes_principles:
            return self
        family = copy.copy(self)
        family.ways -= {"principles"}
        return family

    def reading_by(self, settings: ReadSettings) -> Self:
        """A copy of the family with these settings. Raises `SettingsError` for one that doesn't apply to it.

        What isn't for a family would be ignored in silence otherwise, and the run's record would name it.
        """
        changed = settings.model_dump(exclude_defaults=True)
        if unknown := sorted(changed.keys() - self.ways):
            raise SettingsError(f"{', '.join(unknown)}: the family {self.name} doesn't take these settings")
        # A copy, as one instance serves all runs of a process: a setting on it would leak into the next model's numbers.
        family = copy.copy(self)
        family.way = settings
        return family

    def reasoning_by(self, settings: RenderSettings) -> Reasoning | None:
        """What to do with reasoning in responses: as the settings say, or else the authors; None if neither does."""
        return settings.reasoning or self.reasoning

    def without_unread(self, request: ScoreRequest) -> ScoreRequest:
        """The request without the principles and fields that no prompt shows."""
        fields = {name: request.fields[name] for name in self.field_names if name in request.fields}
        return replace(request, principles=request.principles if self.takes_principles else (), fields=fields)

    def questions(self, request: ScoreRequest, among: Sequence[int]) -> Sequence[Question]:
        """The questions about the responses at the positions `among`; the others can't be shown.

        A family that is asked about each principle, or in several orders, has several about a response.
        """
        return [Question.about(request, (position,)) for position in among]

    def question_count(self, request: ScoreRequest) -> int:
        """The most questions that `questions` returns for a request.

        Known before a prompt is rendered, so that a request with too many is refused at once, and memory has a bound.
        """
        return len(request.responses)

    def weights(self, custom: Mapping[str, float] | None) -> Mapping[str, float]:
        """The weights of the reward: the user's `custom` ones, or the card's. Raises `SettingsError` for unknown outputs."""
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
        """The reading of a response from the answers to all questions about it. By default there is exactly one."""
        # One prompt, read at one position. Unpacking raises for any other number, which a mean or `[0]` would hide.
        ((values,),) = answers
        return weighted_reward(self.read(values), weights)

    def compared(self, scores: Sequence[Mapping[str, float]]) -> Sequence[Mapping[str, float]]:
        """Outputs that compare the responses of a request, to be added to each; `scores` is empty without a reward."""
        return [{}] * len(scores)

    @property
    def compares(self) -> bool:
        """Whether a response's outputs depend on the others of its request, also where each has a prompt of its own.

        Then the score store keeps the request as a whole. Derived, so that no family with `compared` can forget to say it.
        """
        return type(self).compared is not Family.compared


class OneLogit(Family):
    """A family with the checkpoint's chat template as prompt, and one output of its head as reward.

    A template closes each turn with the token that is read, so a turn's reward can also be read in a longer conversation.
    """

    prompt_form = "the checkpoint's chat template, without a generation prompt"
    one_pass = True

    def outputs(self) -> tuple[str, ...]:
        return ("score",)

    def text(self, question: Question, template: ChatTemplate) -> str:
        return template(question.messages)

    def read(self, values: Sequence[float]) -> Mapping[str, float]:
        (score,) = values
        return {"score": score}


def check_token_ids(checkpoint: Checkpoint, published: KnownModel | None, ids: Mapping[str, int]) -> None:
    """Raise `ModelError` if a published model is read by other tokens than the tokenizer has."""
    if published is not None and published.token_ids and ids != published.token_ids:
        raise ModelError(
            f"{published.id} is read by {dict(published.token_ids)}, and the tokenizer in {checkpoint.folder} has {ids}"
            ": it isn't the one that the model was published with"
        )


def weighted_reward(scores: Mapping[str, float], weights: Mapping[str, float], steps: tuple[float, ...] = ()) -> Reading:
    """The weighted sum of some outputs as the reward.

    Raises `KeyError` for a weight whose output isn't there; of named outputs `Family.weights` has checked that they exist.
    """
    # By the weights' names: a named output without a weight stays in `scores`, and counts for nothing.
    return Reading(sum(weight * scores[name] for name, weight in weights.items()), scores, steps)
