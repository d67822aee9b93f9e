"""What is stored by itself, under which key, and in which form.

An entry holds the scores of all responses that were judged together: of one response, where a prompt shows one and no
output compares it with others, else of the whole request. Its key is a digest of the identity and of all that the scorer is
given: token ids, positions, votes, and what rendering noted. The votes' seeds are made of the identity's seed, the token ids
and the number of the vote (`Judge.sampling`), and never of a row's place: equal keys ask for equal votes.
"""

import hashlib
import json
from array import array
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import astuple, dataclass, replace
from typing import Any

from actors.records import JudgeAnswer, Prompt, Reason, RenderedRequest, Score, Status
from actors.scorers.head_scorer import Scores

KEY_BYTES = 32

# Not `cached_tokens` and `detail`: they say how a score came about this time, and are compared with nothing.
_PLAIN_FIELDS = (
    *("status", "reason", "reward", "prompt_tokens", "truncated", "reasoned"),
    *("steps", "votes", "completion_tokens"),
)


@dataclass(frozen=True, slots=True)
class StoredUnit:
    """Responses of a request, by their positions in it, that are scored and stored together; alone they are `request`."""

    request: RenderedRequest
    positions: tuple[int, ...]

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(response.name for response in self.request.responses)


def units_of(request: RenderedRequest, *, compares: bool) -> list[StoredUnit]:
    """Cut a request into what can be scored by itself; responses that were rejected before any prompt are in no unit.

    `compares`: outputs of a response depend on the others of the request (`Family.compares`).
    """
    by_position: dict[int, list[Prompt]] = defaultdict(list)
    for prompt in request.prompts:
        by_position[prompt.response_positions[0]].append(prompt)
    # The last condition holds for what `Renderer` makes: a response without a reason has a prompt. One that had neither
    # would be in no unit, and would be lost between the others' scores; so then the request stays whole.
    judged = {position for position, response in enumerate(request.responses) if response.reason is None}
    is_apart = (
        not compares
        and all(len(prompt.response_positions) == 1 for prompt in request.prompts)
        and by_position.keys() == judged
    )
    if not is_apart:
        return [StoredUnit(request, tuple(range(len(request.responses))))]
    return [_unit_of(request, position, prompts) for position, prompts in sorted(by_position.items())]


def _unit_of(request: RenderedRequest, position: int, prompts: Sequence[Prompt]) -> StoredUnit:
    alone = tuple(replace(prompt, response_positions=(0,)) for prompt in prompts)
    return StoredUnit(replace(request, responses=(request.responses[position],), prompts=alone), (position,))


def key_of(identity: str, unit: StoredUnit) -> bytes:
    """The key of a unit: SHA-256 over the identity's digest and everything that its scores depend on.

    The names of the responses aren't in it: no number depends on them.
    """
    request = unit.request
    # Every field that decides a score; a test compares them with those of `Prompt`.
    described = json.dumps(
        [
            identity,
            [[response.reason, response.truncated, response.reasoned] for response in request.responses],
            [
                [
                    prompt.response_positions,
                    prompt.at,
                    prompt.times,
                    prompt.opening,
                    prompt.principle,
                    prompt.redraw,
                    prompt.criteria,
                    len(prompt.ids),
                    *prompt.texts,
                ]
                for prompt in request.prompts
            ],
        ]
    ).encode()
    # The lengths are in the description, so that no two different requests give the same bytes.
    digest = hashlib.sha256(f"{len(described)}:".encode() + described)
    for prompt in request.prompts:
        digest.update(array("q", prompt.ids).tobytes())
    return digest.digest()


def is_lasting(scores: Scores) -> bool:
    """Whether the outcome would come again: none of the responses failed.

    A failure, such as a time-out, isn't kept: the next run asks the engine again.
    """
    return all(score.status is not Status.FAILED for score in scores)


def encode(unit: StoredUnit, scores: Scores) -> bytes:
    """The scores of a unit as JSON, whose numbers read back to the last bit.

    In a judge's texts the names of responses become positions, as another row may have other names for equal responses.
    """
    return json.dumps([_score_to_json(score, unit.names) for score in scores], allow_nan=False).encode()


def decode(unit: StoredUnit, value: bytes, *, from_store: bool = True) -> Scores:
    """The scores that `encode` wrote, with the names of this unit's responses.

    Raises `ValueError`, `KeyError`, `TypeError` or `IndexError` for anything else.
    """
    scores = tuple(_score_from_json(fields, unit.names, from_store) for fields in json.loads(value))
    if len(scores) != len(unit.positions):
        raise ValueError(f"{len(scores)} scores of {len(unit.positions)} responses")
    return scores


def _score_to_json(score: Score, names: Sequence[str]) -> dict[str, Any]:
    trace = [[[names.index(name) for name in answer.shown], *astuple(answer)[1:]] for answer in score.trace]
    return {**{name: getattr(score, name) for name in _PLAIN_FIELDS}, "scores": dict(score.scores), "trace": trace}


def _score_from_json(fields: dict[str, Any], names: Sequence[str], from_store: bool) -> Score:
    trace = (
        JudgeAnswer(tuple(names[position] for position in shown), principle, text, finish, vote, reason and Reason(reason))
        for shown, principle, text, finish, vote, reason in fields["trace"]
    )
    # JSON has no enums and no tuples, and scores are compared with those that were just computed.
    typed = {
        "status": Status(fields["status"]),
        "reason": fields["reason"] and Reason(fields["reason"]),
        "scores": fields["scores"],
        "steps": tuple(fields["steps"]),
        "votes": tuple(fields["votes"]),
        "trace": tuple(trace),
    }
    return Score(**{**{name: fields[name] for name in _PLAIN_FIELDS}, **typed}, from_store=from_store)
