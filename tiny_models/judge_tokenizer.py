"""The tokenizers of all that write: one vocabulary, made from the judges' dialects' own texts, under four chat templates.

Byte-level BPE that cuts a text up as Qwen2 does, which is what transformers does beside a Qwen's config whatever
tokenizer.json says. Each of 0 to 99 is one token, as in the other tiny models: the numbers of two digits are added tokens.
"""

import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from tokenizers import AddedToken, Tokenizer, models, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast, Qwen2Tokenizer

from tiny_models.dialects import judgements
from tiny_models.tasks import WORDS
from tiny_models.tokenizer import CONTEXT_LENGTH

VOCABULARY_SIZE = 768
PAD = "<|endoftext|>"
THINK, THOUGHT = "<think>", "</think>"
CONTROL_TOKENS = (
    PAD, "<|im_start|>", "<|im_end|>",
    "<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>",
    "<｜begin▁of▁sentence｜>", "<｜User｜>", "<｜Assistant｜>", "<｜end▁of▁sentence｜>",
)  # fmt: skip
_NUMBERS = [str(number) for number in range(10, 100)]
_CORPUS_SEED = 7
_CORPUS_OF = ("genrm-principle", "genrm", "genrm-json", "rm-r1", "reward-anything", "r3")
"""The dialects whose texts the pieces are made of: with another all judges would have another vocabulary."""
_CORPUS_ROWS = 400
"""Of each dialect."""
_PROMPT_EVERY = 3
_SYSTEM_EVERY = 8

_ROLES = """\
{%- for message in messages %}
    {%- if message.role not in [ROLES] %}
        {{- raise_exception('Unknown role ' ~ message.role ~ ', expected one of: ROLES') }}
    {%- endif %}
"""
_CHATML = """\
    {{- '<|im_start|>' ~ message.role ~ '\\n' ~ message.content ~ '<|im_end|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
{%- endif %}
"""
_LLAMA = """\
    {{- '<|start_header_id|>' ~ message.role ~ '<|end_header_id|>\\n\\n' ~ message.content ~ '<|eot_id|>' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}
{%- endif %}
"""
_DEEPSEEK = """\
    {%- if message.role == 'system' %}
        {{- message.content }}
    {%- elif message.role == 'user' %}
        {{- '<｜User｜>' ~ message.content }}
    {%- else %}
        {{- '<｜Assistant｜>' ~ message.content ~ '<｜end▁of▁sentence｜>' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<｜Assistant｜><think>\\n' }}
{%- endif %}
"""
_CHAT = ("system", "user", "assistant")
_RESPONSES = ("response_1", "response_2")
_MORE_ROLES = {"genrm-principle": ("principle",), "genrm": _RESPONSES, "genrm-json": ("principle", *_RESPONSES)}


def judge_tokenizer(name: str) -> PreTrainedTokenizerFast:
    """That of the judge of this name, with its dialect's template; or that of the policy, which talks as `genrm` does."""
    roles = ", ".join(f"'{role}'" for role in (*_CHAT, *_MORE_ROLES.get(name, ())))
    opening = _ROLES.replace("[ROLES]", f"[{roles}]").replace("ROLES", roles.replace("'", ""))
    if name in {"genrm", "policy"}:
        return _tokenizer("{{- bos_token }}\n" + opening + _LLAMA, bos="<|begin_of_text|>", eos="<|eot_id|>")
    if name == "rm-r1":
        return _tokenizer(
            "{{- bos_token }}\n" + opening + _DEEPSEEK, bos="<｜begin▁of▁sentence｜>", eos="<｜end▁of▁sentence｜>"
        )
    return _tokenizer(opening + _CHATML, bos=None, eos="<|im_end|>")


def _tokenizer(template: str, *, bos: str | None, eos: str) -> PreTrainedTokenizerFast:
    """Where there is a BOS, the post-processor adds one as well unless told not to."""
    vocabulary, merges = _pieces()
    tokenizer = Qwen2Tokenizer(
        vocab=dict(vocabulary),
        merges=list(merges),
        unk_token=None,
        bos_token=bos,
        eos_token=eos,
        pad_token=PAD,
        model_max_length=CONTEXT_LENGTH,
        clean_up_tokenization_spaces=False,
    )
    tokenizer.add_tokens([AddedToken(token, normalized=False, special=True) for token in CONTROL_TOKENS])
    tokenizer.add_tokens([AddedToken(token, normalized=False, special=False) for token in (THINK, THOUGHT, *_NUMBERS)])
    if bos:
        tokenizer.backend_tokenizer.post_processor = processors.TemplateProcessing(
            single=f"{bos} $A", pair=f"{bos} $A {bos} $B", special_tokens=[(bos, vocabulary[bos])]
        )
    tokenizer.chat_template = template
    return tokenizer


@cache
def _pieces() -> tuple[dict[str, int], list[tuple[str, str]]]:
    """The vocabulary, and the merges that it comes from."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    fixed = [*CONTROL_TOKENS, THINK, THOUGHT, *alphabet, *_NUMBERS]
    count = VOCABULARY_SIZE - len(fixed)
    learner = Tokenizer(models.BPE())
    learner.pre_tokenizer = Qwen2Tokenizer().backend_tokenizer.pre_tokenizer
    # A merge of two pieces is one piece more, so the size asked for fixes the number of merges.
    trainer = trainers.BpeTrainer(vocab_size=len(alphabet) + count, initial_alphabet=alphabet, show_progress=False)
    learner.train_from_iterator(_corpus(), trainer)
    merges = [(left, right) for left, right in json.loads(learner.to_str())["model"]["merges"]]
    pieces = [*fixed, *("".join(merge) for merge in merges)]
    if len(pieces) != VOCABULARY_SIZE or len(set(pieces)) != VOCABULARY_SIZE:
        raise ValueError(f"{len(set(pieces))} different pieces of {len(pieces)}, expected {VOCABULARY_SIZE}")
    return {piece: index for index, piece in enumerate(pieces)}, merges


def _corpus() -> Iterator[str]:
    """What is to be read with care more often than the fixed texts around it."""
    for name in _CORPUS_OF:
        for number, judgement in enumerate(judgements(name, _CORPUS_SEED, _CORPUS_ROWS, "train")):
            yield from (f"{turn['role']}\n{turn['content']}" for turn in judgement.case.context)
            yield judgement.text.removeprefix("<think>")
            yield f"{judgement.principle} Yes No {' '.join(WORDS)}"
            every = {"system": _SYSTEM_EVERY}
            spoken = [turn for turn in judgement.messages if number % every.get(turn["role"], _PROMPT_EVERY) == 0]
            yield from (f"{turn['role']}\n{turn['content']}" for turn in spoken)


def save_tokenizer(tokenizer: PreTrainedTokenizerFast, folder: Path) -> None:
    """In a checkpoint's folder, on one line: the layout that the library writes is three times as large."""
    tokenizer.save_pretrained(folder)
    path = folder / "tokenizer.json"
    state = json.loads(path.read_text())
    path.write_text(json.dumps(state, ensure_ascii=False, separators=(",", ":")) + "\n")
