"""A language model for real vLLM that writes the same text whatever it is asked."""

from pathlib import Path

from actors.checkpoint.checkpoint_files import BUILT_IN


def write_one_text(folder: Path, text: str) -> Path:
    """A Llama with the tokenizer and the template of tiny-r3, in which `text` is one more token.

    All but three of its weights are 0: the last token of a generation prompt gives `text`, and that the end of the turn.
    """
    import torch
    from tokenizers import AddedToken
    from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM

    tokenizer = AutoTokenizer.from_pretrained(BUILT_IN / "r3")
    tokenizer.add_tokens([AddedToken(text, normalized=False)])
    opened = tokenizer.apply_chat_template([{"role": "user", "content": "?"}], add_generation_prompt=True, return_dict=False)
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=32,
        intermediate_size=32,
        num_hidden_layers=1,
        num_attention_heads=1,
        num_key_value_heads=1,
        max_position_embeddings=4096,
        eos_token_id=tokenizer.eos_token_id,
        tie_word_embeddings=False,
        dtype="float32",
    )
    model = LlamaForCausalLM(config)
    text_id = tokenizer.convert_tokens_to_ids(text)
    with torch.no_grad():
        for name, weights in model.named_parameters():
            weights.fill_(1.0 if "norm" in name else 0.0)
        embeddings, output = model.model.embed_tokens.weight, model.lm_head.weight
        embeddings[opened[-1], 0] = embeddings[text_id, 1] = 1.0
        output[text_id, 0] = output[tokenizer.eos_token_id, 1] = 10.0
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder
