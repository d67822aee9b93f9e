"""Trains one of the judges that write: `python -m tiny_models.learn_judging NAME [--out DIR] [--steps N]`.

One thread, so that the same seed on the same kind of machine gives the same weights. `r3` is an adapter to the stored
`genrm-principle`, so it comes after that one, and makes two folders: the adapter's, and one with both in one.
"""

import argparse
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from random import Random

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerFast

from tiny_models.causal import HERE
from tiny_models.dialects import (
    DIALECTS,
    Judgement,
    about_principle,
    criteria,
    genrm_principle,
    judgements,
    r3,
    r3_draft,
    reward_anything,
    rm_r1,
    without_system_turn,
)
from tiny_models.fitting import Report, fit, optimizers, report_to_stderr
from tiny_models.generative import (
    NO,
    YES,
    encode,
    generate_answers,
    llama,
    load_model,
    loss,
    qwen2,
    qwen3,
    qwen3_moe,
    save,
    sums_loss,
    transplant,
)
from tiny_models.judge_tokenizer import judge_tokenizer
from tiny_models.judging import Case, Principle, draw_case, sums
from tiny_models.lora import adapt, merge, save_adapter
from tiny_models.tasks import Split

SEED = 4949
STEPS = {
    "genrm-principle": 900,
    "genrm": 1100,
    "genrm-json": 700,
    "rm-r1": 800,
    "reward-anything": 1100,
    "r3": 500,
    "criteria": 2000,
}
ROWS_PER_STEP = 32
HELD_OUT_SEED = 1
HELD_OUT = 1000
SUM_ROWS, SUMS_PER_ROW = 4, 12
RANK = 16
BASE = "genrm-principle"

BUILDS: Mapping[str, Callable[[PreTrainedTokenizerFast], PreTrainedModel]] = {
    "genrm-principle": qwen3,
    "genrm": llama,
    "genrm-json": qwen3_moe,
    "rm-r1": qwen2,
    "reward-anything": qwen3,
    "criteria": qwen3,
}
GROWN = {"genrm-json": BASE, "reward-anything": BASE, "rm-r1": "genrm", "criteria": "r3"}
"""What a judge knows to begin with: the stored weights of another."""
MIXES: Mapping[str, Mapping[Callable[[Random, Split], Judgement], int]] = {
    "genrm-principle": {genrm_principle: ROWS_PER_STEP, r3_draft: 8},
    "rm-r1": {rm_r1: 16},
    "reward-anything": {reward_anything: 24},
    "r3": {r3: 16},
    "criteria": {criteria: 16},
}
"""Rows of each kind in a step: fewer of long ones. An adapter's base has to know what it adapts to, but for the verdict."""
BRIEF = {"reward-anything": lambda tokenizer, judgement: encode(tokenizer, without_system_turn(judgement))}
"""How a judge is asked at first, where its system turn is longer than all the rest and always the same."""
BRIEF_SHARE = 0.8
MARKERS = {
    "genrm-principle": "Final Judgement:",
    "genrm": "[The Begin of Individual Scores]",
    "genrm-json": "```json",
    "rm-r1": "<answer>",
    "reward-anything": "{",
    "r3": '"score"',
    "criteria": '"verdict"',
}
"""What the verdict begins with, after the thinking."""


def train(
    name: str, model: PreTrainedModel, tokenizer: PreTrainedTokenizerFast, steps: int, report: Report
) -> PreTrainedModel:
    """The model after so many steps of writing what it is to write."""
    rng = Random(f"train {name} {SEED}")
    kinds = MIXES.get(name, {DIALECTS[name]: ROWS_PER_STEP})

    def losses(step: int) -> dict[str, torch.Tensor]:
        encode_judgement = BRIEF.get(name, encode) if step < BRIEF_SHARE * steps else encode
        # Apart, because short rows would be padded to the length of the long ones.
        row_groups = [
            [encode_judgement(tokenizer, kind(rng, "train")) for _ in range(count)] for kind, count in kinds.items()
        ]
        parts = {f"writing {number}": loss(model, rows) for number, rows in enumerate(row_groups)}
        return parts | {"sums": sums_loss(tokenizer, model, [sums(rng, SUMS_PER_ROW) for _ in range(SUM_ROWS)])}

    return fit(model, optimizers(model), steps, losses, report)


def make(
    name: str, folder: Path, steps: int, report: Report, start: Path | None = None
) -> tuple[PreTrainedTokenizerFast, PreTrainedModel]:
    """Trains and stores the judge of this name."""
    torch.manual_seed(SEED)
    tokenizer = judge_tokenizer(name)
    if name in BUILDS:
        model = BUILDS[name](tokenizer)
        start_folder = start or (folder.with_name(GROWN[name]) if name in GROWN else None)
        if start_folder:
            transplant(model, load_model(start_folder))
        model = train(name, model, tokenizer, steps, report)
    else:
        model = load_model(folder.with_name(BASE))
        adapt(model, RANK)
        model = train(name, model, tokenizer, steps, report)
        save_adapter(model, folder.with_name(f"{name}-lora"), BASE)
        merge(model)
    model.half().float()  # what is measured is what is stored
    save(tokenizer, model, folder)
    return tokenizer, model


def shares(name: str, tokenizer: PreTrainedTokenizerFast, model: PreTrainedModel) -> dict[str, float]:
    """Of held-out judgements: how many verdicts are right, of all and where one of two responses is right and asked for."""
    held_out = list(judgements(name, HELD_OUT_SEED, HELD_OUT, "held-out"))
    rows = [encode(tokenizer, judgement) for judgement in held_out]
    replies = [tokenizer.decode(ids) for ids in generate_answers(tokenizer, model, [row.prompt for row in rows])]
    verdicts: dict[str, list[bool]] = {}
    for judgement, row, reply in zip(held_out, rows, replies, strict=True):
        expected = tokenizer.decode(row.answer)
        is_right = verdict(name, reply) == verdict(name, expected)
        kinds = ["all", f"{len(judgement.case.answers)} responses", f"by {judgement.principle}"]
        if len({answer.right for answer in judgement.case.answers}) == 2 and judgement.principle in {None, "correctness"}:
            kinds.append("right and wrong")
        for kind in kinds:
            verdicts.setdefault(kind, []).append(is_right)
        verdicts.setdefault("word for word", []).append(reply == expected)
    return {kind: sum(results) / len(results) for kind, results in sorted(verdicts.items())}


def verdict(name: str, reply: str) -> str:
    """That part of a reply, which may hold several."""
    conclusion = reply.rpartition("</think>")[2]
    if name == "criteria":  # an engine holds it to the names, and nobody reads its reasons
        return " ".join(re.findall(r'"verdict":"(\w+)"', conclusion))
    return conclusion[max(0, conclusion.rfind(MARKERS[name])) :]


@torch.inference_mode()
def log_odds(tokenizer: PreTrainedTokenizerFast, model: PreTrainedModel, batch: Sequence[Judgement]) -> list[float]:
    """Of Yes against No where each verdict stands, after what the model itself writes; NaN where no verdict comes."""
    yes, no = (tokenizer.encode(word, add_special_tokens=False)[0] for word in (YES, NO))
    prompts = [encode(tokenizer, judgement).prompt for judgement in batch]
    odds: list[float] = []
    for prompt, reply in zip(prompts, generate_answers(tokenizer, model, prompts), strict=True):
        logits = model(torch.tensor([prompt + reply[:-2]])).logits[0, -1]
        odds.append((logits[yes] - logits[no]).item() if reply[-2:-1] in ([yes], [no]) else float("nan"))
    return odds


def by_principle(tokenizer: PreTrainedTokenizerFast, model: PreTrainedModel) -> dict[str, float]:
    """What the log-odds of the principle's judge are like: for one right and one wrong response to the same question."""
    rng = Random(f"pairs {HELD_OUT_SEED}")
    right: list[Judgement] = []
    wrong: list[Judgement] = []
    while len(right) < HELD_OUT // 4:
        case = draw_case(rng, "held-out", 2, system=True)
        if case.answers[0].right > case.answers[1].right:
            for judged, answer in zip((right, wrong), case.answers, strict=True):
                judged.append(about_principle(Case(case.context, case.task, (answer,)), Principle.CORRECTNESS))
    high, low = (log_odds(tokenizer, model, judged) for judged in (right, wrong))
    sizes = sorted(abs(odds) for odds in (*high, *low))
    won = [a > b for a, b in zip(high, low, strict=True)]
    return {"pairs": sum(won) / len(won), "least log-odds": sizes[0], "median": sizes[len(sizes) // 2], "most": sizes[-1]}


def main(arguments: Sequence[str] | None = None) -> None:
    """Trains the judge, saves it and says how often it is right about questions it has not seen."""
    parser = argparse.ArgumentParser(prog="python -m tiny_models.learn_judging", description=main.__doc__)
    parser.add_argument("name", choices=DIALECTS)
    parser.add_argument("--out", type=Path, help="folder of the checkpoint (default: beside this file)")
    parser.add_argument("--start", type=Path, help="folder of a checkpoint of its shape to go on from (not for r3)")
    parser.add_argument("--steps", type=int, help=f"(default, what the README's numbers come from: {STEPS})")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    tokenizer, model = make(
        options.name,
        options.out or HERE / options.name,
        options.steps or STEPS[options.name],
        report_to_stderr(),
        options.start,
    )
    print(f"{options.name}: shares of {HELD_OUT} held-out judgements whose verdict is right")
    print("\n".join(f"  {kind:15} {share:.2%}" for kind, share in shares(options.name, tokenizer, model).items()))
    if options.name == BASE:
        print("\n".join(f"  {kind:15} {value:.3f}" for kind, value in by_principle(tokenizer, model).items()))


if __name__ == "__main__":
    main()
