"""What texts share at their beginning is tokenised once, and every id is the one that the whole text has there."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from actors.checkpoint.checkpoint_files import locate
from actors.records import Reason, ScoreRequest
from actors.rendering.prompt_writer import PromptWriter
from actors.rendering.renderer import Renderer
from actors.rendering.request_draft import MOST_PROMPTS
from actors.reward_model import resolve_model
from actors.settings.replica import JudgeSettings, ModelSettings, Pairs, RenderSettings, TooLong
from actors.text.stems import PrefixSharingTokenizer
from tests.support.examples import examples
from tests.support.models import ATTRIBUTES, SCALAR, assistant, renderer, request, user

LETTERS = "ab ▁\n\té é<|>＜endx"
CONTEXT = (user("What is 3 + 4? " * 400), assistant("It is 7."), user("Sure?"))


def record_texts(rendering: Renderer, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The texts that the tokenizer is given from now on."""
    seen_texts: list[str] = []
    tokenize = rendering._stems._tokenize

    def counting(texts: list[str]) -> list[list[int]]:
        seen_texts.extend(texts)
        return tokenize(texts)

    monkeypatch.setattr(rendering._stems, "_tokenize", counting)
    return seen_texts


@pytest.mark.parametrize("model", [SCALAR, ATTRIBUTES])
def test_a_context_is_tokenised_once_for_all_responses(model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rendering = renderer(model, max_model_len=None)
    responses = [f"It is {at}." for at in range(50)]
    alone = [rendering.render([request(*CONTEXT, to=response)])[0] for response in responses]
    texts = record_texts(rendering, monkeypatch)
    (together,) = rendering.render([request(*CONTEXT, to=responses)])
    assert [prompt.ids for prompt in together.prompts] == [result.prompts[0].ids for result in alone if result.prompts]
    length = sum(len(turn.content) for turn in CONTEXT)
    assert sum(map(len, texts)) < 2 * length + 50 * 200


def metaspace(first: str) -> Any:
    """A tokenizer that puts a sign before the first word of a text, or of each piece of it."""
    alphabet = {letter: at for at, letter in enumerate(sorted({*LETTERS, "▁"}))}
    made = Tokenizer(models.BPE({**alphabet, "ab": 90, "▁a": 91, "<unk>": 92}, [("a", "b"), ("▁", "a")], unk_token="<unk>"))
    if first == "prepend":
        made.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    elif first == "nfkc":
        made.normalizer = normalizers.NFKC()
        made.pre_tokenizer = pre_tokenizers.Whitespace()
    else:
        made.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme=first)
    made.decoder = decoders.Metaspace()
    return made


def with_tokens(made: Tokenizer, *tokens: AddedToken) -> Any:
    made.add_special_tokens(list(tokens))
    return PreTrainedTokenizerFast(tokenizer_object=made)


END = AddedToken("<end>", special=True, normalized=False)
TOKENIZERS = {
    "scalar": lambda: (AutoTokenizer.from_pretrained(locate(SCALAR)), "<|end|>"),
    "attributes": lambda: (AutoTokenizer.from_pretrained(locate(ATTRIBUTES)), "<extra_id_1>"),
    "first": lambda: (with_tokens(metaspace("first"), END), "<end>"),
    "always": lambda: (with_tokens(metaspace("always"), END), "<end>"),
    "prepend": lambda: (with_tokens(metaspace("prepend"), END), "<end>"),
    "nfkc": lambda: (with_tokens(metaspace("nfkc"), END), "<end>"),
    "strips": lambda: (
        with_tokens(metaspace("first"), AddedToken("<end>", special=True, normalized=False, rstrip=True, lstrip=True)),
        "<end>",
    ),
}


@pytest.mark.parametrize("name", TOKENIZERS)
def test_ids_are_those_of_the_whole_text_whatever_the_tokenizer_does_at_a_border(name: str) -> None:
    made: tuple[Any, str] = TOKENIZERS[name]()  # type: ignore[no-untyped-call]
    tokenizer, end = made

    def tokenize(texts: list[str]) -> list[list[int]]:
        id_lists: list[list[int]] = tokenizer(texts, add_special_tokens=False)["input_ids"] if texts else []
        return id_lists

    stems = PrefixSharingTokenizer(tokenizer, tokenize, [f"say{end}b"], shortest=1)
    assert stems.cutters == (end,)
    piece = st.one_of(
        st.text(LETTERS, max_size=4), st.sampled_from([end, end[1:], end[:-1], f"{end} ", f" {end}", f"x{end}"])
    )
    text = st.lists(piece, max_size=6).map("".join)

    @examples(150)
    @given(text, text, st.lists(text, min_size=1, max_size=5))
    def check(context: str, middle: str, endings: list[str]) -> None:
        texts = [f"{context}{end}{rest}" for ending in endings for rest in (ending, f"{middle}{end}{ending}")]
        assert stems.tokenized(texts) == tokenize(texts)

    check()


@pytest.mark.parametrize(
    "tokens",
    [
        (AddedToken("<end>", special=True, normalized=True),),
        (AddedToken("<end>", special=True, normalized=False, single_word=True),),
        (END, AddedToken("<end>\nb", special=True, normalized=False)),
        (END, AddedToken("a<", special=True, normalized=False)),
        (END, AddedToken("x<end", special=True, normalized=False)),
    ],
    ids=["normalised", "single word", "begins a longer one", "its beginning ends another", "inside another's end"],
)
def test_a_token_that_what_is_around_it_can_change_cuts_nothing(tokens: tuple[AddedToken, ...]) -> None:
    tokenizer = with_tokens(metaspace("first"), *tokens)
    stems = PrefixSharingTokenizer(
        tokenizer, lambda texts: tokenizer(texts, add_special_tokens=False)["input_ids"], ["say<end>b"], shortest=1
    )
    assert "<end>" not in stems.cutters
    texts = ["a <end>b", "a <end>\nb"]
    assert stems.tokenized(texts) == tokenizer(texts, add_special_tokens=False)["input_ids"]


class Left(Exception):
    """Nobody waits any more."""


class Looks:
    """Somebody who leaves at the n-th look."""

    def __init__(self, at: int) -> None:
        self.count, self._at = 0, at

    def __call__(self) -> None:
        self.count += 1
        if self.count == self._at:
            raise Left


ENDLESS = "a" * 200_000
"""Certainly longer than a model takes."""
MANY_TURNS = [turn for _ in range(40) for turn in (user("why " * 300), assistant("so"))]


@pytest.mark.parametrize(
    ("model", "score_request"),
    [
        (SCALAR, request(*CONTEXT, to=["a"] * 100)),
        (SCALAR, request(user(ENDLESS), to=["a"] * 100)),
        (SCALAR, request(*MANY_TURNS, user("?"), to=["a"])),
        ("tiny-reward-anything", request(user("Hi"), to=["a"] * 100)),
    ],
    ids=["prompts", "none of which fits", "turns to drop", "shown together"],
)
def test_work_ends_before_the_next_prompt_when_nobody_waits(model: str, score_request: ScoreRequest) -> None:
    how = RenderSettings(too_long=TooLong.TRIM_TURNS)
    rendering, looks = Renderer(resolve_model(ModelSettings(model=model), how), how), Looks(3)
    with pytest.raises(Left):
        rendering.render([score_request], looks)
    assert looks.count == 3


@pytest.mark.parametrize("prompt", [ENDLESS, [5] * 200_000], ids=["text", "ids"])
def test_what_certainly_doesnt_fit_isnt_tokenised(monkeypatch: pytest.MonkeyPatch, prompt: str | list[int]) -> None:
    rendering = renderer(SCALAR)
    monkeypatch.setattr(rendering.tokenizer, "ids", _never)
    assert [response.reason for response in rendering.from_rendered(prompt).responses] == [Reason.TOO_LONG]


def _never(*_: Any) -> Any:
    raise AssertionError("work was begun")


# How many prompts a row comes to.


def too_many(model: ModelSettings, responses: int, principles: int) -> list[Reason | None]:
    rendering = Renderer(resolve_model(model, RenderSettings()), RenderSettings())
    plain = request(user("Hi"), to=["a"] * responses)
    (result,) = rendering.render([ScoreRequest(plain.context, plain.responses, ("correctness",) * principles)])
    assert not result.prompts
    return list({response.reason for response in result.responses})


def test_a_row_of_too_many_prompts_is_rejected_before_any_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PromptWriter, "text", _never_after_the_probe(PromptWriter.text))
    assert too_many(ModelSettings(model="tiny-principle"), 300, 300) == [Reason.TOO_MANY_PROMPTS]
    every = ModelSettings(model="tiny-genrm", judge=JudgeSettings(votes=2, pairs=Pairs.ALL))
    assert too_many(every, 300, 0) == [Reason.TOO_MANY_PROMPTS]
    assert too_many(ModelSettings(model="tiny-scalar"), MOST_PROMPTS + 1, 0) == [Reason.TOO_MANY_PROMPTS]


def _never_after_the_probe(text: Any) -> Any:
    def checked(self: PromptWriter, question: Any) -> Any:
        assert "probe" in question.responses[0], "a prompt was made"
        return text(self, question)

    return checked


@pytest.mark.parametrize(
    ("model", "judge"),
    [
        ("tiny-scalar", JudgeSettings()),
        ("tiny-principle", JudgeSettings()),
        ("tiny-genrm-principle", JudgeSettings(votes=3)),
        ("tiny-genrm", JudgeSettings()),
        ("tiny-genrm", JudgeSettings(votes=2)),
        ("tiny-genrm", JudgeSettings(votes=4, pairs=Pairs.ALL)),
        ("tiny-genrm-json", JudgeSettings(pairs=Pairs.ACTIVE)),
        ("tiny-reward-anything", JudgeSettings(votes=3)),
    ],
)
def test_no_family_asks_more_than_it_says(model: str, judge: JudgeSettings) -> None:
    family = resolve_model(ModelSettings(model=model, judge=judge), RenderSettings()).family
    for responses in (1, 2, 3, 6):
        for principles in (0, 1, 4):
            score_request = request(user("Hi"), to=["a"] * responses)
            whole = ScoreRequest(score_request.context, score_request.responses, ("correctness",) * principles)
            made = len(family.questions(whole, range(responses)))
            most = family.question_count(whole)
            assert made <= most <= 2 * made + 2 * max(principles, 1)
