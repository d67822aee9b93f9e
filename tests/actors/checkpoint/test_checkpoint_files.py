"""Where a model is, and that two different ones never pass for the same."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from actors.checkpoint.checkpoint_files import BUILT_IN, Checkpoint, locate
from actors.errors import ModelError
from tests.support.models import ATTRIBUTES_CONFIG, ATTRIBUTES_WEIGHTS, reward_model, write_model, write_weights


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_model(tmp_path / "model", config=ATTRIBUTES_CONFIG, weights=ATTRIBUTES_WEIGHTS)


# Finding a model.


@pytest.mark.parametrize(
    ("model", "advice"),
    [
        ("./missing", "give a folder, a hub id"),
        ("/no/such/folder", "give a folder, a hub id"),
        ("missing", "give a folder, a hub id"),
        ("a/b/c", "give a folder, a hub id"),
        ("tiny-nothing", "there are tiny-attributes, .*, tiny-principle, .*, tiny-scalar"),
        ("nobody/no-such-model", "Check the id, the network, and HF_TOKEN"),
    ],
)
def test_what_isnt_there_is_refused_with_advice(model: str, advice: str) -> None:
    with pytest.raises(ModelError, match=advice) as refused:
        Checkpoint.find(model, None)
    assert model in str(refused.value)


def test_a_folder_without_a_config_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"holds no config\.json; a model folder has"):
        Checkpoint.find(str(tmp_path), None)


@pytest.mark.parametrize("written", ["", "{", "\ufeff{}x"])
def test_a_broken_config_is_refused(folder: Path, written: str) -> None:
    (folder / "config.json").write_text(written)
    with pytest.raises(ModelError, match=r"config\.json can't be read"):
        reward_model(folder)


def test_a_revision_is_for_hub_models(folder: Path) -> None:
    with pytest.raises(ModelError, match="--revision main is for hub models"):
        Checkpoint.find(str(folder), "main")


def test_a_built_in_model_is_found_by_name_wherever_the_repository_lies(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert locate("tiny-scalar") == str(BUILT_IN / "scalar")
    monkeypatch.chdir(tmp_path)
    assert Checkpoint.find("tiny-scalar", None).folder == BUILT_IN / "scalar"
    (tmp_path / "tiny-scalar").mkdir()
    assert locate("tiny-scalar") == "tiny-scalar"  # a folder of that name is meant


# Telling weights apart.


def overwrite(tensor: str, *, last: bool) -> Callable[[Path], None]:
    """Change one byte of a tensor."""

    def change(folder: Path) -> None:
        file = folder / "model.safetensors"
        content = bytearray(file.read_bytes())
        length = int.from_bytes(content[:8], "little")
        start, end = json.loads(content[8 : 8 + length])[tensor]["data_offsets"]
        content[8 + length + (end - 1 if last else start)] ^= 1
        file.write_bytes(content)

    return change


def rename_tensor(folder: Path) -> None:
    file = folder / "model.safetensors"
    file.write_bytes(file.read_bytes().replace(b"embed_tokens", b"embed_tokenz"))


def add_weights(folder: Path) -> None:
    write_weights(folder / "model-2.safetensors", {"more": 1})


def rename_file(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder / "model-1.safetensors")


@pytest.mark.parametrize(
    "change",
    [
        overwrite("score.weight", last=True),
        overwrite("score.weight", last=False),
        overwrite("score.bias", last=True),
        overwrite("score.bias", last=False),
        overwrite("model.embed_tokens.weight", last=True),
        overwrite("model.embed_tokens.weight", last=False),
        rename_tensor,
        add_weights,
        rename_file,
    ],
)
def test_other_weights_have_another_fingerprint(folder: Path, change: Callable[[Path], None]) -> None:
    before = Checkpoint.find(str(folder), None).fingerprint()
    change(folder)
    assert Checkpoint.find(str(folder), None).fingerprint() != before


def test_a_copy_has_the_same_fingerprint(folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder, tmp_path / "copy")
    assert Checkpoint.find(str(tmp_path / "copy"), None).fingerprint() == Checkpoint.find(str(folder), None).fingerprint()


def test_weights_of_the_hub_are_told_apart_by_their_commit(tmp_path: Path) -> None:
    assert Checkpoint(tmp_path, "1234abcd").fingerprint() == "hub:1234abcd"


@pytest.mark.parametrize("content", [b"", b"abc", b"version https://git-lfs.github.com/spec/v1", b"\xff" * 20])
def test_what_are_no_weights_is_refused(folder: Path, content: bytes) -> None:
    (folder / "model.safetensors").write_bytes(content)
    with pytest.raises(ModelError, match="complete safetensors file"):
        reward_model(folder)


def test_weights_that_are_not_safetensors_are_refused(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    with pytest.raises(ModelError, match=r"holds no weights as \*\.safetensors"):
        reward_model(folder)


@pytest.mark.parametrize("file", ["tokenizer.json", "chat_template.jinja", "tokenizer_config.json"])
def test_another_template_or_tokenizer_is_seen(folder: Path, file: str) -> None:
    before = reward_model(folder)
    (folder / file).write_text((folder / file).read_text() + " ")
    after = reward_model(folder)
    assert (before.template_hash, before.tokenizer_hash) != (after.template_hash, after.tokenizer_hash)
    (folder / file).unlink()
    missing = reward_model(folder)
    assert len({(model.template_hash, model.tokenizer_hash) for model in (before, after, missing)}) == 3
