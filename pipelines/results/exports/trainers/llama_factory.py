"""Rows for LLaMA-Factory, in its ShareGPT form.

In dataset_info.json `llama-factory` is {"formatting": "sharegpt", "ranking": true, "columns": {"messages":
"conversations", "chosen": "chosen", "rejected": "rejected"}}, and `llama-factory-kto` {"formatting": "sharegpt", "columns":
{"messages": "conversations", "kto_tag": "kto_tag"}}. A system turn is the first of the conversation. After it human and gpt
must alternate: the converter skips any other conversation, with a word in its log only. It takes a tool's turn for a
human's where it comes after a function call; conversations with calls are left out. The converter reads the columns
that dataset_info.json names, and drops all others.

Source: hiyouga/LLaMA-Factory@ff6d4d12, data/README.md and src/llamafactory/data/converter.py, SharegptDatasetConverter.
"""

from collections.abc import Iterator, Sequence

from actors.records import Message, Role
from pipelines.folders.scored_corpus.candidates import Candidate, PreferencePair
from pipelines.results.exports.trainer_format import Labels, PairFormat, ResponseFormat, Row
from pipelines.results.exports.trainer_messages import refuse_not_alternating

_SPEAKERS = {Role.SYSTEM: "system", Role.USER: "human", Role.ASSISTANT: "gpt"}
_SOURCE = "hiyouga/LLaMA-Factory@ff6d4d12, data/README.md"

_RESERVED = ("conversations", "chosen", "rejected", "kto_tag", "system", "tools", "images", "videos", "audios")


def _turn(message: Message) -> dict[str, str]:
    return {"from": _SPEAKERS[Role(message.role)], "value": message.content}


def _answer(candidate: Candidate) -> dict[str, str]:
    return _turn(Message(Role.ASSISTANT, candidate.text))


def _ranking(pair: PreferencePair) -> Iterator[Row]:
    turns = [_turn(message) for message in pair.chosen.context]
    yield {"conversations": turns, "chosen": _answer(pair.chosen), "rejected": _answer(pair.rejected)}


def _kto(candidates: Sequence[Candidate], labels: Labels) -> Iterator[Row]:
    for candidate in candidates:
        turns = [*map(_turn, candidate.context), _answer(candidate)]
        yield {"conversations": turns, "kto_tag": labels.desirable(candidate)}


FORMATS = (
    PairFormat(
        name="llama-factory",
        about="LLaMA-Factory's ranking rows in ShareGPT's form: DPO, reward models, ORPO, SimPO",
        source=_SOURCE,
        rows=_ranking,
        check=refuse_not_alternating,
        reserved=_RESERVED,
    ),
    ResponseFormat(
        name="llama-factory-kto",
        about="LLaMA-Factory's KTO rows in ShareGPT's form",
        source=_SOURCE,
        rows=_kto,
        check=refuse_not_alternating,
        needs_threshold=True,
        reserved=_RESERVED,
    ),
)
