"""Makes the reward head that is shown tool calls: `python -m tiny_models.tools [--out DIR] [--steps N]`.

It begins with what `r3` knows, under a template with tools after those of Hermes and Qwen2.5. Of two calls it rewards the
one with the function and the numbers that the question asks for, and of two answers after a call the one that says what the
tool gave back, even if that is wrong: what doesn't see a call, each of its arguments and the tool's answer is at chance.
"""

import argparse
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import torch
from torch.nn import functional
from transformers import PreTrainedModel, PreTrainedTokenizerFast

from tiny_models.causal import HERE
from tiny_models.fitting import Report, fit, hidden_at_ends, optimizers, report_to_stderr, training_options
from tiny_models.generative import load_model, qwen3_head
from tiny_models.judge_tokenizer import judge_tokenizer, save_tokenizer
from tiny_models.judging import Case, draw_case
from tiny_models.tasks import Kind, Split
from tiny_models.train import save
from tiny_models.transplant import outputs

SEED = 2718
STEPS = 2000
ROWS_PER_STEP = 16
HELD_OUT_SEED = 1
HELD_OUT = 1000
SENTENCES = ("{}", "It is {}.", "The answer is {}.")
TEMPLATE = """\
{%- if tools %}
    {{- '<|im_start|>system\\n' }}
    {%- if messages[0].role == 'system' %}
        {{- messages[0].content ~ '\\n\\n' }}
    {%- endif %}
    {{- '# Tools\\n\\nYou may call one or more functions.\\n<tools>' }}
    {%- for tool in tools %}
        {{- '\\n' ~ (tool | tojson) }}
    {%- endfor %}
    {{- '\\n</tools><|im_end|>\\n' }}
{%- endif %}
{%- for message in messages %}
    {%- if message.role == 'tool' %}
        {{- '<|im_start|>user\\n<tool_response>\\n' ~ message.content ~ '\\n</tool_response><|im_end|>\\n' }}
    {%- elif message.role not in ['system', 'user', 'assistant'] %}
        {{- raise_exception('Unknown role ' ~ message.role ~ ', expected one of: system, user, assistant, tool') }}
    {%- elif not (tools and loop.first and message.role == 'system') %}
        {{- '<|im_start|>' ~ message.role ~ '\\n' ~ message.content }}
        {%- for call in message.tool_calls or [] %}
            {{- '\\n' if message.content or not loop.first }}
            {{- '<tool_call>\\n{"name": "' ~ call.function.name ~ '", "arguments": ' }}
            {{- (call.function.arguments | tojson) ~ '}\\n</tool_call>' }}
        {%- endfor %}
        {{- '<|im_end|>\\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
{%- endif %}
"""

Message = Mapping[str, Any]


def schema(name: str) -> Message:
    """A function of two numbers, as a tool."""
    numbers = {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}}
    return {"type": "function", "function": {"name": name, "parameters": numbers}}


TOOLS = [schema("add"), schema("subtract")]


@dataclass(frozen=True, slots=True)
class ToolPair:
    """A conversation, the tools that are there, and two turns to go on with, the better first."""

    context: list[Message]
    tools: list[Message]
    chosen: Message
    rejected: Message


def tool_pairs(seed: int, n: int, split: Split) -> Iterator[ToolPair]:
    """`n` pairs: of calls, and of answers after a call."""
    rng = Random(f"tools {split} {seed}")
    for _ in range(n):
        yield draw_pair(rng, split)


def draw_pair(rng: Random, split: Split) -> ToolPair:
    """One of these."""
    case = draw_case(rng, split, 1, system=True)
    name, numbers = _function(case)
    tools = TOOLS if rng.random() < 0.5 else []
    if rng.random() < 0.5:
        return ToolPair([*case.context], tools, call(name, *numbers), _wrong_call(rng, name, numbers))
    options = (case.task.answer, *case.task.wrong)
    right = case.task.answer if rng.random() < 0.5 else rng.choice(options)
    wrong = rng.choice([option for option in options if option != right])
    sentence = rng.choice(SENTENCES)
    chosen, rejected = ({"role": "assistant", "content": sentence.format(number)} for number in (right, wrong))
    return ToolPair([*case.context, call(name, *numbers), {"role": "tool", "content": right}], tools, chosen, rejected)


def call(name: str, first: int, second: int) -> Message:
    """A turn with a call and without text."""
    function = {"name": name, "arguments": {"a": first, "b": second}}
    return {"role": "assistant", "content": "", "tool_calls": [{"type": "function", "function": function}]}


def _function(case: Case) -> tuple[str, tuple[int, int]]:
    _, _, first, second = case.task.key.split("|")
    return "add" if case.task.kind is Kind.ADD else "subtract", (int(first), int(second))


def _wrong_call(rng: Random, name: str, numbers: tuple[int, int]) -> Message:
    """With one mistake: the function, or one of the numbers."""
    mistake = rng.randrange(3)
    if mistake == 2:
        return call("subtract" if name == "add" else "add", *numbers)
    changed = list(numbers)
    changed[mistake] = rng.choice([number for number in range(19) if number != numbers[mistake]])
    return call(name, *changed)


def encode_pair(tokenizer: PreTrainedTokenizerFast, pair: ToolPair) -> list[list[int]]:
    """Token ids of the conversation with each turn, the better first."""
    return [
        tokenizer.apply_chat_template([*pair.context, turn], tools=pair.tools or None, return_dict=False)
        for turn in (pair.chosen, pair.rejected)
    ]


def make(folder: Path, steps: int, report: Report) -> tuple[PreTrainedTokenizerFast, PreTrainedModel]:
    """Trains and stores the model."""
    torch.manual_seed(SEED)
    rng = Random(f"train tools {SEED}")
    tokenizer = judge_tokenizer("r3")
    tokenizer.chat_template = TEMPLATE
    model = qwen3_head(tokenizer)
    model.model.load_state_dict(load_model(HERE / "r3").model.state_dict())

    def losses(_: int) -> dict[str, torch.Tensor]:
        rows = [encode_pair(tokenizer, draw_pair(rng, "train")) for _ in range(ROWS_PER_STEP)]
        rewards = model.score(hidden_at_ends(model, rows)[-1])[:, 0]
        chosen, rejected = rewards.unflatten(0, (-1, 2)).unbind(dim=1)
        # The small pull to zero makes the scale comparable between questions, which the comparisons alone do not.
        return {"judging": functional.softplus(rejected - chosen).mean() + 0.005 * rewards.square().mean()}

    model = fit(model, optimizers(model), steps, losses, report)
    model.half().float()  # what is measured is what is stored
    save(tokenizer, model, folder)
    save_tokenizer(tokenizer, folder)
    return tokenizer, model


def accuracies(tokenizer: PreTrainedTokenizerFast, model: PreTrainedModel, pairs: Sequence[ToolPair]) -> dict[str, float]:
    """Share of pairs whose better turn has the higher reward, of each kind."""
    ids = [sequence for pair in pairs for sequence in encode_pair(tokenizer, pair)]
    rewards = torch.stack([output[-1, 0] for output in outputs(model, ids)])
    chosen, rejected = rewards.unflatten(0, (-1, 2)).unbind(dim=1)
    won: dict[str, list[bool]] = {}
    for pair, win in zip(pairs, (chosen > rejected).tolist(), strict=True):
        won.setdefault("calls" if "tool_calls" in pair.chosen else "answers", []).append(win)
    return {kind: sum(wins) / len(wins) for kind, wins in sorted(won.items())}


def main(arguments: Sequence[str] | None = None) -> None:
    """Trains the model, saves it and says how often it is right about questions it has not seen."""
    parser = argparse.ArgumentParser(prog="python -m tiny_models.tools", description=main.__doc__)
    training_options(parser, STEPS)
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    tokenizer, model = make(options.out or HERE / "tools", options.steps, report_to_stderr())
    shares = accuracies(tokenizer, model, list(tool_pairs(HELD_OUT_SEED, HELD_OUT, "held-out")))
    print(f"tools: share of {HELD_OUT} held-out pairs ranked right")
    print("\n".join(f"  {kind:8} {share:.2%}" for kind, share in shares.items()))


if __name__ == "__main__":
    main()
