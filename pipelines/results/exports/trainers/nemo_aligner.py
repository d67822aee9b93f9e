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
from functools import partial

from pipelines.folders.scored_corpus.candidates import Candidate, PreferencePair
from pipelines.results.exports.nemo_template import END, check, render_prompt
from pipelines.results.exports.trainer_format import Labels, PairFormat, ResponseFormat, Row
from pipelines.results.exports.trainer_messages import answer, messages

_SOURCE = "NVIDIA/NeMo-Aligner@af2b3bd9, nemo_aligner/data/nlp/datasets.py"

_RESERVED = (
    *("prompt", "chosen_response", "rejected_response", "chosen_reward", "rejected_reward"),
    *("response", "preference", "text", "label"),
)


def _rpo(pair: PreferencePair) -> Iterator[Row]:
    for row in _dpo(pair):
        yield {**row, "chosen_reward": pair.chosen.reward, "rejected_reward": pair.rejected.reward}


def _dpo(pair: PreferencePair) -> Iterator[Row]:
    yield {
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


_pair_format = partial(PairFormat, check=check, reserved=_RESERVED)

FORMATS = (
    _pair_format(
        name="nemo-aligner-dpo",
        about="NeMo-Aligner's DPO: messages",
        source=f"{_SOURCE}, DPOModelDataset",
        rows=_dpo,
    ),
    _pair_format(
        name="nemo-aligner-rpo",
        about="NeMo-Aligner's RPO: messages, and the two rewards that its target is made of",
        source=f"{_SOURCE}, DPOModelDataset",
        rows=_rpo,
    ),
    _pair_format(
        name="nemo-aligner-rm",
        about="NeMo-Aligner's Bradley-Terry reward model: two lines a pair in NeMo's template, the chosen one first",
        source=f"{_SOURCE}, RewardModelDataset",
        rows=_reward,
    ),
    ResponseFormat(
        name="nemo-aligner-kto",
        about="NeMo-Aligner's KTO: responses that are desirable or not, in NeMo's template",
        source=f"{_SOURCE}, KTOModelDataset",
        rows=_kto,
        check=check,
        needs_threshold=True,
        reserved=_RESERVED,
    ),
)
