"""The tokenizers of the two models: byte-level BPE of 1,024 pieces, in which each of 0 to 99 is one token.

Numbers of two digits are cut off from what surrounds them before any merging, so that "12", " 12" and "3+12" share the token
"12" (in " 12" the space is a token of its own). The other merges come from the synthetic corpus and from
`pydoc_data.topics`, Python's own reference, as a sample of ordinary English; so another Python version yields other merges.
"""

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from pydoc_data.topics import topics  # type: ignore[import-untyped,unused-ignore]
from random import Random

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast, Qwen2Tokenizer

from tiny_models.synthetic import draw_case
from tiny_models.tasks import WORDS

VOCABULARY_SIZE = 1024
CONTEXT_LENGTH = 8192
BOS, EOS, PAD = "<s>", "</s>", "<pad>"
UNUSED = "<|unused|>"
_SETTINGS = {
    "bos_token": BOS,
    "eos_token": EOS,
    "pad_token": PAD,
    "model_max_length": CONTEXT_LENGTH,
    "clean_up_tokenization_spaces": False,
    "padding_side": "right",
}

NEMO_SYSTEM = (
    "A chat between a curious user and an artificial intelligence assistant. "
    "The assistant gives helpful, detailed, and polite answers to the user's questions."
)
"""The system text of NeMo's SteerLM prompt, always this one (NeMo-Aligner, examples/nlp/data/steerlm/common.py)."""

SCALAR_TEMPLATE = """\
{{- bos_token }}
{%- for message in messages %}
    {%- if message.role not in ['system', 'user', 'assistant'] %}
        {{- raise_exception('Unknown role ' ~ message.role ~ ', expected system, user or assistant') }}
    {%- endif %}
    {{- '<|start|>' ~ message.role ~ '\\n\\n' ~ message.content ~ '<|end|>' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|start|>assistant\\n\\n' }}
{%- endif %}
"""


def attributes_tokenizer() -> PreTrainedTokenizerFast:
    """NeMo's control tokens, no chat template (the text is built into the family) and nothing added when encoding."""
    return _wrap(_bpe(("<extra_id_0>", "<extra_id_1>", "<extra_id_2>")))


def scalar_tokenizer() -> PreTrainedTokenizerFast:
    """A chat template that begins with BOS and, as Llama's, a post-processor that adds a BOS as well unless told not to."""
    bpe = _bpe(("<|start|>", "<|end|>", UNUSED))
    bpe.post_processor = processors.TemplateProcessing(
        single=f"{BOS} $A", pair=f"{BOS} $A {BOS} $B", special_tokens=[(BOS, bpe.token_to_id(BOS))]
    )
    tokenizer = _wrap(bpe)
    tokenizer.chat_template = SCALAR_TEMPLATE
    return tokenizer


def stored_tokenizer(folder: Path) -> PreTrainedTokenizerFast:
    """That of a checkpoint made here, without the padding that it was last used with."""
    bpe = Tokenizer.from_file(str(folder / "tokenizer.json"))
    bpe.no_padding()
    tokenizer = _wrap(bpe)
    tokenizer.chat_template = (folder / "chat_template.jinja").read_text()
    return tokenizer


def with_words(tokenizer: PreTrainedTokenizerFast, words: Iterable[str]) -> PreTrainedTokenizerFast:
    """The same, with each of these words (in the vocabulary's spelling, no piece yet) a piece of its own, by BPE.

    The new pieces' ids follow those of the special tokens, the first word's first: in a large vocabulary such words have
    small ids as well, which matters where the vocabulary is split between devices.
    """
    state = json.loads(tokenizer.backend_tokenizer.to_str())
    merges: list[list[str]] = state["model"]["merges"]
    pieces = sorted(state["model"]["vocab"], key=state["model"]["vocab"].__getitem__)
    whole: list[str] = []
    parts: list[str] = []
    for word in words:
        bpe = Tokenizer(
            models.BPE(vocab={piece: i for i, piece in enumerate(pieces + whole + parts)}, merges=_pairs(merges))
        )
        piece, *rest = (token.value for token in bpe.model.tokenize(word))
        for right in rest:
            merges.append([piece, right])
            piece += right
            (whole if piece == word else parts).append(piece)
    special = len(state["added_tokens"])
    ordered = [*pieces[:special], *whole, *parts, *pieces[special:]]
    state["model"]["vocab"] = {piece: index for index, piece in enumerate(ordered)}
    extended = _wrap(Tokenizer.from_str(json.dumps(state)))
    extended.chat_template = tokenizer.chat_template
    return extended


def with_control_token(tokenizer: PreTrainedTokenizerFast, token: str) -> PreTrainedTokenizerFast:
    """The same, with this control token in place of the unused one."""
    state = json.loads(tokenizer.backend_tokenizer.to_str())
    state["model"]["vocab"][token] = state["model"]["vocab"].pop(UNUSED)
    for added in state["added_tokens"]:
        if added["content"] == UNUSED:
            added["content"] = token
    changed = _wrap(Tokenizer.from_str(json.dumps(state)))
    changed.chat_template = tokenizer.chat_template
    return changed


def as_qwen2(tokenizer: PreTrainedTokenizerFast) -> PreTrainedTokenizerFast:
    """The same pieces as a Qwen2's: what transformers makes of any tokenizer.json beside a Qwen2's config.

    It cuts a text up as Qwen2 does, into single digits too; for numbers to be one piece nevertheless they are added tokens.
    """
    state = json.loads(tokenizer.backend_tokenizer.to_str())
    changed = Qwen2Tokenizer(
        vocab=state["model"]["vocab"],
        merges=_pairs(state["model"]["merges"]),
        unk_token=None,
        **_SETTINGS,
    )
    changed.add_tokens([AddedToken(token["content"], normalized=False, special=True) for token in state["added_tokens"]])
    changed.add_tokens([AddedToken(str(number), normalized=False) for number in range(10, 100)])
    changed.chat_template = tokenizer.chat_template
    return changed


def _pairs(merges: Sequence[Sequence[str]]) -> list[tuple[str, str]]:
    return [(left, right) for left, right in merges]


def nemo_text(messages: Sequence[dict[str, str]]) -> str:
    """The attribute model's prompt; a system turn in `messages` is not used."""
    turns = (f"<extra_id_1>{turn['role'].title()}\n{turn['content']}\n" for turn in messages if turn["role"] != "system")
    return f"<extra_id_0>System\n{NEMO_SYSTEM}\n{''.join(turns)}<extra_id_2>"


def _bpe(control_tokens: Sequence[str]) -> Tokenizer:
    special = (BOS, EOS, PAD, *control_tokens)
    digits = [str(digit) for digit in range(10)]
    number_merges = [(tens, ones) for tens in digits[1:] for ones in digits]
    numbers = [tens + ones for tens, ones in number_merges]
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    room = VOCABULARY_SIZE - len(special) - len(alphabet) - len(numbers)
    word_merges = _word_merges(room)
    pieces = [*special, *alphabet, *numbers, *("".join(merge) for merge in word_merges)]
    vocabulary = {piece: index for index, piece in enumerate(pieces)}

    bpe = Tokenizer(models.BPE(vocab=vocabulary, merges=[*number_merges, *word_merges]))
    bpe.pre_tokenizer = _pre_tokenizer()
    bpe.decoder = decoders.ByteLevel()
    bpe.add_special_tokens([AddedToken(token, normalized=False, special=True) for token in special])
    return bpe


def _pre_tokenizer() -> pre_tokenizers.PreTokenizer:
    numbers_apart = pre_tokenizers.Split(Regex("[0-9]{1,2}"), behavior="isolated")
    return pre_tokenizers.Sequence([numbers_apart, pre_tokenizers.ByteLevel(add_prefix_space=False)])


def _word_merges(count: int) -> list[tuple[str, str]]:
    """So many merges, of letters and signs only: the numbers have theirs."""
    learner = Tokenizer(models.BPE())
    learner.pre_tokenizer = _pre_tokenizer()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    # A merge of two pieces is one piece more, so the size asked for fixes the number of merges.
    trainer = trainers.BpeTrainer(vocab_size=len(alphabet) + count, initial_alphabet=alphabet, show_progress=False)
    learner.train_from_iterator(_corpus(), trainer)
    merges = [(left, right) for left, right in json.loads(learner.to_str())["model"]["merges"]]
    if len(merges) != count:
        raise ValueError(f"the corpus gave {len(merges)} merges, expected {count}")
    return merges


def _corpus() -> Iterator[str]:
    """Text without digits: reference prose, toy conversations, and the toy words often enough to be one piece each."""
    rng = Random("tokenizer corpus")
    texts = [re.sub(r"[ \t]+", " ", text) for _, text in sorted(topics.items())]
    for _ in range(6000):
        case = draw_case(rng, "train", right=1, wrong=0)
        texts += [turn["content"] for turn in case.context] + [case.responses[0].text]
    texts += [f"{word} {word}" for word in WORDS] * 300
    texts += [NEMO_SYSTEM, "system\n\n", "user\n\n", "assistant\n\n", "System\n", "User\n", "Assistant\n"] * 600
    return (re.sub("[0-9]+", " ", text) for text in texts)


def _wrap(bpe: Tokenizer) -> PreTrainedTokenizerFast:
    return PreTrainedTokenizerFast(tokenizer_object=bpe, **_SETTINGS)
