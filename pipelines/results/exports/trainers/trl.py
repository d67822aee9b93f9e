"""Rows for TRL, all of them conversational: the trainer writes them out in the model's own chat template.

DPOTrainer takes an explicit or an implicit prompt, RewardTrainer the whole conversations (and puts a prompt before the
sides where there is one), KTOTrainer single responses, SFTTrainer conversations, or prompts with a completion, on which
alone it then computes the loss (`completion_only_loss` by default where a row has both). A column `margin` is more than a
note to RewardTrainer: where the rows have one, its loss is -log sigmoid(r_chosen - r_rejected - margin); DPOTrainer ignores
it, as both ignore `score_chosen` and `score_rejected`.

Columns that no trainer knows are dropped. By those that one knows it tells what a row is: a `prompt` or `completion` beside
whole conversations, a `text`, `input_ids` or `tools` would change what is trained on, so none is carried along. All four
trainers give `tools`, a list or its JSON text, to the chat template: rows have it where the conversation has tools.

Source: trl/data_utils.py and trl/trainer/{dpo,reward,kto,sft}_trainer.py of 1.16, docs/source/dataset_formats.md.
"""

from collections.abc import Iterator, Sequence
from functools import partial

from pipelines.folders.scored_corpus.candidates import Candidate, PreferencePair
from pipelines.results.exports.trainer_format import Labels, PairFormat, ResponseFormat, Row
from pipelines.results.exports.trainer_messages import (
    answer,
    messages,
    refuse_no_question,
    threads,
    tools,
    whole_conversation,
)

_SOURCE = "huggingface/trl 1.16, docs/source/dataset_formats.md"

_RESERVED = (
    *("prompt", "chosen", "rejected", "completion", "label", "messages", "conversations", "text"),
    *("margin", "score_chosen", "score_rejected", "label_margin", "tools", "chat_template_kwargs", "image", "images"),
    *("input_ids", "labels", "seq_lengths", "completion_mask", "assistant_masks"),
    *("prompt_ids", "chosen_ids", "rejected_ids", "completion_ids", "KL_completion_ids"),
    *("ref_chosen_logps", "ref_rejected_logps", "ref_logps", "ref_KL_logps"),
)
# Conversations are read by open-instruct and NeMo-RL, too, which know these columns besides.
SFT_RESERVED = (*_RESERVED, "task_name", "dataset", "ground_truth", "attention_mask")


def _explicit(pair: PreferencePair) -> Iterator[Row]:
    prompt = messages(pair.chosen.context)
    yield {"prompt": prompt, "chosen": [answer(pair.chosen)], "rejected": [answer(pair.rejected)], **_extras(pair)}


def _implicit(pair: PreferencePair) -> Iterator[Row]:
    yield {"chosen": whole_conversation(pair.chosen), "rejected": whole_conversation(pair.rejected), **_extras(pair)}


def _extras(pair: PreferencePair) -> Row:
    by_label = {} if pair.label_margin is None else {"label_margin": pair.label_margin}
    scores = {"score_chosen": pair.chosen.reward, "score_rejected": pair.rejected.reward}
    return {"margin": pair.margin, **scores, **by_label, **tools(pair.chosen)}


def _reward(pair: PreferencePair) -> Iterator[Row]:
    sides = {"chosen": whole_conversation(pair.chosen), "rejected": whole_conversation(pair.rejected)}
    yield {**sides, "margin": pair.margin, **tools(pair.chosen)}


def _kto(candidates: Sequence[Candidate], labels: Labels) -> Iterator[Row]:
    for candidate in candidates:
        completion = {"completion": [answer(candidate)], "label": labels.desirable(candidate)}
        yield {"prompt": messages(candidate.context), **completion, **tools(candidate)}


def _sft(candidates: Sequence[Candidate], _: Labels) -> Iterator[Row]:
    """One row per thread, of its last judged turn: most trainers compute the loss on all of the assistant's turns."""
    for thread in threads(candidates):
        yield {"messages": whole_conversation(thread[-1]), **tools(thread[-1])}


def _sft_turns(candidates: Sequence[Candidate], _: Labels) -> Iterator[Row]:
    """One row per judged turn: what isn't kept of a conversation stays in prompts, and nothing is learnt of it."""
    for candidate in candidates:
        yield {"prompt": messages(candidate.context), "completion": [answer(candidate)], **tools(candidate)}


_pair_format = partial(PairFormat, source=_SOURCE, calls=True, reserved=_RESERVED)
_response_format = partial(ResponseFormat, source=_SOURCE, calls=True, reserved=_RESERVED)

# A prompt without a question is refused: TRL would continue the last turn if it is the assistant's, and fail otherwise.
FORMATS = (
    _pair_format(
        name="trl",
        about="TRL's preference rows with an explicit prompt: DPOTrainer (RewardTrainer would use `margin` in its loss)",
        rows=_explicit,
        check=refuse_no_question,
    ),
    _pair_format(
        name="trl-implicit",
        about="TRL's preference rows of whole conversations: DPOTrainer (RewardTrainer would use `margin` in its loss)",
        rows=_implicit,
        check=refuse_no_question,
    ),
    _pair_format(name="trl-reward", about="TRL's RewardTrainer, whose loss then has a margin", rows=_reward),
    _response_format(
        name="kto",
        about="TRL's KTOTrainer: responses that are desirable or not",
        rows=_kto,
        check=refuse_no_question,
        needs_threshold=True,
    ),
    ResponseFormat(
        name="sft",
        about="conversations as OpenAI's messages: TRL's SFTTrainer, open-instruct, NeMo-RL",
        source=f"{_SOURCE}; NVIDIA-NeMo/RL@7ea279ab, response_datasets/oai_format_dataset.py",
        rows=_sft,
        whole=True,
        calls=True,
        reserved=SFT_RESERVED,
    ),
    _response_format(
        name="sft-turns",
        about="TRL's SFTTrainer, whose loss is on the kept turn alone: a row for each, whose prompt is the turns before it",
        rows=_sft_turns,
        check=refuse_no_question,
    ),
)
