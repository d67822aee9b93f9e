"""Where a model is, and that two different ones never pass for the same."""

import json
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from actors.checkpoint.checkpoint_files import BUILT_IN, Adapter, Checkpoint, locate
from actors.errors import ModelError
from actors.reward_model import RewardModel, resolve_model
from actors.scorers.policy import resolve_policy
from actors.settings.replica import ModelSettings, PolicySettings, RenderSettings
from tests.support.models import ATTRIBUTES_CONFIG, ATTRIBUTES_WEIGHTS, reward_model, write_model, write_weights


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_model(tmp_path / "model", config=ATTRIBUTES_CONFIG, weights=ATTRIBUTES_WEIGHTS)


# Finding a model.


def test_what_isnt_there_is_refused_with_advice() -> None:
    cases: list[tuple[str, str]] = [
        ("./missing", "give a folder, a hub id"),
        ("/no/such/folder", "give a folder, a hub id"),
        ("missing", "give a folder, a hub id"),
        ("a/b/c", "give a folder, a hub id"),
        ("tiny-nothing", "there are .*, tiny-attributes, .*, tiny-principle, .*, tiny-scalar"),
        ("nobody/no-such-model", "Check the id, the network, and HF_TOKEN"),
    ]
    for model, advice in cases:
        with pytest.raises(ModelError, match=advice) as refused:
            Checkpoint.find(model, None)
        assert model in str(refused.value)


def test_a_folder_without_a_config_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"holds no config\.json; a model folder has"):
        Checkpoint.find(str(tmp_path), None)


def test_an_adapters_folder_is_told_from_a_model(tmp_path: Path) -> None:
    (tmp_path / "adapter_config.json").write_text(json.dumps({"base_model_name_or_path": "some/chat-model", "r": 8}))
    write_weights(tmp_path / "adapter_model.safetensors", {"base.lora_A.weight": 8})
    with pytest.raises(ModelError, match="is a LoRA adapter, which is no model by itself") as refused:
        reward_model(tmp_path)
    assert f"give --model some/chat-model --set adapter={tmp_path}, or" in str(refused.value)
    assert "merge it into some/chat-model with PEFT's merge_and_unload" in str(refused.value)


POINTER = (
    "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a214614ab2935c943f9e0ff69d22eadbb8f32b\nsize 538092792\n"
)


def test_a_file_that_a_clone_didnt_fetch_is_named(folder: Path) -> None:
    for file in ("config.json", "chat_template.jinja", "tokenizer.json", "tokenizer.model", "model.safetensors"):
        (folder / file).write_text(POINTER)
        with pytest.raises(ModelError, match=rf"{file} is a Git LFS pointer and not the file itself: `git lfs pull`"):
            reward_model(folder)
        (folder / file).unlink()


def test_an_adapter_that_a_clone_didnt_fetch_is_named(tmp_path: Path) -> None:
    (tmp_path / "adapter_config.json").write_text(json.dumps({"base_model_name_or_path": "some/chat-model", "r": 8}))
    (tmp_path / "adapter_model.safetensors").write_text(POINTER)
    with pytest.raises(ModelError, match=r"adapter_model\.safetensors is a Git LFS pointer"):
        Adapter.find(str(tmp_path))


def test_a_broken_config_is_refused(folder: Path) -> None:
    for content in ("", "{", "\ufeff{}x"):
        (folder / "config.json").write_text(content)
        with pytest.raises(ModelError, match=r"config\.json can't be read"):
            reward_model(folder)


@pytest.mark.parametrize(
    ("model", "says"),
    [
        ("exact-mach", r"a tiny-\* model, or a verifier: exact-match, .*text-similarity\. Did you mean 'exact-match'\?$"),
        ("exact-match", "exact-match is a verifier: code without a checkpoint, which takes no GPU"),
        ("./no-such-folder", r"there is no model folder \./no-such-folder; .*text-similarity\.$"),
        ("tiny-nothing", r"there is no built-in model 'tiny-nothing'; .*\. Assay's repository has more than its package$"),
    ],
)
def test_what_a_name_that_isnt_there_may_be_is_told(model: str, says: str) -> None:
    with pytest.raises(ModelError, match=says):
        Checkpoint.find(model, None)


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


# Telling models apart.


def flip(file: Path, place: int) -> None:
    """Change one bit of a byte."""
    content = bytearray(file.read_bytes())
    content[place] ^= 1
    file.write_bytes(content)


def test_every_byte_of_the_weights_counts(folder: Path) -> None:
    """At the ends of tensors and in their middles: retrained weights may differ anywhere."""
    size = (folder / "model.safetensors").stat().st_size
    places = [size - 1, *range(1000, size, 40_000)]
    seen = [hashes_of(folder)]
    for place in places:
        flip(folder / "model.safetensors", place)
        seen.append(hashes_of(folder))
    assert len({hashes["weights"] for hashes in seen}) == len(places) + 1
    assert len({(hashes["template"], hashes["tokenizer"], hashes["config"]) for hashes in seen}) == 1


COUNTED = {
    "chat_template.jinja": "template",
    "tokenizer_config.json": "template",
    "tokenizer.json": "tokenizer",
    "tokenizer.model": "tokenizer",
    **dict.fromkeys(
        [
            "config.json",
            "generation_config.json",
            "added_tokens.json",
            "special_tokens_map.json",
            "vocab.json",
            "merges.txt",
            "hf_quant_config.json",
            "modeling_mine.py",
            "pytorch_model.bin",
            "model.safetensors.index.json",
            "additional_chat_templates/tool_use.jinja",
            "1_Pooling/config.json",
            "some/deep/folder/weights.safetensors",
            "onnx/manifest.json",
            "onnx/model.onnx",
            "of no known kind",
            "ü \udcff",
        ],
        "config",
    ),
}
HARMLESS = ["README.md", "readme.txt", "LICENSE", "License.txt", "NOTICE", "assets/logo.PNG", ".gitattributes", ".git/HEAD"]
HARMLESS += [".cache/huggingface/download/x.metadata", "optimizer.pt", "scored/manifest.json", "scored/parts/1.parquet"]


@pytest.fixture
def full(folder: Path) -> Path:
    """A folder with files of all kinds."""
    for name in (*COUNTED, *HARMLESS):
        if not (folder / name).exists():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text('{"weight_map": {}, "more": "xxxxxxxxxx"}')
    (folder / "scored" / "manifest.json").write_text('{\n  "assay": "1.0",\n  "identity": {}}')
    return folder


def hashes_of(folder: Path) -> Mapping[str, str]:
    return Checkpoint(folder, None).hashes()


def test_every_byte_of_every_other_file_counts(full: Path) -> None:
    for name, kind in COUNTED.items():
        content, before = (full / name).read_bytes(), hashes_of(full)
        flip(full / name, -5)
        flipped = hashes_of(full)
        (full / name).unlink()
        for after in (flipped, hashes_of(full)):
            assert [changed for changed in before if after[changed] != before[changed]] == [kind], name
        (full / name).write_bytes(content)


@pytest.mark.parametrize("name", HARMLESS)
def test_what_no_number_depends_on_may_change(full: Path, name: str) -> None:
    before = hashes_of(full)
    flip(full / name, -5)
    assert hashes_of(full) == before
    (full / name).unlink()
    if name != "scored/manifest.json":  # without it, the folder isn't a run's
        assert hashes_of(full) == before


def test_files_behind_links_count(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "templates").mkdir()
    (tmp_path / "templates" / "tool_use.jinja").write_text("a")
    (folder / "additional_chat_templates").symlink_to(tmp_path / "templates")
    before = hashes_of(folder)
    (tmp_path / "templates" / "tool_use.jinja").write_text("b")
    assert hashes_of(folder) != before


def test_other_weights_have_another_hash(folder: Path) -> None:
    weights = folder / "model.safetensors"
    hashes = [hashes_of(folder)["weights"]]
    weights.write_bytes(weights.read_bytes().replace(b"embed_tokens", b"embed_tokenz"))
    hashes.append(hashes_of(folder)["weights"])
    write_weights(folder / "model-2.safetensors", {"more": 1})
    hashes.append(hashes_of(folder)["weights"])
    weights.rename(folder / "model-1.safetensors")
    hashes.append(hashes_of(folder)["weights"])
    assert len({*hashes}) == 4


def test_a_copy_has_the_same_hashes(full: Path, tmp_path: Path) -> None:
    shutil.copytree(full, tmp_path / "copy")
    assert Checkpoint.find(str(tmp_path / "copy"), None).hashes() == hashes_of(full)


def test_of_a_hub_model_the_commit_stands_for_what_isnt_fetched_yet(full: Path) -> None:
    before = Checkpoint(full, "1234abcd").hashes()
    assert before["weights"] == "hub:1234abcd"
    for name in ("model.safetensors", "pytorch_model.bin", "modeling_mine.py"):
        (full / name).unlink()
    assert Checkpoint(full, "1234abcd").hashes() == before
    flip(full / "generation_config.json", -5)
    assert Checkpoint(full, "1234abcd").hashes()["config"] != before["config"]


def test_what_are_no_weights_is_refused(folder: Path) -> None:
    for content in (b"", b"abc", b"\xff" * 20):
        (folder / "model.safetensors").write_bytes(content)
        with pytest.raises(ModelError, match="complete safetensors file"):
            reward_model(folder)


def test_weights_that_are_not_safetensors_are_refused(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    with pytest.raises(ModelError, match=r"holds no weights as \*\.safetensors"):
        reward_model(folder)


# Adapters.


@pytest.fixture
def adapter(tmp_path: Path) -> Path:
    """A copy of tiny-r3-lora, an adapter of tiny-genrm-principle."""
    return Path(shutil.copytree(BUILT_IN / "r3-lora", tmp_path / "adapter"))


@pytest.mark.parametrize("name", ["adapter_model.safetensors", "adapter_config.json", "added_tokens.json", "more/x.jinja"])
def test_every_byte_of_an_adapters_files_counts(adapter: Path, name: str) -> None:
    if not (adapter / name).exists():
        (adapter / name).parent.mkdir(exist_ok=True)
        (adapter / name).write_text("{}" * 9)
    base = Checkpoint.find("tiny-genrm-principle", None)
    before = base.hashes(str(adapter))
    flip(adapter / name, (adapter / name).stat().st_size - 1)
    after = base.hashes(str(adapter))
    assert [kind for kind in before if after[kind] != before[kind]] == ["weights"]


def test_an_adapters_rank_is_the_largest_of_its_matrices(adapter: Path) -> None:
    config = adapter / "adapter_config.json"
    settings = json.loads(config.read_text())
    for ranks, largest in (({}, 16), ({"q_proj": 32}, 32), ({"q_proj": 4, "k_proj": 8}, 16), (None, 16)):
        config.write_text(json.dumps({**settings, "rank_pattern": ranks}))
        assert Adapter.find(str(adapter)).rank == largest
    for name in ("r", "rank_pattern"):
        config.write_text(json.dumps({**settings, name: ["x"]}))
        with pytest.raises(ModelError, match=r"adapter_config\.json has no valid ranks"):
            _ = Adapter.find(str(adapter)).rank


JUDGE = BUILT_IN / "genrm-principle"
TEMPLATE = (JUDGE / "chat_template.jinja").read_text()


def named(template: str) -> str:
    return json.dumps({"chat_template": [{"name": "tool_use", "template": ""}, {"name": "default", "template": template}]})


@pytest.mark.parametrize(
    ("files", "fits"),
    [
        ({}, True),
        ({"tokenizer_config.json": "{}"}, True),
        ({"chat_template.jinja": TEMPLATE}, True),
        ({"tokenizer_config.json": json.dumps({"chat_template": TEMPLATE})}, True),
        ({"tokenizer_config.json": named(TEMPLATE)}, True),
        ({"chat_template.jinja": TEMPLATE, "tokenizer_config.json": json.dumps({"chat_template": "other"})}, True),
        ({"chat_template.jinja": TEMPLATE + "."}, False),
        ({"tokenizer_config.json": json.dumps({"chat_template": "other"})}, False),
        ({"tokenizer_config.json": named("other")}, False),
        ({"chat_template.jinja": "other", "tokenizer_config.json": json.dumps({"chat_template": TEMPLATE})}, False),
    ],
)
def test_an_adapter_with_a_template_of_its_own_is_refused(adapter: Path, files: Mapping[str, str], fits: bool) -> None:
    """Prompts are rendered with its base's template: with the one it was trained with, its scores would be others."""
    for name, text in files.items():
        (adapter / name).write_text(text)
    resolutions: tuple[Callable[[], RewardModel], ...] = (
        lambda: resolve_model(ModelSettings(model=str(JUDGE), adapter=str(adapter), family="r3"), RenderSettings()),
        lambda: resolve_policy(PolicySettings(policy=str(JUDGE), policy_adapter=str(adapter))),
    )
    for resolve in resolutions:
        if fits:
            assert resolve().adapter == str(adapter)
            continue
        with pytest.raises(ModelError, match=r"another chat template than .*genrm-principle.*: say with --chat-template"):
            resolve()
    model_settings = ModelSettings(model=str(JUDGE), adapter=str(adapter), family="r3", chat_template=TEMPLATE)
    assert resolve_model(model_settings, RenderSettings()).chat_template == TEMPLATE


def test_a_template_that_cant_be_read_is_refused(adapter: Path) -> None:
    for content in ("[]", "{", "\udcff"):
        (adapter / "tokenizer_config.json").write_text(content, errors="surrogateescape")
        with pytest.raises(ModelError, match=r"the chat template in .* can't be read"):
            _ = Checkpoint(adapter, None).chat_template
