"""Trains a tiny reward model from scratch: `python -m tiny_models.train attributes|scalar [--out DIR]`.

One thread, so that the same seed on the same kind of machine gives the same weights.
"""

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random

import torch
from safetensors.torch import save_file
from torch import nn
from torch.nn import functional
from transformers import PreTrainedModel, PreTrainedTokenizerFast

from tiny_models.families import FAMILIES, SPEAKING_LAYERS, Family
from tiny_models.packing import collate
from tiny_models.rows import EASY, FULL, Row, assistant, draw_row
from tiny_models.synthetic import Pair, Turn, pairs

SEED = 340
HELD_OUT_SEED = 1
HELD_OUT_PAIRS = 2000
STEPS = 1500
EASY_SHARE = 0.4
ROWS_PER_STEP = 4
MATRIX_RATE = 4e-3
OTHER_RATE = 3e-3
WARM_UP_STEPS = 30
COOL_DOWN_SHARE = 0.45


@dataclass(frozen=True, slots=True)
class Progress:
    """Losses after so many steps."""

    step: int
    judging: float
    speaking: float


def train(family: Family, steps: int, progress: Callable[[Progress, PreTrainedModel], None]) -> PreTrainedModel:
    """A trained model; `progress` is called after each step."""
    torch.manual_seed(SEED)
    rng = Random(f"train {family.name} {SEED}")
    model = family.build(family.tokenizer)
    model.set_attn_implementation("eager")  # for rows of some 300 tokens on a CPU faster than sdpa
    stages = optimizers(model)
    schedules = [torch.optim.lr_scheduler.LambdaLR(stage, lambda step: rate(step + 1, steps)) for stage in stages]
    for step in range(1, steps + 1):
        mixes = EASY if step < EASY_SHARE * steps else FULL
        judging, speaking = _losses(family, model, [draw_row(rng, family, mixes) for _ in range(ROWS_PER_STEP)])
        model.zero_grad()
        (judging + speaking).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for stage in (*stages, *schedules):
            stage.step()
        progress(Progress(step, judging.item(), speaking.item()), model)
    model.set_attn_implementation("sdpa")
    return model.eval()


def optimizers(
    model: PreTrainedModel, known: Sequence[nn.Module] = (), gentleness: float = 1.0
) -> list[torch.optim.Optimizer]:
    """Muon for the layers' matrices, which needs half of Adam's steps here, and Adam for the rest.

    What is `known` already learns at this share of the rates.
    """
    matrices = [weight for weight in model.model.layers.parameters() if weight.ndim == 2]
    chosen = {id(weight) for weight in matrices}
    others = [weight for weight in model.parameters() if id(weight) not in chosen]
    gentle = {id(weight) for module in known for weight in module.parameters()}

    def groups(weights: Sequence[nn.Parameter], rate: float) -> list[dict[str, object]]:
        split = [
            {"params": [weight for weight in weights if id(weight) not in gentle], "lr": rate},
            {"params": [weight for weight in weights if id(weight) in gentle], "lr": gentleness * rate},
        ]
        return [group for group in split if group["params"]]

    return [
        torch.optim.Muon(groups(matrices, MATRIX_RATE), weight_decay=0.0, adjust_lr_fn="match_rms_adamw"),
        torch.optim.Adam(groups(others, OTHER_RATE), betas=(0.9, 0.98)),
    ]


def rate(step: int, steps: int) -> float:
    """Share of the full learning rate: a short rise, a plateau and a straight way down to almost zero."""
    return min(1.0, step / WARM_UP_STEPS, 0.01 + (steps - step) / (COOL_DOWN_SHARE * steps))


def _losses(family: Family, model: PreTrainedModel, rows: Sequence[Row]) -> tuple[torch.Tensor, torch.Tensor]:
    """The family's loss, and one for saying the right answer halfway up, which teaches what there is to judge by."""
    batch = collate([row.packed for row in rows], family.tokenizer.pad_token_id)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        reply = model.model(
            input_ids=batch.input_ids,
            position_ids=batch.position_ids,
            attention_mask=batch.attention_mask,
            output_hidden_states=True,
            use_cache=False,
        )
        before = [(index, row.packed.parents[node]) for index, row in enumerate(rows) for node in row.spoken]
        halfway = model.model.norm(pick(reply.hidden_states[SPEAKING_LAYERS], before))
        spoken = functional.linear(halfway, model.get_input_embeddings().weight)
    after = [row.packed.tokens[node] for row in rows for node in row.spoken]
    speaking = functional.cross_entropy(spoken.float(), torch.tensor(after))

    ends = [(index, end) for index, row in enumerate(rows) for end in row.packed.ends]
    outputs = model.score(pick(reply.last_hidden_state, ends).float())
    cases = [case for row in rows for case in row.cases]
    shares = outputs.split([len(case.responses) for case in cases])
    losses = [family.loss(share, case.responses) for share, case in zip(shares, cases, strict=True)]
    return torch.stack(losses).mean(), speaking


def pick(hidden: torch.Tensor, places: Sequence[tuple[int, int]]) -> torch.Tensor:
    """The hidden states at (row, node), [places, hidden]."""
    rows, nodes = torch.tensor(places).T
    return hidden[rows, nodes]


def accuracies(family: Family, model: PreTrainedModel, held_out: Sequence[Pair]) -> dict[str, float]:
    """Share of pairs whose right response has the higher reward, per kind of question and under "all"."""
    chosen = rewards(family, model, [[*pair.context, assistant(pair.chosen)] for pair in held_out])
    rejected = rewards(family, model, [[*pair.context, assistant(pair.rejected)] for pair in held_out])
    wins: dict[str, list[bool]] = {}
    for pair, win in zip(held_out, (chosen > rejected).tolist(), strict=True):
        wins.setdefault(pair.kind, []).append(win)
        wins.setdefault("all", []).append(win)
    return {kind: sum(won) / len(won) for kind, won in sorted(wins.items())}


@torch.inference_mode()
def rewards(family: Family, model: PreTrainedModel, conversations: Sequence[list[Turn]]) -> torch.Tensor:
    """The reward of each conversation's last turn, [n], by plain forward passes over its whole text."""
    results: list[torch.Tensor] = []
    for start in range(0, len(conversations), 50):
        texts = [family.render(conversation) for conversation in conversations[start : start + 50]]
        batch = family.tokenizer(texts, add_special_tokens=False, padding=True, return_tensors="pt")
        hidden = model.model(**batch).last_hidden_state
        last = batch["attention_mask"].sum(dim=1) - 1
        results.append(family.reward(model.score(hidden[torch.arange(len(texts)), last])))
    return torch.cat(results)


def save(tokenizer: PreTrainedTokenizerFast, model: PreTrainedModel, folder: Path) -> None:
    """A checkpoint for transformers and vLLM: numbers stored as float16, to be computed with as float32."""
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save_pretrained(folder)
    model.config.dtype = torch.float32
    model.config.architectures = [type(model).__name__]
    model.config.save_pretrained(folder)
    if model.can_generate():
        model.generation_config.save_pretrained(folder)
    state = {name: weight.half().contiguous() for name, weight in model.state_dict().items()}
    save_file(state, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "model.safetensors").chmod(0o644)  # save_file leaves it to its owner alone


def main(arguments: Sequence[str] | None = None) -> None:
    """Trains one of the two models, saves it and says how often it is right about questions it has not seen."""
    parser = argparse.ArgumentParser(prog="python -m tiny_models.train", description=main.__doc__)
    parser.add_argument("family", choices=sorted(FAMILIES))
    parser.add_argument("--out", type=Path, help="folder of the checkpoint (default: beside this file)")
    parser.add_argument("--steps", type=int, default=STEPS, help=f"(default {STEPS}: what the README's numbers come from)")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    started = time.monotonic()

    def progress(now: Progress, _: PreTrainedModel) -> None:
        if now.step % 25 == 0:
            losses = f"judging {now.judging:.3f}, speaking {now.speaking:.3f}"
            print(f"step {now.step}, {time.monotonic() - started:.0f} s: {losses}", file=sys.stderr, flush=True)

    family = FAMILIES[options.family]()
    model = train(family, options.steps, progress)
    model.half().float()  # what is measured is what is stored
    save(family.tokenizer, model, options.out or Path(__file__).parent / family.name)
    shares = accuracies(family, model, list(pairs(HELD_OUT_SEED, HELD_OUT_PAIRS, "held-out")))
    print(f"{family.name}: share of {HELD_OUT_PAIRS} held-out pairs ranked right")
    print("\n".join(f"  {kind:9} {share:.2%}" for kind, share in shares.items()))


if __name__ == "__main__":
    main()
