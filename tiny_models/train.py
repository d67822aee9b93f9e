"""Trains a tiny reward model from scratch: `python -m tiny_models.train attributes|scalar [--out DIR]`.

One thread, so that the same seed on the same kind of machine gives the same weights.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path
from random import Random

import torch
from safetensors.torch import save_file
from torch.nn import functional
from transformers import PreTrainedModel, PreTrainedTokenizerFast

from tiny_models.families import FAMILIES, SPEAKING_LAYERS, Family
from tiny_models.fitting import Report, fit, optimizers, pick, report_to_stderr, training_options
from tiny_models.packing import collate
from tiny_models.rows import EASY, FULL, Row, assistant, draw_row
from tiny_models.synthetic import Pair, Turn, pairs

SEED = 340
HELD_OUT_SEED = 1
HELD_OUT_PAIRS = 2000
STEPS = 1500
EASY_SHARE = 0.4
ROWS_PER_STEP = 4


def train(family: Family, steps: int, report: Report) -> PreTrainedModel:
    """A trained model."""
    torch.manual_seed(SEED)
    rng = Random(f"train {family.name} {SEED}")
    model = family.build(family.tokenizer)

    def losses(step: int) -> dict[str, torch.Tensor]:
        mixes = EASY if step < EASY_SHARE * steps else FULL
        return _losses(family, model, [draw_row(rng, family, mixes) for _ in range(ROWS_PER_STEP)])

    return fit(model, optimizers(model), steps, losses, report)


def _losses(family: Family, model: PreTrainedModel, rows: Sequence[Row]) -> dict[str, torch.Tensor]:
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
    return {"judging": torch.stack(losses).mean(), "speaking": speaking}


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
    training_options(parser, STEPS)
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    family = FAMILIES[options.family]()
    model = train(family, options.steps, report_to_stderr())
    model.half().float()  # what is measured is what is stored
    save(family.tokenizer, model, options.out or Path(__file__).parent / family.name)
    shares = accuracies(family, model, list(pairs(HELD_OUT_SEED, HELD_OUT_PAIRS, "held-out")))
    print(f"{family.name}: share of {HELD_OUT_PAIRS} held-out pairs ranked right")
    print("\n".join(f"  {kind:9} {share:.2%}" for kind, share in shares.items()))


if __name__ == "__main__":
    main()
