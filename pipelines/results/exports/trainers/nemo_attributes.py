"""Rows for NeMo-Aligner's SteerLM and its regression reward model: turns labelled with attributes.

A label has those of the nine attributes that a response has scores for, the five of HelpSteer at least. In SteerLM's rows
it is text, and each score is put into 0 to 4 and rounded to a whole number, half to even, as attribute_annotate.py does; in
the regression's it is nine numbers as the model gave them, -100 for a missing one, which the trainer masks.

A conversation keeps its own system turn: both trainers read what the row has (SteerLM's from `system`, beside the turns).
One without a system turn has the one of NeMo's own scripts, which both stages are trained and asked with. NeMo's way from
SteerLM's rows to the regression's (process_to_regression_format.py) puts that one in place of any other, as
attribute_annotate.py and the model card do when they ask the model: a system turn of the row's own is lost on that way, so
make the regression's rows here and not from SteerLM's. Further keys of a row are metadata to the one, and passed over by
the other.

Source: NVIDIA/NeMo-Aligner@af2b3bd9, examples/nlp/data/steerlm and RegressionRewardModelDataset; NVIDIA/NeMo,
gpt_sft_chat_dataset.py.
"""

from collections.abc import Iterator, Sequence
from functools import partial

from actors.models.attributes import ATTRIBUTES, SYSTEM_TURN, UNTRAINED
from actors.records import Message, Role
from pipelines.folders.scored_corpus.candidates import Candidate
from pipelines.results.exports.nemo_template import check, render_prompt, speaker_name
from pipelines.results.exports.trainer_format import Labels, ResponseFormat, Row
from pipelines.results.exports.trainer_messages import Refusal, threads, with_first_system

ORDER = (*UNTRAINED, *ATTRIBUTES)
MISSING = -100.0  # `model.regression.loss_mask_val` of the trainer's training_rm.yaml: no loss is computed there

_SOURCE = "NVIDIA/NeMo-Aligner@af2b3bd9, examples/nlp/data/steerlm"
_RESERVED = ("conversations", "system", "mask", "type", "text", "label", "messages", "tools", "metadata")


def _steerlm(candidates: Sequence[Candidate], _: Labels) -> Iterator[Row]:
    """One row per thread: a label at each judged turn, and None at the others."""
    for thread in threads(candidates):
        system, turns = with_first_system((*thread[-1].context, Message(Role.ASSISTANT, thread[-1].text)))
        # A judged turn comes right after its context, so its position among `turns` is how many turns that has.
        labels = {len(with_first_system(candidate.context).turns): _label(candidate) for candidate in thread}
        yield {
            "conversations": [
                {"value": turn.content, "from": speaker_name(turn), "label": labels.get(position)}
                for position, turn in enumerate(turns)
            ],
            "system": SYSTEM_TURN if system is None else system,
            "mask": "User",
            "type": "VALUE_TO_TEXT",
        }


def _label(candidate: Candidate) -> str:
    scores = ((attribute, candidate.scores[attribute]) for attribute in ORDER if attribute in candidate.scores)
    return ",".join(f"{attribute}:{round(min(4.0, max(0.0, score)))}" for attribute, score in scores)


def _regression(candidates: Sequence[Candidate], _: Labels) -> Iterator[Row]:
    """A row for each judged turn, with all turns before it."""
    for candidate in candidates:
        text = render_prompt(candidate.context, SYSTEM_TURN) + candidate.text + "\n<extra_id_2>"
        yield {"text": text, "label": [candidate.scores.get(attribute, MISSING) for attribute in ORDER]}


def _check(candidate: Candidate) -> Refusal | None:
    """Refuse missing scores, what the template can't express, and contexts without a user turn (SteerLM's trainer stops)."""
    if any(attribute not in candidate.scores for attribute in ATTRIBUTES):
        return Refusal.MISSING_SCORE
    has_user_turn = any(turn.role is Role.USER for turn in candidate.context)
    return check(candidate) or (None if has_user_turn else Refusal.NO_USER_TURN)


_format = partial(ResponseFormat, check=_check, needs_scores=ATTRIBUTES, reserved=_RESERVED)

FORMATS = (
    _format(
        name="steerlm",
        about="NeMo-Aligner's SteerLM: conversations whose judged turns have a label",
        source=f"{_SOURCE}/preprocess_helpsteer2_data.py, attribute_annotate.py",
        rows=_steerlm,
    ),
    _format(
        name="steerlm-regression",
        about="NeMo-Aligner's regression reward model: a judged turn and nine numbers, in NeMo's template",
        source=f"{_SOURCE}/process_to_regression_format.py",
        rows=_regression,
    ),
)
