"""Rows for OpenRLHF.

`openrlhf` is for train_rm and train_dpo with --data.prompt_key prompt --data.apply_chat_template: the prompt, and each side
after it, are written out in the model's template. The margin counts in train_rm alone, with --model.margin_loss_enable.

`openrlhf-iter-dpo` is what its batch tool wrote after scoring (removed in 6a981c8c): plain strings, which the trainer joins
as they are but for --data.input_template. So a string can't say who spoke, and only a single question of the user's is
the same thing in it.

Source: OpenRLHF@3c3be623, openrlhf/datasets/reward_dataset.py; openrlhf/utils/processor.py before 6a981c8c.
"""

from collections.abc import Iterator

from actors.records import Role
from pipelines.folders.scored_corpus.candidates import Candidate, PreferencePair
from pipelines.results.exports.trainer_format import PairFormat, Row
from pipelines.results.exports.trainer_messages import Refusal, answer, messages

# Its loader drops all other columns when it maps rows to these.
_RESERVED = ("prompt", "chosen", "rejected", "reject", "margin", "extra", "chosen_reward", "rejected_reward")


def _messages(pair: PreferencePair) -> Iterator[Row]:
    yield {
        "prompt": messages(pair.chosen.context),
        "chosen": [answer(pair.chosen)],
        "rejected": [answer(pair.rejected)],
        "margin": pair.margin,
    }


def _strings(pair: PreferencePair) -> Iterator[Row]:
    yield {
        "prompt": pair.chosen.context[0].content,
        "chosen": pair.chosen.text,
        "chosen_reward": pair.chosen.reward,
        "rejected": pair.rejected.text,
        "rejected_reward": pair.rejected.reward,
    }


def _one_question(candidate: Candidate) -> Refusal | None:
    return None if [turn.role for turn in candidate.context] == [Role.USER] else Refusal.NOT_ONE_TURN


FORMATS = (
    PairFormat(
        name="openrlhf",
        about="OpenRLHF's pairs of messages: --data.prompt_key prompt --data.apply_chat_template",
        source="OpenRLHF@3c3be623, openrlhf/datasets/reward_dataset.py",
        rows=_messages,
        reserved=_RESERVED,
    ),
    PairFormat(
        name="openrlhf-iter-dpo",
        about="OpenRLHF's iterative DPO: strings, for --data.prompt_key prompt --data.input_template",
        source="OpenRLHF before 6a981c8c, openrlhf/utils/processor.py, iterative_dpo_processor",
        rows=_strings,
        check=_one_question,
        reserved=_RESERVED,
    ),
)
