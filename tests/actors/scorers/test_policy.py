"""What a policy wrote, as it is judged: with the marks of its reasoning, which decide what of it is the answer."""

import re
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from tokenizers import AddedToken
from transformers import AutoTokenizer

from actors.checkpoint.checkpoint_files import locate
from actors.engine.fake_engine import FakeEngine
from actors.engine.protocol import Generation, Sampling
from actors.records import Reason
from actors.rendering.model_tokenizer import special_tokens
from actors.scorers.policy import CandidatePrompt, GeneratedCandidate, PolicyWriter, resolve_policy, seed_of
from actors.settings.replica import PolicySettings
from actors.text.reasoning import MARKS, SplitText, split_reasoning
from pipelines.data.formats import with_policy_system
from pipelines.run.prepare.policy_prompts import PromptPreparation, PromptRow
from pipelines.run.prepare.score_requests import Preparation
from tests.support.models import LANGUAGE_MODEL_WEIGHTS, SCALAR_CONFIG, request, system, user, write_model

CAUSAL = {**SCALAR_CONFIG, "architectures": ["LlamaForCausalLM"]}
TEMPLATE = "{{ bos_token }}{% for message in messages %}{{ message.role }}: {{ message.content }}<|end|>{% endfor %}"


class Spelling(FakeEngine):
    """An engine that gives the ids of special tokens, 100 and on, where a text has them: not those only spelt in it."""

    def __init__(self, special: Sequence[str], spelt: Sequence[str], **settings: Any) -> None:
        super().__init__(1, 512, vocabulary=10, **settings)
        self._numbers = {text: 100 + at for at, text in enumerate(special) if text not in spelt}

    async def generate(self, ids: Sequence[int], sampling: Sampling, context: str = "") -> tuple[Generation, ...]:
        (generation,) = await super().generate(ids, sampling)
        tokens = re.compile("|".join(map(re.escape, self._numbers)) or r"(?!)").findall(generation.text)
        return (replace(generation, token_ids=(1, *(self._numbers[token] for token in tokens))),)


def candidate_of(
    text: str, special: Sequence[str], opening: str = "", spelt: Sequence[str] = (), **sampling: Any
) -> GeneratedCandidate:
    """A candidate of a policy that writes a text, which an engine gives without special tokens unless they are kept.

    Those in `spelt` are written in ordinary characters.
    """

    def reply(ids: Sequence[int], sampling: Sampling, number: int) -> str:
        removed = "|".join(map(re.escape, set(special) - set(spelt)))
        return re.sub(removed, "", text) if removed and not sampling.keep_special else text

    with closing(Spelling(special, spelt, reply=reply)) as engine:
        texts = {100 + at: token for at, token in enumerate(special)}
        writer = PolicyWriter(Sampling(**{"max_tokens": 100, **sampling}), engine, texts)
        ((candidate,),) = writer.draw_block([CandidatePrompt([1, 2], (0,), opening)])
    return candidate


def test_marks_of_reasoning_that_are_special_tokens_stay_in_the_text() -> None:
    for begin, end in ((mark.begin, mark.end) for mark in MARKS if not mark.paired):
        candidate = candidate_of(f"{begin} I guess <|other|> {end} The answer.", [begin, end, "<|other|>"])
        assert candidate.reason is None
        assert split_reasoning(candidate.text) == SplitText(True, "The answer.")
        assert "<|other|>" not in candidate.text


def test_characters_that_spell_a_special_token_stay_in_the_text() -> None:
    special = ["<think>", "</think>", "<s>", "<|end|>"]
    candidate = candidate_of("<think> Hm. </think> Use <s>old</s>.<|end|>", special, spelt=["<s>"])
    assert candidate.text == "<think> Hm. </think> Use <s>old</s>."
    assert candidate_of("Use <s>old</s>.", ["<s>"], spelt=["<s>"]).text == "Use <s>old</s>."


def test_parts_of_marks_that_are_special_tokens_stay_too() -> None:
    """gpt-oss's."""
    special = ["<|channel|>", "<|message|>", "<|start|>", "<|end|>", "<|return|>"]
    text = "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>final<|message|>Seven."
    assert split_reasoning(candidate_of(text, special).text) == SplitText(True, "Seven.")


def test_reasoning_that_never_ends_is_no_answer() -> None:
    begun = candidate_of("I guess that", (), "<think>")
    assert (begun.reason, split_reasoning(begun.text)) == (None, SplitText(True, None))
    assert split_reasoning(candidate_of("<think> I guess that", ["<think>", "</think>"]).text) == SplitText(True, None)
    assert split_reasoning(candidate_of("Hm. Stop here", (), "<think>", stop=("Stop",)).text) == SplitText(True, None)
    assert candidate_of("I guess that", (), "<think>", max_tokens=2).reason is Reason.UNFINISHED


def test_what_a_prompt_has_opened_is_in_the_text() -> None:
    candidate = candidate_of("a tag, `</think>`?\n</think>\n\nSeven.", (), "<think>")
    assert candidate.text.startswith("<think>a tag")


def test_special_tokens_without_a_mark_are_left_to_the_engine() -> None:
    assert candidate_of("Seven. <|other|>", ["<|other|>"]).text.strip() == "Seven."


def test_a_policys_tokenizer_and_template_tell_its_marks(tmp_path: Path) -> None:
    tokenizer = AutoTokenizer.from_pretrained(locate("tiny-scalar"))
    tokenizer.add_tokens([AddedToken("[THINK]", special=True), AddedToken("<plain>", special=False)])
    opens = "{% if add_generation_prompt %}assistant: [THINK]\n{% endif %}"
    for name, template in (("plain", TEMPLATE), ("opens", TEMPLATE + opens)):
        write_model(tmp_path / name, config=CAUSAL, weights=LANGUAGE_MODEL_WEIGHTS, tokenizer=tokenizer, template=template)
    for name, opening in (("plain", ""), ("opens", "[THINK]")):
        policy = resolve_policy(PolicySettings(policy=str(tmp_path / name)))
        special = special_tokens(policy)
        assert {"[THINK]", "<pad>"} <= set(special.values())
        assert "<plain>" not in special.values()
        assert [special[number] for number in tokenizer.convert_tokens_to_ids(["[THINK]", "<pad>"])] == ["[THINK]", "<pad>"]
        asking = PromptPreparation(cast(Preparation, None), policy, None)  # rows are there already
        (row,) = asking.rendered([PromptRow(request(user("Hi"), to=()))])
        assert row.opening == opening


def test_candidates_are_drawn_as_the_settings_say() -> None:
    settings = PolicySettings(
        policy="tiny-policy", policy_max_tokens=9, policy_temperature=0.7, policy_top_p=0.5, policy_stop=("\n",)
    )
    assert resolve_policy(settings).sampling == Sampling(max_tokens=9, temperature=0.7, top_p=0.5, stop=("\n",))
    greedy = settings.model_copy(update={"policy_temperature": 0.0})
    assert resolve_policy(greedy).sampling == Sampling(max_tokens=9, stop=("\n",)), "the likeliest token, whatever the share"


def test_a_rows_system_prompt_takes_the_place_of_the_policys() -> None:
    assert with_policy_system((user("Hi"),), "Be brief.") == (system("Be brief."), user("Hi"))
    assert with_policy_system((system("Be kind."), user("Hi")), "Be brief.") == (system("Be kind."), user("Hi"))
    assert with_policy_system((user("Hi"),), None) == (user("Hi"),)


def test_seeds_differ_by_row_by_number_and_by_run() -> None:
    seeds = [seed_of(base, row, at) for base in (0, 1) for row in ("a:1", "a:10", "b:1") for at in range(12)]
    assert len(set(seeds)) == len(seeds)
    assert all(0 <= seed < 2**31 for seed in seeds)
    assert seed_of(0, "prompts.jsonl:0", 0) == 1797170907, "another one would draw other candidates when a run is resumed"
