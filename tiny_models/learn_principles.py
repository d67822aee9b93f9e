"""Makes tiny-principle out of tiny-scalar, by training: `python -m tiny_models.learn_principles [--out DIR]`.

As Llama-3.3-Nemotron-70B-Reward-Principle, it is a language model that is asked whether a response fulfils a principle; the
reward is what its logit of "Yes" is above that of "No". Tiny-scalar knows at a response's end whether it is right, and two
more layers bring that to where the answer is read.
"""

import argparse
from collections.abc import Sequence
from random import Random

import torch
from torch.nn import functional
from transformers import PreTrainedModel, PreTrainedTokenizerFast

from tiny_models.causal import HERE, language_model, last_hidden, tiny_scalar
from tiny_models.fitting import Report, fit, hidden_at_ends, optimizers, report_to_stderr, training_options
from tiny_models.judgements import PRINCIPLES, QUESTION, Judgement, draw_judgements, judgements
from tiny_models.synthetic import pairs
from tiny_models.tokenizer import with_words
from tiny_models.train import HELD_OUT_PAIRS, HELD_OUT_SEED, save

SEED = 3370
YES, NO = "Yes", "No"
MORE_LAYERS = 2
STEPS = 800
ROWS_PER_STEP = 8
GENTLENESS = 0.1
"""Share of the learning rates at which tiny-scalar's part changes: at half of them it forgets what is right."""


def build() -> tuple[PreTrainedTokenizerFast, PreTrainedModel]:
    """Tiny-scalar with more pieces in its vocabulary, and more layers that begin with adding nothing to what it knows."""
    torch.manual_seed(SEED)
    old, scalar = tiny_scalar()
    tokenizer = with_words(old, _words(old))
    layers, neurons = scalar.config.num_hidden_layers, scalar.config.intermediate_size
    model = language_model(scalar, layers=layers + MORE_LAYERS, neurons=neurons, vocabulary=len(tokenizer))
    weights = scalar.model.state_dict()
    old_embedding = weights.pop("embed_tokens.weight")
    model.model.load_state_dict(weights, strict=False)
    places = torch.tensor(tokenizer.convert_tokens_to_ids(old.convert_ids_to_tokens(range(len(old)))))
    with torch.no_grad():
        embedding = model.get_input_embeddings().weight
        embedding.copy_(old_embedding.mean(dim=0) + old_embedding.std(dim=0) * torch.randn_like(embedding))
        embedding[places] = old_embedding
        for layer in model.model.layers[layers:]:
            layer.self_attn.o_proj.weight.zero_()
            layer.mlp.down_proj.weight.zero_()
    return tokenizer, model


def _words(tokenizer: PreTrainedTokenizerFast) -> list[str]:
    """The answers, and the words of the questions that are no piece yet, spelt as in the vocabulary."""
    questions = [QUESTION.format(principle=principle) for principle in PRINCIPLES]
    bpe = tokenizer.backend_tokenizer
    words = [word for text in (NO, YES, *questions) for word, _ in bpe.pre_tokenizer.pre_tokenize_str(text)]
    return [word for word in dict.fromkeys(words) if len(bpe.model.tokenize(word)) > 1]


def train(steps: int, report: Report) -> tuple[PreTrainedTokenizerFast, PreTrainedModel]:
    """The tokenizer and the trained model."""
    tokenizer, model = build()
    rng = Random(f"train principle {SEED}")

    def losses(_: int) -> dict[str, torch.Tensor]:
        return {"loss": _loss(tokenizer, model, [draw_judgements(rng) for _ in range(ROWS_PER_STEP)])}

    trained = [model.model.embed_tokens, *model.model.layers[:-MORE_LAYERS]]
    return tokenizer, fit(model, optimizers(model, trained, GENTLENESS), steps, losses, report)


def _loss(tokenizer: PreTrainedTokenizerFast, model: PreTrainedModel, rows: Sequence[list[Judgement]]) -> torch.Tensor:
    """Of saying Yes or No: a logistic loss on the logits' difference, and one for saying neither."""
    sequences = [tokenizer(_texts(tokenizer, row), add_special_tokens=False)["input_ids"] for row in rows]
    answers = [YES if judgement.fulfilled else NO for row in rows for judgement in row]
    targets = torch.tensor(tokenizer.convert_tokens_to_ids(answers))
    return functional.cross_entropy(model.lm_head(hidden_at_ends(model, sequences)[-1]), targets)


def _texts(tokenizer: PreTrainedTokenizerFast, batch: Sequence[Judgement]) -> list[str]:
    prompts = [judgement.messages for judgement in batch]
    return [tokenizer.apply_chat_template(turns, tokenize=False, add_generation_prompt=True) for turns in prompts]


def rewards(tokenizer: PreTrainedTokenizerFast, model: PreTrainedModel, batch: Sequence[Judgement]) -> torch.Tensor:
    """Yes minus No to each, [n]."""
    hidden = last_hidden(tokenizer, model, [judgement.messages for judgement in batch], ask=True)
    yes, no = model.lm_head.weight.detach()[tokenizer.convert_tokens_to_ids([YES, NO])]
    return hidden @ (yes - no)


def held_out() -> list[Judgement]:
    """Judgements to measure it by, as many of each principle."""
    return list(judgements(HELD_OUT_SEED, HELD_OUT_PAIRS, "held-out"))


def accuracies(tokenizer: PreTrainedTokenizerFast, model: PreTrainedModel) -> dict[str, float]:
    """Share of the held-out judgements with the right sign, per principle, and of tiny-scalar's pairs ranked right."""
    held_out_judgements = held_out()
    wins: dict[str, list[bool]] = {}
    for judgement, reward in zip(held_out_judgements, rewards(tokenizer, model, held_out_judgements).tolist(), strict=True):
        wins.setdefault(judgement.principle, []).append((reward > 0) == judgement.fulfilled)
    held_out_pairs = list(pairs(HELD_OUT_SEED, HELD_OUT_PAIRS, "held-out"))
    chosen = [Judgement(pair.context, pair.chosen, "correctness", True) for pair in held_out_pairs]
    rejected = [Judgement(pair.context, pair.rejected, "correctness", False) for pair in held_out_pairs]
    won = rewards(tokenizer, model, chosen) > rewards(tokenizer, model, rejected)
    return {name: sum(won) / len(won) for name, won in wins.items()} | {"pairs": won.float().mean().item()}


def main(arguments: Sequence[str] | None = None) -> None:
    """Trains the model, saves it and says how often it is right about questions it has not seen."""
    parser = argparse.ArgumentParser(prog="python -m tiny_models.learn_principles", description=main.__doc__)
    training_options(parser, STEPS)
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    tokenizer, model = train(options.steps, report_to_stderr())
    model.half().float()  # what is measured is what is stored
    save(tokenizer, model, options.out or HERE / "principle")
    print(f"principle: share of {HELD_OUT_PAIRS} held-out judgements with the right sign, and of as many pairs ranked right")
    print("\n".join(f"  {name:11} {share:.2%}" for name, share in accuracies(tokenizer, model).items()))


if __name__ == "__main__":
    main()
