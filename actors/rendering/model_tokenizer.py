"""A checkpoint's tokenizer and its chat template: the one place where transformers' tokenizers are loaded and called."""

import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from actors.checkpoint.checkpoint_files import Checkpoint
from actors.contracts.family import Family
from actors.errors import ModelError, Rejected
from actors.records import Message, Reason
from actors.rendering.shown_texts import PROBE
from actors.reward_model import RewardModel
from actors.text.tool_calls import as_messages

TEMPLATE_DATE = datetime(2024, 7, 26, tzinfo=UTC)
"""Some templates print today's date: then a score would change overnight. This is the day that Llama 3's fall back on."""


class ModelTokenizer:
    """Texts to ids and back, and messages to text. Seconds to load, so it is made once per process and model."""

    def __init__(self, checkpoint: Checkpoint, family: Family) -> None:
        """Raises `ModelError` if the checkpoint's tokenizer can't be loaded."""
        self.pretrained = _load(checkpoint, family)
        if checkpoint.given_template is not None:
            self.pretrained.chat_template = checkpoint.given_template
        self.has_used_template = False
        self.name: str = self.pretrained.name_or_path
        self.begin: int | None = self.pretrained.bos_token_id
        # OpenRLHF's trainer has the tokenizer add nothing: BOS is there if the template writes it.
        first: list[int] = self.pretrained(PROBE, add_special_tokens=not family.by_openrlhf)["input_ids"][:1]
        self.prepended = first if first == [self.begin] else []  # BOS, if the tokenizer itself prepends it to a text
        # The token that ends every text, where the reward is read, if the family has one: see `close_text`.
        self.end: int | None = self.pretrained.eos_token_id if family.by_openrlhf else None
        if family.by_openrlhf and self.end is None:
            raise ModelError(
                f"{self.name}: the tokenizer has no eos_token, and OpenRLHF's reward models are read there: give the one "
                "with which it was trained in tokenizer_config.json"
            )
        self.vocabulary = _vocabulary(checkpoint, self.pretrained)
        # Whether the template prints a call's arguments from their JSON text, and not from the object.
        self.takes_text = False

    def close_text(self, text: str) -> str:
        """The text as OpenRLHF's trainer ends it, of a family that reads such: without line breaks, and with EOS."""
        # OpenRLHF@3c3be623, openrlhf/datasets/reward_dataset.py. Qwen's template ends with `<|im_end|>` and a line break:
        # with it the reward would be read at the line break, where no training shaped it.
        if self.end is None or not text:
            return text
        stripped = text.rstrip("\n")
        return stripped if stripped.endswith(self.pretrained.eos_token) else f"{stripped} {self.pretrained.eos_token}"

    def ids(self, texts: list[str]) -> list[list[int]]:
        """The ids of each text, with no token added to them."""
        if not texts:
            return []
        encoded = self.pretrained(texts, add_special_tokens=False, return_attention_mask=False, verbose=False)
        ids: list[list[int]] = encoded["input_ids"]
        return ids

    def known_ids(self, tokens: Iterable[str]) -> dict[str, int]:
        """The id of each of these texts that is a token of the vocabulary."""
        # Each by itself: the whole vocabulary as a dictionary takes 0.2 s for 262,144 tokens. An unknown text gets the id
        # of the unknown token, which is a token of another text.
        ids = {token: self.pretrained.convert_tokens_to_ids(token) for token in tokens}
        known_marks = ((token, number) for token, number in ids.items() if number is not None)
        return {token: number for token, number in known_marks if self.pretrained.convert_ids_to_tokens(number) == token}

    def template(
        self, messages: Sequence[Message], *, generation_prompt: bool = False, tools: Sequence[str] = (), **variables: Any
    ) -> str:
        """See `ChatTemplate`. The `variables` are some templates' own; others pass over them."""
        if not self.pretrained.chat_template:
            raise ModelError(
                f"{self.name} has no chat template, so no prompt can be rendered: give --chat-template FILE, a Jinja file "
                "with the template that the model was trained with"
            )
        self.has_used_template = True
        try:
            text: str = self.pretrained.apply_chat_template(
                as_messages(messages, str if self.takes_text else json.loads),
                tools=list(map(json.loads, tools)) or None,
                tokenize=False,
                add_generation_prompt=generation_prompt,
                strftime_now=TEMPLATE_DATE.strftime,
                **variables,
            )
        except Exception as error:  # a template may raise anything: its own raise_exception, a TypeError inside Jinja
            raise Rejected(Reason.TEMPLATE_REFUSED, str(error)) from error
        return self.close_text(text)


def special_tokens(model: RewardModel) -> Mapping[int, str]:
    """The special tokens of a model's tokenizer, which a decoded text is usually without: the text of each id.

    Raises `ModelError` if the tokenizer can't be loaded.
    """
    tokenizer = _load(model.checkpoint, model.family)
    added = {number: token.content for number, token in tokenizer.added_tokens_decoder.items() if token.special}
    return added | dict(zip(tokenizer.all_special_ids, tokenizer.all_special_tokens, strict=True))


def _vocabulary(checkpoint: Checkpoint, tokenizer: Any) -> int:
    # How many token ids the model has an embedding for: there may be more than the tokenizer has tokens.
    sizes = (config.get("vocab_size") for config in (checkpoint.text_config, checkpoint.config))
    return int(next(filter(None, sizes), len(tokenizer)))


def _load(checkpoint: Checkpoint, family: Family) -> Any:
    """The checkpoint's tokenizer. Raises `ModelError` if it can't be loaded.

    As tokenizer.json has it, where there is one: by the model type alone, transformers 5 puts rules of its own in it.
    """
    if (checkpoint.folder / "tokenizer.json").exists():
        from transformers import PreTrainedTokenizerFast as Tokenizer  # a second of import, which --help does without
    else:
        family.register()
        from transformers import AutoTokenizer as Tokenizer  # four, for it imports torch
    try:
        return Tokenizer.from_pretrained(str(checkpoint.folder), trust_remote_code=False)
    except Exception as error:  # transformers raises what its parsers raise
        raise ModelError(
            f"the tokenizer in {checkpoint.folder} can't be loaded, and no code of a checkpoint's own is run: {error}"
        ) from error
