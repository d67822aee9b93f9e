"""The training loop that all models go through, and the command around it."""

import argparse
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import torch
from torch import nn
from transformers import PreTrainedModel

from tiny_models.packing import collate, pack_row

MATRIX_RATE = 4e-3
OTHER_RATE = 3e-3
WARM_UP_STEPS = 30
COOL_DOWN_SHARE = 0.45
REPORT_EVERY = 25

Report = Callable[[int, Mapping[str, float]], None]
"""What is called after each step, with its number and its losses by name."""


def fit(
    model: PreTrainedModel,
    stages: Sequence[torch.optim.Optimizer],
    steps: int,
    losses: Callable[[int], Mapping[str, torch.Tensor]],
    report: Report,
) -> PreTrainedModel:
    """The model after so many steps down the sum of the losses; they are asked for with the step's number, from 1."""
    model.set_attn_implementation("eager")  # for rows of some 300 tokens on a CPU faster than sdpa
    schedules = [torch.optim.lr_scheduler.LambdaLR(stage, lambda step: rate(step + 1, steps)) for stage in stages]
    for step in range(1, steps + 1):
        parts = losses(step)
        model.zero_grad()
        torch.stack(list(parts.values())).sum().backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for stage in (*stages, *schedules):
            stage.step()
        report(step, {name: loss.item() for name, loss in parts.items()})
    model.set_attn_implementation("sdpa")
    return model.eval()


def optimizers(
    model: PreTrainedModel, trained: Sequence[nn.Module] = (), gentleness: float = 1.0
) -> list[torch.optim.Optimizer]:
    """Muon for the layers' matrices, which needs half of Adam's steps here, and Adam for the rest.

    What is `trained` already learns at this share of the rates.
    """
    matrices = [weight for weight in model.model.layers.parameters() if weight.ndim == 2]
    matrix_ids = {id(weight) for weight in matrices}
    other_weights = [weight for weight in model.parameters() if id(weight) not in matrix_ids]
    gentle = {id(weight) for module in trained for weight in module.parameters()}

    def groups(weights: Sequence[nn.Parameter], rate: float) -> list[dict[str, object]]:
        split = [
            {"params": [weight for weight in weights if id(weight) not in gentle], "lr": rate},
            {"params": [weight for weight in weights if id(weight) in gentle], "lr": gentleness * rate},
        ]
        return [group for group in split if group["params"]]

    return [
        torch.optim.Muon(groups(matrices, MATRIX_RATE), weight_decay=0.0, adjust_lr_fn="match_rms_adamw"),
        torch.optim.Adam(groups(other_weights, OTHER_RATE), betas=(0.9, 0.98)),
    ]


def rate(step: int, steps: int) -> float:
    """Share of the full learning rate: a short rise, a plateau and a straight way down to almost zero."""
    return min(1.0, step / WARM_UP_STEPS, 0.01 + (steps - step) / (COOL_DOWN_SHARE * steps))


def pick(hidden: torch.Tensor, places: Sequence[tuple[int, int]]) -> torch.Tensor:
    """The hidden states at (row, node), [places, hidden]."""
    rows, nodes = torch.tensor(places).T
    return hidden[rows, nodes]


def hidden_at_ends(model: PreTrainedModel, rows: Sequence[Sequence[Sequence[int]]]) -> list[torch.Tensor]:
    """Hidden states at the end of each row's sequences, [sequences, hidden], as float32: before and after each layer.

    The last are what the head is applied to. The sequences of a row share what they begin with: one that is the beginning
    of another costs nothing.
    """
    packed = [pack_row(row) for row in rows]
    batch = collate(packed, model.config.pad_token_id)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        reply = model.model(
            input_ids=batch.input_ids,
            position_ids=batch.position_ids,
            attention_mask=batch.attention_mask,
            output_hidden_states=True,
            use_cache=False,
        )
    ends = [(index, end) for index, row in enumerate(packed) for end in row.ends]
    return [pick(hidden, ends).float() for hidden in reply.hidden_states]


def training_options(parser: argparse.ArgumentParser, steps: int) -> None:
    """The options of each training command."""
    parser.add_argument("--out", type=Path, help="folder of the checkpoint (default: beside this file)")
    parser.add_argument("--steps", type=int, default=steps, help=f"(default {steps}: what the README's numbers come from)")


def report_to_stderr() -> Report:
    """Says on stderr every now and then how far training is."""
    started = time.monotonic()

    def report(step: int, losses: Mapping[str, float]) -> None:
        if step % REPORT_EVERY == 0:
            parts = ", ".join(f"{name} {loss:.3f}" for name, loss in losses.items())
            print(f"step {step}, {time.monotonic() - started:.0f} s: {parts}", file=sys.stderr, flush=True)

    return report
