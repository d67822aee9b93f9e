"""Writes a reward head that is hidden in a language model into a checkpoint of its own, once.

The new folder is a `*ForSequenceClassification` of one label: the old weights as they are (linked where the file system
can), `score.weight` in a file of its own, and a config.json that names the family, because such a model is asked as before.
"""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from actors.checkpoint.checkpoint_files import CONVERTED, CONVERTED_FROM, Checkpoint
from actors.contracts.logit_head import CAUSAL, CLASSIFIER, LogitHead
from actors.errors import ModelError, OutputError
from actors.reward_model import family_of

_ROWS = "lm_head.weight"
_INDEX = "model.safetensors.index.json"
_OLD_WEIGHTS = ("*.bin", "*.pth", "*.gguf", "*.safetensors", _INDEX, "config.json", "original")


def convert(model: str, output: str, revision: str | None, family: str | None, report: Callable[[str], None]) -> None:
    """Write `model` with its head as a layer into the folder `output`; `report` is called with what was done.

    Raises `ModelError` if there is no head to be written, and `OutputError` if the folder exists or can't be written.
    """
    checkpoint = Checkpoint.find(model, revision, weights=True)
    reader = family_of(model, checkpoint, family)
    if not isinstance(reader, LogitHead) or reader.recognises(checkpoint):
        raise ModelError(f"{model} needs no conversion: --family {reader.name} finds its head in the checkpoint as it is")
    reader.check(checkpoint, reader.knows(checkpoint.known_as(model)))
    _check_weights(checkpoint)
    folder = Path(output)
    if folder.exists():
        raise OutputError(f"{output} exists already; give a folder that doesn't, or delete it")
    unfinished = folder.with_name(f".{folder.name}.unfinished")
    shutil.rmtree(unfinished, ignore_errors=True)
    try:
        _write(model, checkpoint, reader, unfinished)
        unfinished.rename(folder)
    except OSError as error:
        raise OutputError(f"{output} can't be written: {error}") from error
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
    rows = dict(zip(reader.tokens(checkpoint), reader.ids(checkpoint), strict=True))
    report(f"score.weight is made of the output rows of {rows}; score with --model {output}, which says its family itself")


def _check_weights(checkpoint: Checkpoint) -> None:
    """Raise `ModelError` unless the output rows can be read, once and as plain numbers, and all weights are here."""
    holders = [file.name for file in checkpoint.weight_files() if _ROWS in checkpoint.tensors_of(file)]
    missing = [name for name, shape in checkpoint.tensors.items() if shape is None]
    if missing or len(holders) != 1:
        problem = f"{missing[0]} is in a file that isn't here" if missing else f"{_ROWS} is in {holders or 'no file'}"
        raise ModelError(f"{checkpoint.folder} doesn't hold the weights of one whole checkpoint as *.safetensors: {problem}")
    if "quantization_config" in checkpoint.config:
        raise ModelError(
            f"{checkpoint.folder} is quantised, and vLLM would quantise the new head with it, which isn't how it was made; "
            "convert the checkpoint in full precision"
        )


def _write(model: str, checkpoint: Checkpoint, family: LogitHead, folder: Path) -> None:
    shutil.copytree(checkpoint.folder, folder, ignore=shutil.ignore_patterns(*_OLD_WEIGHTS))
    file_by_tensor: dict[str, str] = {}
    files = checkpoint.weight_files()
    for number, file in enumerate(files, 1):
        name = _file_name(number, len(files) + 1)
        _link_or_copy(file, folder / name)
        file_by_tensor |= dict.fromkeys(checkpoint.tensors_of(file), name)
    head = _file_name(len(files) + 1, len(files) + 1)
    _write_head(checkpoint, family, folder / head)
    index = {"metadata": {}, "weight_map": {**file_by_tensor, "score.weight": head}}
    (folder / _INDEX).write_text(json.dumps(index, indent=2))
    (folder / "config.json").write_text(json.dumps(_config(model, checkpoint, family), indent=2))


def _config(model: str, checkpoint: Checkpoint, family: LogitHead) -> dict[str, Any]:
    return {
        **checkpoint.config,
        "architectures": [checkpoint.architecture.removesuffix(CAUSAL) + CLASSIFIER],
        "id2label": {"0": "LABEL_0"},
        "label2id": {"LABEL_0": 0},
        CONVERTED: family.name,
        CONVERTED_FROM: checkpoint.known_as(model),
    }


def _write_head(checkpoint: Checkpoint, family: LogitHead, file: Path) -> None:
    # The rows as float32, so that their difference loses nothing.
    from safetensors import safe_open  # with torch, seconds of import; numpy knows no bfloat16
    from safetensors.torch import save_file

    (holder,) = (file for file in checkpoint.weight_files() if _ROWS in checkpoint.tensors_of(file))
    with safe_open(holder, "pt") as weights:
        rows = weights.get_slice(_ROWS)
        *subtracted, counted = (rows[number : number + 1].float() for number in family.ids(checkpoint))
    save_file({"score.weight": counted - sum(subtracted)}, file, metadata={"format": "pt"})
    file.chmod(0o644)  # save_file leaves it to its owner alone


def _file_name(number: int, count: int) -> str:
    return f"model-{number:05d}-of-{count:05d}.safetensors"


def _link_or_copy(old: Path, new: Path) -> None:
    try:
        os.link(old.resolve(), new)
    except OSError:  # another file system, or one without links
        shutil.copy(old, new)
