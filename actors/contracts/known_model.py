"""What is known of a published model: its id, licence and limits, and conversations with known rewards."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from types import MappingProxyType
from typing import Self

from actors.records import Message, Response, Role, ScoreRequest

_SNAPSHOT = re.compile(r"(?:.*/)?models--([^/]+)/snapshots/[^/]+/*")  # where the hub's cache has a model, at a commit


@dataclass(frozen=True, slots=True)
class Golden:
    """A conversation with known rewards: published by the authors, or measured with transformers in float32.

    Each replica repeats it before its first row, and refuses to start where a reward is off by more than `tolerance`.
    """

    request: ScoreRequest
    rewards: tuple[float, ...]
    """One for each response, in the request's order."""
    tolerance: float
    output: str | None = None
    """The name of the output that `rewards` are of, where the authors publish one; None for the reward."""

    @classmethod
    def each(
        cls, question: str, rewards: Mapping[str, float], tolerance: float, principle: str | None = None
    ) -> tuple[Self, ...]:
        return tuple(cls.answers(question, {answer: reward}, tolerance, principle) for answer, reward in rewards.items())

    @classmethod
    def answers(
        cls,
        context: str | tuple[Message, ...],
        rewards: Mapping[str, float],
        tolerance: float,
        principle: str | None = None,
        fields: Mapping[str, str] = MappingProxyType({}),
        *,
        output: str | None = None,
    ) -> Self:
        """A conversation, and answers to it with their rewards, or that output of them.

        The answers are the responses of one request, so that a judge of several sees them side by side.
        """
        turns = (Message(Role.USER, context),) if isinstance(context, str) else context
        responses = tuple(Response(f"golden[{position}]", answer) for position, answer in enumerate(rewards))
        request = ScoreRequest(turns, responses, (principle,) if principle else (), fields=fields)
        return cls(request, tuple(rewards.values()), tolerance, output)


@dataclass(frozen=True, slots=True)
class KnownModel:
    """A published model of a family, or all models whose ids match a pattern: `Skywork/Skywork-Reward-*`.

    `context` is the number of tokens on which it was trained, as its card says; `card` is the source of that.
    """

    id: str
    note: str
    licence: str = "its card's"
    context: int | None = None
    card: str = ""
    golden: tuple[Golden, ...] = ()
    takes_principles: bool = True
    """Whether it can be asked about principles, if its family can."""
    token_ids: Mapping[str, int] = field(default_factory=dict)
    """The tokens whose logits or log-probabilities are read, with the ids in its own tokenizer."""
    limits: str = ""
    """What else its card restricts, in a few words: who may use it, or what it can't be shown."""

    @classmethod
    def built_in(
        cls,
        name: str,
        golden: tuple[Golden, ...],
        note: str = "for trying things out and for tests",
        token_ids: Mapping[str, int] = MappingProxyType({}),
    ) -> Self:
        return cls(name, f"built in; {note}", "Apache-2.0", golden=golden, token_ids=token_ids)

    @property
    def terms(self) -> str:
        """Licence, training length and limits, for people, with their source; empty for a tiny checkpoint of ours."""
        if "/" not in self.id:
            return ""
        trained = f"trained on up to {self.context:,} tokens" if self.context else ""
        source = f" ({self.card})" if self.card else ""
        return "; ".join(filter(None, (f"licence: {self.licence}", trained, self.limits))) + source

    def matches(self, model: str) -> bool:
        """Whether this entry is for a model, given as hub id (in any case), as its name alone, or as a folder so named.

        A folder in the hub's cache counts as the id that its path has, since its name is that of a commit.
        """
        if cached := _SNAPSHOT.fullmatch(model):
            model = cached[1].replace("--", "/", 1)
        # An id is compared whole: `somebody/Skywork-Reward-8B` is another upload, whose weights nobody published. A path has
        # no owner to compare, so its last name counts; `./` tells a folder one level down from an id.
        is_id = model.count("/") == 1 and not model.startswith((".", "/", "~"))
        pattern, name = (self.id, model) if is_id else (_base_name(self.id), _base_name(model.rstrip("/")))
        return fnmatchcase(name.lower(), pattern.lower())


def _base_name(path: str) -> str:
    return path.rpartition("/")[2]
