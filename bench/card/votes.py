"""A judge with votes: what the prefix cache and `--stop` save."""

import asyncio
import copy
import time
from collections import defaultdict
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import Any, Self

from actors.contracts.judge import Verdict
from actors.engine.protocol import Engine, Generation, Sampling
from actors.models.genrm import GenrmBoxed
from actors.records import Message, Prompt, Response, Role, ScoreRequest
from bench.card.hosts import on_gpu
from bench.card.weights import write_writer
from bench.speed import SIZES, Size, conversations

VOTES, QUESTIONS, VOTE_TOKENS = 32, 16, 128
AGREEING = 0.9
"""Share of the votes that say what most say."""


class AgreeingJudge(GenrmBoxed):
    """A judge of two responses whose verdicts are made up: of ten votes, nine prefer the first response of the row."""

    first = True
    """Whether the first response of the row is shown first."""

    def for_prompt(self, prompt: Prompt) -> Self:
        """The judge for one order of the two."""
        judge = copy.copy(self)
        judge.first = min(prompt.response_positions) == prompt.response_positions[0]
        return judge

    def made_up(self, rng: Random, shown: int) -> Verdict:
        """A clear verdict for the response that this vote prefers."""
        agrees = rng.random() < AGREEING
        merits = (2.5, -2.5) if agrees == self.first else (-2.5, 2.5)
        return Verdict(tuple({"score": 3 + merit / 1.25, "margin": merit} for merit in merits), merits)


@dataclass
class Counted:
    """A judge's engine that counts its tokens, and takes each text as one that ended, as those of made-up weights don't.

    Every prompt gets another beginning, that of a `way` to ask, so that none is in the cache from an earlier way. Not
    `cached`: that of each vote differs, so that none is in it at all. `in_turn`: of each prompt, a vote waits for the one
    before it.
    """

    engine: Engine
    way: str
    cached: bool = True
    in_turn: bool = False
    computed: int = 0
    prompts: int = 0
    written: int = 0

    def __post_init__(self) -> None:
        self._draw = Random(self.way)
        self._beginning = self._draw_beginning()
        self._turns: defaultdict[tuple[int, ...], Any] = defaultdict(asyncio.Lock if self.in_turn else nullcontext)

    async def generate(self, ids: Sequence[int], sampling: Sampling, context: str = "") -> Sequence[Generation]:
        """See `Engine`."""
        async with self._turns[tuple(ids)]:
            beginning = self._beginning if self.cached else self._draw_beginning()
            generations = await self.engine.generate([*beginning, *ids[len(beginning) :]], sampling, context)
        self.prompts += len(ids)
        self.computed += sum(generation.computed_tokens for generation in generations)
        self.written += sum(len(generation.token_ids) for generation in generations)
        return [replace(generation, finish_reason="stop") for generation in generations]

    def _draw_beginning(self) -> list[int]:
        return [self._draw.randrange(10, 700) for _ in range(8)]


def measure_votes(name: str, place: Path) -> None:
    """32 votes on each question: all at once as our scorer asks them, without the cache, with `--stop`, one by one."""
    from actors.launch.start_engine import start_engine
    from actors.rendering.renderer import Renderer
    from actors.reward_model import resolve_model
    from actors.scorers.judge_scorer import JudgeScorer
    from actors.settings.replica import EngineSettings, JudgeSettings, ModelSettings, RenderSettings

    size = SIZES[name]
    votes, questions, tokens = (VOTES, QUESTIONS, VOTE_TOKENS) if on_gpu() else (8, 2, 16)
    dummy = write_writer(place / "judge", size, "genrm")
    arguments = {"kv_cache_memory_bytes": (40 << 30) if on_gpu() else 1 << 28, **dummy}
    asks = JudgeSettings(votes=votes, max_tokens=tokens, aggregate="win-rate")
    model = resolve_model(ModelSettings(model=str(place / "judge"), family="genrm-boxed", judge=asks), RenderSettings())
    renderer = Renderer(model, RenderSettings())
    live = start_engine(model, EngineSettings(engine_args=arguments))
    ways: dict[str, dict[str, bool]] = {
        "warm-up": {},
        "all at once": {},
        "all at once, without the prefix cache": {"cached": False},
        "with --stop": {},
        "one by one": {"in_turn": True},
    }
    print(f"\n{name}, {questions} questions with {votes} votes of {tokens} tokens, of which {AGREEING:.0%} agree\n")
    print("| votes | time | of all at once | votes taken | prompts' tokens | of them computed | tokens written |")
    print("|---|---|---|---|---|---|---|")
    baseline = 0.0
    requests = renderer.render(_questions(size, questions))
    for title, options in ways.items():
        judge = AgreeingJudge().with_settings(asks.model_copy(update={"stop": title == "with --stop"}))
        engine: Any = Counted(live, title, **options)
        scorer = JudgeScorer(judge, model.weights, engine, tokens, rehearsal=True)
        start = time.monotonic()
        scores = live.submit(scorer.score(requests)).result()
        seconds = time.monotonic() - start
        if title == "warm-up":
            continue
        baseline = baseline or seconds
        firsts = [first for first, _ in scores]
        taken = sum(score.scores.get("votes_taken", votes) for score in firsts) / len(firsts)
        preferred = sum(score.reward > 0.5 for score in firsts if score.reward is not None)
        print(
            f"| {title} | {seconds:.2f} s | {seconds / baseline:.2f} | {taken:.1f} | {engine.prompts:,} | "
            f"{engine.computed:,} | {engine.written:,} |",
            flush=True,
        )
        assert preferred == questions, f"{title}: {preferred} of {questions} verdicts are those of most votes"
    live.close()


def _questions(size: Size, count: int) -> list[ScoreRequest]:
    """Questions with two responses each."""
    turns = list(conversations(size, 0, 2 * count))
    return [
        ScoreRequest((Message(Role.USER, question),), (Response("a", answer), Response("b", other)))
        for (question, answer), (_, other) in zip(turns[::2], turns[1::2], strict=True)
    ]
