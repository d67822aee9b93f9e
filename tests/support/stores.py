"""Rendered requests, and a scorer that counts what it is asked, for tests of score stores."""

import math
import threading
from collections.abc import Sequence

from actors.records import JudgeAnswer, Prompt, Reason, RenderedRequest, RenderedResponse, Score, Status
from actors.scorers.head_scorer import Scores


def request(*ids: Sequence[int], names: Sequence[str] = (), **more: object) -> RenderedRequest:
    """A request with a prompt for each of its responses."""
    responses = tuple(RenderedResponse(name) for name in names or [f"response[{position}]" for position in range(len(ids))])
    return RenderedRequest(
        "hash",
        responses,
        tuple(Prompt(tuple(some), (position,), **more) for position, some in enumerate(ids)),  # type: ignore[arg-type]
    )


def pair(first: Sequence[int], second: Sequence[int], names: Sequence[str] = ("A", "B")) -> RenderedRequest:
    """A request whose only prompt shows two responses."""
    return RenderedRequest("hash", tuple(map(RenderedResponse, names)), (Prompt((*first, *second), (0, 1), times=2),))


class CountingScorer:
    """A `score_block` whose rewards have many digits, and that fails prompts which hold `fails`."""

    def __init__(self, fails: int = -1) -> None:
        self.fails = fails
        self.prompts: list[tuple[int, ...]] = []
        self._lock = threading.Lock()

    def __call__(self, requests: Sequence[RenderedRequest]) -> list[Scores]:
        """Score requests."""
        with self._lock:
            self.prompts += [tuple(prompt.ids) for request in requests for prompt in request.prompts]
        return [
            tuple(response.refusal or self._score(request, position) for position, response in enumerate(request.responses))
            for request in requests
        ]

    def _score(self, rendered: RenderedRequest, position: int) -> Score:
        prompts = [prompt for prompt in rendered.prompts if position in prompt.response_positions]
        tokens = sum(len(prompt.ids) for prompt in prompts)
        if any(self.fails in prompt.ids for prompt in prompts):
            return Score.failed(Reason.ENGINE_TIMEOUT, tokens)
        reward = math.sin(sum(sum(prompt.ids) + prompt.response_positions.index(position) for prompt in prompts))
        shown = tuple(rendered.responses[index].name for index in prompts[0].response_positions)
        return Score(
            Status.SCORED,
            reward=reward,
            scores={"help": reward / 3, "zero": -0.0},
            prompt_tokens=tokens,
            truncated=rendered.responses[position].truncated,
            steps=(reward, 1e-300),
            votes=(0.1 + 0.2, reward),
            completion_tokens=7,
            trace=(JudgeAnswer(shown, None, "half a character \ud83d", "stop", 1.0, None),),
            cached_tokens=3,
        )
