"""A model as it lies on disk or on the hub: where it is, what its files say, and hashes of them."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from fnmatch import fnmatch
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from actors.checkpoint.file_hashes import content_hashes, counted_files
from actors.errors import ModelError
from actors.settings.verifier import is_verifier, verifiers
from actors.text.lfs_pointers import lfs_problem

if TYPE_CHECKING:
    from tokenizers import Tokenizer

BUILT_IN = Path(__file__).resolve().parents[2] / "tiny_models"
_SMALL_FILES = ["*.json", "*.jinja", "*.model", "*.txt"]
_INDEX = "model.safetensors.index.json"
# Files with hashes of their own in an identity, so that it says which of them differ.
_TEMPLATE, _TOKENIZER = ("chat_template.jinja", "tokenizer_config.json"), ("tokenizer.json", "tokenizer.model")
_DEFAULT_LABELS = 2
_MATRIX = 2  # dimensions
_VALUE_HEAD = "value_head.safetensors"
_LONG_ROPE = {"longrope", "su"}
# Causal architectures of reward models. For one that isn't listed, each turn of a conversation is a pass of its own.
_CAUSAL = {
    *("Llama", "Mistral", "Mixtral", "Nemotron", "NemotronH", "Qwen2", "Qwen2Moe", "Qwen3", "Qwen3Moe", "Qwen3Next"),
    *(
        "Qwen3_5",
        "Qwen3_5Text",
        "Qwen3_5Moe",
        "Gemma",
        "Gemma2",
        "Gemma3",
        "Gemma3Text",
        "GptOss",
        "Granite",
        "Olmo3",
        "Phi3",
    ),
}


def locate(model: str) -> str:
    """The place of a `--model`: the folder of a built-in model, a local folder, or the hub id unchanged.

    Resolved again wherever it is used, since a worker's copy of the repository may be at another path than the driver's.
    """
    if model.startswith("tiny-") and not Path(model).exists():
        folder = BUILT_IN / model.removeprefix("tiny-")
        if not any(folder.glob("*config.json")):
            names = ", ".join(f"tiny-{path.parent.name}" for path in sorted(BUILT_IN.glob("*/config.json")))
            raise ModelError(
                f"there is no built-in model {model!r}; there are {names}. Assay's repository has more than its package"
            )
        return str(folder)
    return model


@dataclass(frozen=True)
class Checkpoint:
    """The small files of a model, in a local folder; the weights may still be on the hub.

    Nothing of it is run: the configuration is read as data, and no class of the checkpoint's is imported.
    """

    folder: Path
    hub_commit: str | None
    # The text of a chat template that is used in place of its own.
    given_template: str | None = None

    @classmethod
    def find(cls, model: str, revision: str | None, *, weights: bool = False, files: Sequence[str] = ()) -> "Checkpoint":
        """Find a model's files, fetching those of a hub model: the small ones, or with its weights, and these `files`.

        Raises `ModelError` if there is no such model.
        """
        place = locate(model)
        folder = Path(place)
        if folder.is_dir():
            if revision is not None:
                raise ModelError(f"--revision {revision} is for hub models, and {place} is a local folder")
            return cls(_check_files(folder, place), None)
        if place.startswith((".", "/", "~")) or place.count("/") != 1:
            if is_verifier(place):
                raise ModelError(f"{place} is a verifier: code without a checkpoint, which takes no GPU")
            meant = "".join(f" Did you mean {close!r}?" for close in get_close_matches(place, verifiers(), n=1))
            raise ModelError(
                f"there is no model folder {place}; give a folder, a hub id (owner/name), a tiny-* model, or a verifier: "
                f"{', '.join(verifiers())}.{meant}"
            )
        return cls._fetch(place, revision, [*_SMALL_FILES, *(["*.safetensors"] if weights else []), *files])

    @classmethod
    def _fetch(cls, hub_id: str, revision: str | None, files: list[str]) -> "Checkpoint":
        from huggingface_hub import snapshot_download

        try:
            folder = snapshot_download(hub_id, revision=revision, allow_patterns=files)
        except Exception as error:  # the hub's client raises a dozen unrelated types, offline, missing and gated alike
            raise ModelError(
                f"{hub_id} isn't a local folder, and fetching it from the hub failed: {error}. "
                "Check the id, the network, and HF_TOKEN if the model is gated"
            ) from error
        return cls(_check_files(Path(folder), hub_id), Path(folder).name)

    @cached_property
    def config(self) -> Mapping[str, Any]:
        return _read_object(self.folder / "config.json")

    @property
    def text_config(self) -> Mapping[str, Any]:
        """What config.json says of the language model: all of it, or that part where others stand beside it."""
        return self.config.get("text_config") or self.config

    @property
    def architecture(self) -> str:
        return str((self.config.get("architectures") or [""])[0])

    @property
    def causal(self) -> bool:
        # Whether attention is certainly causal. Encoders have sequence classification heads too, so names are listed.
        body, _, head = self.architecture.partition("For")
        looks_ahead = self.text_config.get("use_bidirectional_attention") or not self.config.get("is_causal", True)
        return not looks_ahead and (head == "CausalLM" or body in _CAUSAL)

    @property
    def labels(self) -> int:
        """How many outputs the head has, by config.json, or by its `text_config` where config.json says none, or 2.

        As vLLM reads it (`_resolve_num_labels` in vllm/model_executor/models/adapters.py). transformers writes `num_labels`
        only as the length of `id2label`, and leaves 2 out.
        """
        if self.omits_one_label:
            return 1
        number = _label_count(self.config)
        return number if number != _DEFAULT_LABELS else _label_count(self.text_config)

    @property
    def omits_labels(self) -> bool:
        """Whether config.json says no number of labels."""
        return not any(config.get(key) for config in (self.config, self.text_config) for key in ("num_labels", "id2label"))

    @property
    def omits_one_label(self) -> bool:
        """Whether its head has one output, and config.json doesn't say so: OpenRLHF/Llama-3-8b-rm-700k, for one."""
        shape = self.tensors.get("score.weight") if self.omits_labels else None
        return shape is not None and len(shape) == _MATRIX and shape[0] == 1

    @property
    def unread_heads(self) -> list[str]:
        """What looks like a reward head by another name than `score.weight`: tensors, or LLaMA-Factory's file of one."""
        names = [name for name in self.tensors if not {"value_head", "v_head", "classifier"}.isdisjoint(name.split("."))]
        return sorted(names) + [_VALUE_HEAD] * (self.folder / _VALUE_HEAD).is_file()

    @property
    def chat_template(self) -> str | None:
        """The given one, or the one that its tokenizer has in transformers, where chat_template.jinja comes first."""
        if self.given_template is not None:
            return self.given_template
        template, config = self.folder / "chat_template.jinja", self.folder / "tokenizer_config.json"
        try:
            if template.is_file():
                return template.read_text(encoding="utf-8")
            stored = json.loads(config.read_text(encoding="utf-8")).get("chat_template") if config.is_file() else None
            if isinstance(stored, list):  # several, of which transformers takes the one called so
                stored = {entry["name"]: entry["template"] for entry in stored}.get("default")
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise ModelError(f"the chat template in {self.folder} can't be read: {error!r}") from error
        return stored

    @property
    def dtype(self) -> str:
        # The precision that the checkpoint names; float32 if it names none, as transformers does.
        named = (config.get(name) for config in (self.config, self.text_config) for name in ("dtype", "torch_dtype"))
        return str(next(filter(None, named), "float32"))

    @property
    def max_model_len(self) -> int | None:
        """The longest prompt in tokens, if the config says it.

        Of a LongRoPE model, the length up to which its short factors hold: with a longer limit, vLLM would use the long
        factors for every prompt, while transformers uses them only for prompts beyond that length.
        """
        config = self.text_config
        length = config.get("max_position_embeddings")
        rope = config.get("rope_parameters") or config.get("rope_scaling") or {}
        if (rope.get("rope_type") or rope.get("type")) in _LONG_ROPE:
            original = "original_max_position_embeddings"
            length = config.get(original) or rope.get(original) or length
        return length if isinstance(length, int) else None

    @cached_property
    def tensors(self) -> Mapping[str, tuple[int, ...] | None]:
        """Names and shapes of the weights, from the safetensors headers and the index; empty if neither is here.

        Weights that the index names, and whose file isn't here (yet), have the shape None.
        """
        shapes = {name: shape for file in self.loaded_files() for name, shape in self.tensors_of(file).items()}
        return {**dict.fromkeys(self._indexed()), **shapes}

    def _indexed(self) -> Mapping[str, str]:
        try:
            index: Mapping[str, str] = json.loads((self.folder / _INDEX).read_text())["weight_map"]
        except FileNotFoundError:
            return {}
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise ModelError(f"{self.folder / _INDEX} can't be read: {error!r}") from error
        return index

    def tensors_of(self, file: Path) -> Mapping[str, tuple[int, ...]]:
        from safetensors import SafetensorError, safe_open  # vLLM brings it

        try:
            with safe_open(file, "numpy") as tensors:
                return {name: tuple(tensors.get_slice(name).get_shape()) for name in tensors.keys()}  # noqa: SIM118
        except (OSError, SafetensorError) as error:
            raise ModelError(f"{file} isn't a complete safetensors file ({error}); fetch it again") from error

    @cached_property
    def pad_token_id(self) -> int | None:
        # The padding token of the model's class in transformers: config.json's, or else the default of its type.
        if "pad_token_id" in self.text_config:
            return self.text_config["pad_token_id"]
        from transformers import AutoConfig  # seconds of import

        try:
            config = AutoConfig.from_pretrained(str(self.folder), trust_remote_code=False).get_text_config()
        except (OSError, ValueError, KeyError):  # no type of transformers', whose classes then can't be the model's authors'
            return None
        return getattr(config, "pad_token_id", None)

    def token(self, token_id: int) -> str:
        # The token of an id, as tokenizer.json spells it. Raises `ModelError` unless there is exactly one.
        spellings = [text for text, number in self.vocabulary.items() if number == token_id]
        if len(spellings) != 1:
            raise ModelError(
                f"{self.folder}: the tokenizer has {spellings or 'no token'} for id {token_id}, and the reward is read by it"
            )
        return spellings[0]

    @cached_property
    def vocabulary(self) -> Mapping[str, int]:
        """The ids of all tokens, from tokenizer.json. Raises `ModelError` if that can't be read."""
        ids: Mapping[str, int] = self._tokenizer().get_vocab()
        return ids

    def ids_of(self, text: str) -> list[int]:
        """The token ids of a text by tokenizer.json, without special tokens. Raises `ModelError` if that can't be read."""
        ids: list[int] = self._tokenizer().encode(text, add_special_tokens=False).ids
        return ids

    def _tokenizer(self) -> "Tokenizer":
        from tokenizers import Tokenizer  # half a second less than transformers, in the driver too

        file = self.folder / "tokenizer.json"
        try:
            return Tokenizer.from_file(str(file))
        except Exception as error:  # the library raises plain Exceptions
            raise ModelError(f"{file} can't be read: {error}") from error

    def hashes(self, adapter: str | None = None, *, weights: bool = True) -> dict[str, str]:
        """What tells its files, and those of an adapter, from another model's: of the weights, template, tokenizer and rest.

        Every byte counts. Of a hub model the commit stands for the weights, and for all that Assay doesn't fetch. Raises
        `ModelError` if files can't be read, or there are no `weights`, where these are needed.
        """
        of_weights = [file.name for file in self.weight_files()]
        if weights and self.hub_commit is None and not of_weights:
            raise ModelError(f"{self.folder} holds no weights as *.safetensors; convert the checkpoint, or fetch it again")
        _ = self.tensors  # for the errors of files that aren't complete
        try:
            names = sorted({*counted_files(self.folder), *of_weights})
            if self.hub_commit is not None:
                names = [name for name in names if any(fnmatch(name, kind) for kind in _SMALL_FILES)]
            contents = dict(zip(names, content_hashes(map(self.folder.joinpath, names)), strict=True))
        except OSError as error:
            raise ModelError(f"the files of {self.folder} can't be read: {error}") from error
        hashes = dict[str, str]()
        for kind, group in {"weights": of_weights, "template": _TEMPLATE, "tokenizer": _TOKENIZER, "config": names}.items():
            described = json.dumps([(name, contents.pop(name)) for name in group if name in contents])
            hashes[kind] = f"sha256:{hashlib.sha256(described.encode()).hexdigest()[:32]}"
        if self.hub_commit is not None:
            hashes["weights"] = f"hub:{self.hub_commit}"
        if self.given_template is not None:  # beside its own files, which say more than a template
            hashes["template"] += f" + sha256:{hashlib.sha256(self.given_template.encode()).hexdigest()[:32]}"
        if adapter is not None:
            of_adapter = Checkpoint(Adapter.find(adapter).folder, None).hashes()
            hashes["weights"] = " + ".join((hashes["weights"], *of_adapter.values()))
        return hashes

    def weight_files(self) -> list[Path]:
        return sorted(self.folder.glob("*.safetensors"))

    def loaded_files(self) -> list[Path]:
        # The weight files that vLLM loads: those of the index, as others may hold the same weights by other names.
        indexed = {*self._indexed().values()}
        return [file for file in self.weight_files() if file.name in indexed] or self.weight_files()


@dataclass(frozen=True)
class Adapter:
    """A LoRA adapter in a folder: small changes to another model's weights, which the engine applies."""

    folder: Path

    @classmethod
    def find(cls, adapter: str) -> "Adapter":
        """Find its files. Raises `ModelError` if it isn't one."""
        instance = cls(Path(locate(adapter)))
        if not instance.folder.joinpath("adapter_config.json").is_file() or not any(instance.folder.glob("*.safetensors")):
            raise ModelError(
                f"{adapter} isn't a LoRA adapter, which is a folder with adapter_config.json and adapter_model.safetensors"
            )
        _check_pointers(instance.folder)
        return instance

    @property
    def rank(self) -> int:
        # The largest rank of its matrices, for which the engine must have room.
        try:
            config = json.loads((self.folder / "adapter_config.json").read_text())
            return max(map(int, (config["r"], *(config.get("rank_pattern") or {}).values())))
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise ModelError(f"{self.folder / 'adapter_config.json'} has no valid ranks: {error!r}") from error

    def check_template(self, base: Checkpoint) -> None:
        """Raise `ModelError` if it has another chat template than its base, which renders prompts, and none is given."""
        template = Checkpoint(self.folder, None).chat_template
        if base.given_template is None and template not in (None, base.chat_template):
            raise ModelError(
                f"{self.folder} holds another chat template than {base.folder}: say with --chat-template FILE which one the "
                "adapter was trained with"
            )


def _label_count(config: Mapping[str, Any]) -> int:
    return int(config["num_labels"]) if "num_labels" in config else len(config.get("id2label") or range(_DEFAULT_LABELS))


def _check_files(folder: Path, model: str) -> Path:
    _check_pointers(folder)
    if (folder / "config.json").is_file():
        return folder
    if (folder / "adapter_config.json").is_file():
        base = _read_object(folder / "adapter_config.json").get("base_model_name_or_path")
        raise ModelError(
            f"{model} is a LoRA adapter, which is no model by itself: give --model {base} --set adapter={model}, or, of a "
            f"reward head, merge it into {base} with PEFT's merge_and_unload, and give the folder of that with its tokenizer"
        )
    raise ModelError(f"{model} holds no config.json; a model folder has config.json, a tokenizer and weights")


def _read_object(file: Path) -> Mapping[str, Any]:
    try:
        content: Mapping[str, Any] = json.loads(file.read_text())
    except (OSError, ValueError) as error:
        raise ModelError(f"{file} can't be read: {error}") from error
    return content


def _check_pointers(folder: Path) -> None:
    for file in sorted(path for pattern in (*_SMALL_FILES, "*.safetensors") for path in folder.glob(pattern)):
        with file.open("rb") as stream:
            if problem := lfs_problem(stream.read(64)):
                raise ModelError(f"{file} {problem}")
