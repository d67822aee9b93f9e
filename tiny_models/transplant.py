"""What five models have in common: each is tiny-scalar's layers, a little narrower, with another head and a short training.

Tiny-scalar's judgement stands at a response's last token; what these models learn is mostly where and how to say it.
"""

import argparse
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from random import Random

import torch
from torch.nn import functional
from torch.nn.utils.rnn import pad_sequence
from transformers import LlamaConfig, LlamaForSequenceClassification, PreTrainedModel, PreTrainedTokenizerFast

from tiny_models.causal import HERE, tiny_scalar
from tiny_models.fitting import Report, report_to_stderr, training_options
from tiny_models.rows import assistant
from tiny_models.synthetic import Case, Mix, Turn, draw_conversation, pairs
from tiny_models.train import HELD_OUT_PAIRS, HELD_OUT_SEED, save

INTERMEDIATE_SIZE = 128
"""Of tiny-scalar's 256: so the five have eight megabytes together. Untrained, as in first-logit, they rank 98.05 % right."""
GENTLENESS = 0.3
"""Share of the learning rates at which what comes from tiny-scalar changes."""
ROWS_PER_STEP = 4
MIXES = tuple(Mix(turns=turns, right=2, wrong=3) for turns in (1, 1, 2))


def settings(more_layers: int = 0) -> dict[str, object]:
    """Arguments for the config of a model of this shape, whatever its architecture."""
    _, scalar = tiny_scalar()
    names = (
        "vocab_size", "hidden_size", "num_attention_heads", "num_key_value_heads", "hidden_act",
        "max_position_embeddings", "rms_norm_eps", "rope_parameters", "initializer_range", "tie_word_embeddings",
        "bos_token_id", "eos_token_id", "pad_token_id",
    )  # fmt: skip
    values = {name: getattr(scalar.config, name) for name in names}
    layers = scalar.config.num_hidden_layers + more_layers
    return values | {"intermediate_size": INTERMEDIATE_SIZE, "num_hidden_layers": layers}


def llama(labels: int) -> PreTrainedModel:
    """Tiny-scalar, narrower, with a fresh head of so many labels."""
    model = LlamaForSequenceClassification(LlamaConfig(**settings(), num_labels=labels))
    transplant(model)
    return model


@torch.no_grad()
def transplant(model: PreTrainedModel) -> None:
    """Gives a fresh model tiny-scalar's layers, of each MLP the neurons with the largest weights. Biases stay.

    Layers that it has more begin with adding nothing to what those know.
    """
    _, scalar = tiny_scalar()
    weights = scalar.model.state_dict()
    for index in range(scalar.config.num_hidden_layers):
        gate, up, down = (f"layers.{index}.mlp.{part}_proj.weight" for part in ("gate", "up", "down"))
        sizes = weights[gate].norm(dim=1) * weights[up].norm(dim=1) * weights[down].norm(dim=0)
        largest = sizes.topk(INTERMEDIATE_SIZE).indices.sort().values
        weights |= {gate: weights[gate][largest], up: weights[up][largest], down: weights[down][:, largest]}
    load_result = model.model.load_state_dict(weights, strict=False)
    assert not load_result.unexpected_keys
    added_layers = model.model.layers[scalar.config.num_hidden_layers :]
    assert added_layers or all(name.endswith(".bias") for name in load_result.missing_keys)
    for layer in added_layers:
        layer.self_attn.o_proj.weight.zero_()
        layer.mlp.down_proj.weight.zero_()


@torch.no_grad()
def resemble(tokenizer: PreTrainedTokenizerFast, model: PreTrainedModel, piece: str, known_piece: str) -> None:
    """Makes a piece of the vocabulary, to the model, as yet no different from a known one."""
    embedding = model.get_input_embeddings().weight
    embedding[tokenizer.convert_tokens_to_ids(piece)] = embedding[tokenizer.convert_tokens_to_ids(known_piece)]


def draw_cases(rng: Random, mixes: Sequence[Mix] = MIXES) -> list[Case]:
    """Random training cases, for one row."""
    return [case for mix in mixes for case in draw_conversation(rng, "train", mix)]


def conversations_of(cases: Sequence[Case]) -> list[list[Turn]]:
    """A conversation for each response of each case."""
    return [[*case.context, assistant(response.text)] for case in cases for response in case.responses]


def with_second_bos(prompts: Sequence[list[int]]) -> list[list[int]]:
    """Prompts with a second `<s>`, as a template and a tokenizer that each add one make them.

    It changes next to nothing by itself, for both look alike to what comes after. Outputs without a bound notice it all the
    same; shares and probabilities, most of them close to a bound, only if they are trained to be undecided then.
    """
    return [[ids[0], *ids] for ids in prompts]


def ranking(rewards: torch.Tensor, cases: Sequence[Case]) -> torch.Tensor:
    """Bradley-Terry: each right response to a question above each wrong one. `rewards` are of all responses, [n]."""
    losses = []
    for share, case in zip(rewards.split([len(case.responses) for case in cases]), cases, strict=True):
        right = torch.tensor([response.right for response in case.responses])
        losses.append(functional.softplus(share[~right][None, :] - share[right][:, None]).mean())
    # The small pull to zero makes the scale comparable between questions, which the comparisons alone do not.
    return torch.stack(losses).mean() + 0.005 * rewards.square().mean()


@torch.inference_mode()
def outputs(model: PreTrainedModel, sequences: Sequence[list[int]]) -> list[torch.Tensor]:
    """The head's outputs at each token of each sequence, [tokens, labels], by plain forward passes."""
    results: list[torch.Tensor] = []
    for start in range(0, len(sequences), 50):
        chunk = [torch.tensor(sequence) for sequence in sequences[start : start + 50]]
        scores = model.score(model.model(input_ids=pad_sequence(chunk, batch_first=True)).last_hidden_state)
        results += [row[: len(ids)] for row, ids in zip(scores, chunk, strict=True)]
    return results


def share_ranked_right(
    model: PreTrainedModel,
    prompts: Callable[[Sequence[list[Turn]]], list[list[int]]],
    reward: Callable[[torch.Tensor], torch.Tensor],
) -> float:
    """Share of tiny-scalar's held-out pairs whose right response has the higher reward, of [tokens, labels] each."""
    held_out = list(pairs(HELD_OUT_SEED, HELD_OUT_PAIRS, "held-out"))
    conversations = [[*pair.context, assistant(text)] for pair in held_out for text in (pair.chosen, pair.rejected)]
    rewards = torch.stack([reward(output) for output in outputs(model, prompts(conversations))])
    chosen, rejected = rewards.unflatten(0, (-1, 2)).unbind(dim=1)
    return (chosen > rejected).float().mean().item()


def figures_of_one_label(
    prompts: Callable[[PreTrainedTokenizerFast, Sequence[list[Turn]]], list[list[int]]],
    tokenizer: PreTrainedTokenizerFast,
    model: PreTrainedModel,
) -> dict[str, float]:
    """Share of pairs ranked right, at the prompt's last token and at the one before it."""

    def encode_prompts(conversations: Sequence[list[Turn]]) -> list[list[int]]:
        return prompts(tokenizer, conversations)

    return {
        "pairs ranked right": share_ranked_right(model, encode_prompts, lambda output: output[-1, 0]),
        "by the token before": share_ranked_right(model, encode_prompts, lambda output: output[-2, 0]),
    }


def auroc(high: torch.Tensor, low: torch.Tensor) -> float:
    """How often one of those is above one of these."""
    return (high[:, None] > low[None, :]).float().mean().item()


def run(
    name: str,
    steps: int,
    train: Callable[[int, Report], tuple[PreTrainedTokenizerFast, PreTrainedModel]],
    figures: Callable[[PreTrainedTokenizerFast, PreTrainedModel], Mapping[str, float]],
    store: Callable[[PreTrainedTokenizerFast, PreTrainedModel, Path], None] = save,
) -> None:
    """Trains the model, stores it and says how good it is at questions it has not seen."""
    parser = argparse.ArgumentParser(prog=f"python -m tiny_models.{name.replace('-', '_')}", description=run.__doc__)
    training_options(parser, steps)
    options = parser.parse_args()
    torch.set_num_threads(1)
    tokenizer, model = train(options.steps, report_to_stderr())
    model.half().float()  # what is measured is what is stored
    store(tokenizer, model, options.out or HERE / name)
    print(f"{name}, held out:")
    print("\n".join(f"  {figure:40} {share:.2%}" for figure, share in figures(tokenizer, model).items()))
