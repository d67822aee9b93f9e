"""Families whose head vLLM has no class for: the engine gives the body's hidden state, and the head is applied to it here.

The hidden state is that after the last norm, at the token that the authors read: the prompt's last one and, where a gate
weighs the outputs, one before the response. Attention is causal, so the gate's state is that at the end of a prompt which is
cut there, and the engine's prefix cache shares that prompt with the whole one. The head's tensors are the checkpoint's own,
in float32 and as after training: without dropout, and batch norms by their running statistics. No code of the checkpoint is
run, and files of torch are read as weights alone.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

from actors.checkpoint.checkpoint_files import Checkpoint
from actors.contracts.family import OneLogit
from actors.contracts.known_model import KnownModel
from actors.engine.protocol import Task
from actors.errors import EngineError, ModelError

if TYPE_CHECKING:
    import torch

Tensor: TypeAlias = "torch.Tensor"

BODIES: Mapping[str, str] = {
    kind.lower(): f"{kind}ForCausalLM" for kind in ("Llama", "Mistral", "Qwen2", "Qwen3", "Gemma", "Gemma2")
}
"""vLLM's class for a body, by the `model_type` of its config.json: causal ones, whose last norm's output is the state."""


def find_last(ids: Sequence[int], pattern: Sequence[int]) -> int | None:
    """Where the last occurrence of a pattern begins; None if there is none.

    The last, as each assistant turn before the response begins with the same tokens.
    """
    starts = range(len(ids) - len(pattern), -1, -1)
    return next((start for start in starts if list(ids[start : start + len(pattern)]) == list(pattern)), None)


@dataclass(frozen=True)
class Head:
    """A `StateHead`: its tensors by name, in float32, the config.json beside them, and the tokens of its gate, if any."""

    family: "PooledHead"
    tensors: Mapping[str, Tensor]
    config: Mapping[str, Any]
    gate: Sequence[int] = ()

    @property
    def left_out(self) -> Sequence[str]:
        return self.family.prefixes(self.config)

    def ends(self, ids: Sequence[int]) -> tuple[int, ...]:
        """The lengths at which a prompt is cut to be read: up to the first token of its gate, and whole.

        Raises `EngineError` for a prompt without its gate's tokens.
        """
        if not self.gate:
            return (len(ids),)
        if (start := find_last(ids, self.gate)) is None:
            raise EngineError(f"the prompt has no {self.family.gate_text!r}, where the gate of {self.family.name} is read")
        return start + 1, len(ids)

    def outputs(self, *states: Tensor) -> tuple[float, ...]:
        import torch

        with torch.inference_mode():
            # The whole prompt's state comes last; without a gate it is the only one, and both arguments are the same.
            return tuple(self.family.apply(self, states[-1].float(), states[0].float()).tolist())

    def through(self, name: str, state: Tensor, activation: Callable[[Tensor], Tensor] | None = None) -> Tensor:
        """The state after the layers `name`.0, ...: linear ones with an activation (ReLU) between them, and batch norms."""
        from torch.nn import functional

        numbers = sorted({int(key[len(name) + 1 :].partition(".")[0]) for key in self.tensors if key.startswith(f"{name}.")})
        for number in numbers:
            weight, bias, mean, variance = (
                self.tensors.get(f"{name}.{number}.{part}") for part in ("weight", "bias", "running_mean", "running_var")
            )
            if weight is not None and mean is None:
                state = functional.linear(state, weight, bias)
                state = state if number == numbers[-1] else (activation or functional.relu)(state)
            else:
                state = functional.batch_norm(state[None], mean, variance, weight, bias)[0]
        return state


class PooledHead(OneLogit):
    """A family that says of its head the tensors, the formula and where its gate is read.

    Its tensors are applied on the CPU, in a thread beside the engine's loop: the largest heads have 0.3 GB of weights.
    """

    task = Task.EMBED
    one_pass = False  # the engine gives the state at a prompt's end alone
    skips_padding = True
    # How the names of the head's tensors begin, which the engine doesn't load.
    head_prefixes: ClassVar[tuple[str, ...]] = ()
    # Files of torch with more of its tensors, whose names then begin with that of the file: `gate.pt`, `gate.0.weight`.
    head_files: ClassVar[tuple[str, ...]] = ()
    # The text at whose last occurrence, at its first token, the gate is read; empty without a gate.
    gate_text: ClassVar[str] = ""
    # The name of the layers that are the head, with ReLU between them, if it is no more than that.
    layers: ClassVar[str] = ""

    def apply(self, head: Head, state: Tensor, gate: Tensor) -> Tensor:
        """The `outputs`, [outputs], by the hidden states at the last token and at the gate's, each [hidden]."""
        return head.through(self.layers, state)

    def prefixes(self, config: Mapping[str, Any]) -> tuple[str, ...]:
        """How the names of the head's tensors begin in a checkpoint with this config.json."""
        return self.head_prefixes

    def labels(self, checkpoint: Checkpoint) -> int:
        return len(self.outputs())

    def read(self, values: Sequence[float]) -> Mapping[str, float]:
        return dict(zip(self.outputs(), values, strict=True))

    def overrides(self, checkpoint: Checkpoint) -> Mapping[str, Any]:
        return {"architectures": [BODIES[checkpoint.config["model_type"]]]}

    def needed_ids(self, checkpoint: Checkpoint) -> Sequence[int]:
        return checkpoint.ids_of(self.gate_text) if self.gate_text else ()

    def check(self, checkpoint: Checkpoint, published: KnownModel | None = None, tensor_parallel: int = 1) -> None:
        body, names = checkpoint.config.get("model_type"), checkpoint.tensors
        if body not in BODIES:
            raise ModelError(
                f"{checkpoint.folder}/config.json has the model_type {body}, and heads are applied to the states of "
                f"{', '.join(BODIES)}"
            )
        prefixes = self.prefixes(checkpoint.config)
        missing = [start for start in prefixes if names and not any(name.startswith(start) for name in names)]
        if checkpoint.hub_commit is None:  # else they are fetched with the weights
            missing += [file for file in self.head_files if not (checkpoint.folder / file).is_file()]
        if missing:
            raise ModelError(
                f"{checkpoint.folder} has no {missing[0]}, of the head of {self.name}. {self.advise_on_head(checkpoint)}"
            )

    def load(self, checkpoint: Checkpoint) -> Head:
        """Read the head of a checkpoint whose weights are here. Raises `ModelError` if it isn't one of this family.

        It is tried out on a state of zeros, so that tensors of another shape are refused before the engine starts.
        """
        import torch
        from safetensors import safe_open

        stored: dict[str, Tensor] = {}
        prefixes = self.prefixes(checkpoint.config)
        for file in checkpoint.weight_files():
            with safe_open(file, "pt") as weights:
                names = [name for name in weights.keys() if name.startswith(prefixes)]  # noqa: SIM118
                stored |= {name: weights.get_tensor(name) for name in names}
        if absent := [name for name in checkpoint.tensors if name.startswith(prefixes) and name not in stored]:
            raise ModelError(f"{checkpoint.folder} has no file with {absent[0]}, of the head of {self.name}: fetch it again")
        for name in self.head_files:
            try:
                layers = torch.load(checkpoint.folder / name, map_location="cpu", weights_only=True)
            except Exception as error:  # torch raises what its unpickler raises
                raise ModelError(f"{checkpoint.folder / name} can't be read as weights alone: {error}") from error
            stored |= {f"{name.removesuffix('.pt')}.{layer}": weight for layer, weight in layers.items()}
        for name, weight in stored.items():
            in_full = weight.is_floating_point() and weight.itemsize > 1  # FP8 is a floating point, too, and has a scale
            if not in_full and not name.endswith("num_batches_tracked"):
                raise ModelError(f"{checkpoint.folder}: {name} is {weight.dtype}, and a head is read in full precision")
        tensors = {name: weight.float() for name, weight in stored.items()}
        head = Head(self, tensors, checkpoint.config, self.needed_ids(checkpoint))
        state = torch.zeros(checkpoint.config["hidden_size"])
        try:
            count = len(head.outputs(state))
        except (LookupError, RuntimeError, TypeError, ValueError) as error:
            raise ModelError(f"{checkpoint.folder}: its tensors aren't the head of {self.name}: {error!r}") from error
        if count != len(self.outputs()):
            raise ModelError(
                f"{checkpoint.folder}: its head has {count} outputs, and that of {self.name} {len(self.outputs())}"
            )
        return head
