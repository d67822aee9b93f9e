"""Rows for NeMo-Aligner's DPO, RPO, KTO and Bradley-Terry reward models.

DPO and RPO rows hold messages, and the trainer writes them in the template that the model was trained with
(`model.data.chat_prompt_tokens`); without one it says so and stops. Rows of text, as its guide has them too, would go into
any model in NeMo's own template, right or wrong. KTO and reward models take text alone: theirs is NeMo's template, for
models trained with that one. A conversation without a system turn has an empty one there, as in the trainer's guides.

A reward model's rows are two lines a pair, and only the line number tells the chosen one (even, from 0) from the rejected
one: a line lost, or lines shuffled, turn every pair after it round.

All are refused what NeMo's template can't say: its trainer would call a tool "Tool", never mask it, and move a later system
turn to the front. Every file needs at least as many rows as the global batch size.

Its datasets read rows key by key, and pass over all others.

Source: NVIDIA/NeMo-Aligner@af2b3bd9, nemo_aligner/data/nlp/datasets.py; docs/user-guide/dpo.rst, rlhf.rst.
"""

from collections.abc import Iterator, Sequence

from pipelines.folders.scored_corpus.candidates import Candidate, PreferencePair
from pipelines.results.exports.nemo_template import END, check, render_prompt
from pipelines.results.exports.trainer_format import Labels, PairFormat, ResponseFormat, Row
from pipelines.results.exports.trainer_messages import Refusal, answer, messages

_SOURCE = "NVIDIA/NeMo-Aligner@af2b3bd9, nemo_aligner/data/nlp/datasets.py"

_RESERVED = (
    *("prompt", "chosen_response", "rejected_response", "chosen_reward", "rejected_reward"),
    *("response", "preference", "text", "label"),
)


def _dpo(pair: PreferencePair) -> Iterator[Row]:
    yield _sides(pair)


def _rpo(pair: PreferencePair) -> Iterator[Row]:
    yield {**_sides(pair), "chosen_reward": pair.chosen.reward, "rejected_reward": pair.rejected.reward}


def _sides(pair: PreferencePair) -> Row:
    return {
        "prompt": messages(pair.chosen.context),
        "chosen_response": answer(pair.chosen),
        "rejected_response": answer(pair.rejected),
    }


def _reward(pair: PreferencePair) -> Iterator[Row]:
    # The chosen one first: the trainer tells the two apart by the parity of the line number alone.
    for candidate in (pair.chosen, pair.rejected):
        yield {"text": render_prompt(candidate.context, system="") + candidate.text + END}


def _kto(candidates: Sequence[Candidate], labels: Labels) -> Iterator[Row]:
    for candidate in candidates:
        side = "chosen" if labels.desirable(candidate) else "rejected"
        yield {"prompt": render_prompt(candidate.context, system=""), "response": candidate.text + END, "preference": side}


def _check(candidate: Candidate) -> Refusal | None:
    return check(candidate.context, [candidate.text])


def _check_pair(pair: PreferencePair) -> Refusal | None:
    return check(pair.chosen.context, [pair.chosen.text, pair.rejected.text])


PAIRS = (
    PairFormat(
        "nemo-aligner-dpo",
        "NeMo-Aligner's DPO: messages",
        f"{_SOURCE}, DPOModelDataset",
        _dpo,
        _check_pair,
        reserved=_RESERVED,
    ),
    PairFormat(
        "nemo-aligner-rpo",
        "NeMo-Aligner's RPO: messages, and the two rewards that its target is made of",
        f"{_SOURCE}, DPOModelDataset",
        _rpo,
        _check_pair,
        reserved=_RESERVED,
    ),
    PairFormat(
        "nemo-aligner-rm",
        "NeMo-Aligner's Bradley-Terry reward model: two lines a pair in NeMo's template, the chosen one first",
        f"{_SOURCE}, RewardModelDataset",
        _reward,
        _check_pair,
        reserved=_RESERVED,
    ),
)
RESPONSES = (
    ResponseFormat(
        "nemo-aligner-kto",
        "NeMo-Aligner's KTO: responses that are desirable or not, in NeMo's template",
        f"{_SOURCE}, KTOModelDataset",
        _kto,
        _check,
        needs_threshold=True,
        reserved=_RESERVED,
    ),
)
