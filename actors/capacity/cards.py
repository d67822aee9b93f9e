"""GPUs by name: their memory, and what their makers' data sheets say they compute, without sparsity.

Memory is what nvidia-smi reports, in MiB, or else the data sheet's gigabytes (10^9 bytes), which are never more than that.
A card whose peak couldn't be read in a source of its maker has none: its layouts are planned, and no time is.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from actors.errors import SettingsError

_NVIDIA = (
    "NVIDIA's AIConfigurator, systems/*.yaml, https://github.com/ai-dynamo/aiconfigurator/tree/"
    "095f58a51c4ca8e61b66ec108d86f223f8d559ce"
)
_H100 = "https://glennklockwood.com/garden/processors/h100"
_A10 = "the data sheet of the A10 (BFLOAT16 125 TF without sparsity)"
_AMD = "the data sheet of the MI300X as cited in https://github.com/alpharomercoma/MI300X-vs-H200"
_MIB = 2**20


@dataclass(frozen=True)
class Card:
    """A GPU: bytes of memory, dense operations a second by precision, bytes a second from memory, GPUs of a usual node.

    `share` is how much of the efficiency of NVIDIA's cards the software was seen to reach.
    """

    name: str
    memory: float
    peak: Mapping[str, float]
    bandwidth: float = 0.0
    source: str = ""
    per_node: int = 8
    share: float = 1.0

    def computes_in(self, precision: str) -> str:
        """The precision of the matrix products: weights in fewer bits than a card multiplies are widened to 16."""
        return precision if precision == "float32" or precision in self.peak else "bfloat16"


def _peak(*tera: float, float32: float = 0.0) -> dict[str, float]:
    """Operations a second, from the TFLOP/s of each precision that the card multiplies in."""
    named = dict(zip(("bfloat16", "fp8", "nvfp4"), tera, strict=False)) | ({"float32": float32} if float32 else {})
    return {precision: value * 1e12 for precision, value in named.items()}


CARDS: Mapping[str, Card] = MappingProxyType(
    {
        card.name: card
        for card in (
            # float32 without tensor cores: 67 TFLOP/s on H100 and H200, 19.5 on A100, by NVIDIA's data sheets.
            Card("A100", 81_920 * _MIB, _peak(312, float32=19.5), 2.039e12, _NVIDIA),
            Card("H100", 81_559 * _MIB, _peak(989.4, 1978.9, float32=66.9), 3.35e12, _H100),
            Card("H100-PCIe", 81_559 * _MIB, _peak(756.5, 1513), 2.0e12, _NVIDIA),
            Card("H100-NVL", 95_830 * _MIB, {}),
            Card("H200", 143_771 * _MIB, _peak(989.4, 1978.9, float32=66.9), 4.8e12, _H100),
            # 179 GiB: https://docs.vultr.com/inference-cookbook/cuda/getting-started/hardware-overview
            Card("B200", 179 * 2**30, _peak(2250, 4500, 9000), 7.7e12, _NVIDIA),
            Card("B300", 275_040 * _MIB, _peak(2250, 4500, 14000), 7.75e12, _NVIDIA),
            Card("GB200", 189_471 * _MIB, _peak(2500, 5000, 10000), 8.0e12, _NVIDIA, per_node=4),
            Card("GB300", 284_208 * _MIB, _peak(2500, 5000, 15000), 8.0e12, _NVIDIA, per_node=4),
            Card("L40S", 46_068 * _MIB, _peak(362.05, 733), 0.864e12, _NVIDIA),
            Card("RTX-PRO-6000", 97_887 * _MIB, _peak(467.8, 935.6, 1871.2), 1.792e12, _NVIDIA),
            Card("RTX-6000-Ada", 48e9, {}),
            Card("A10", 24e9, _peak(125), 0.6e12, _A10),
            # There an H200, with 0.76 of the peak, was 2.06 times as fast with an 8B that mostly reads.
            Card("MI300X", 192e9, _peak(1307.4, 2614.9), 5.3e12, _AMD, share=0.45),
        )
    }
)
NO_GPU = "none"
"""The name of no card: engines run on CPUs."""
_SIZES = {"80gb": "h100", "141gb": "h200"}  # the only cards of these sizes when they had no other names
_MEMORY = re.compile(r"(\d+(?:\.\d+)?)\s*(GB|GiB)", re.IGNORECASE)


def find_card(name: str) -> Card:
    """The card of a name (`H200`, `rtx pro 6000`) or of a memory size (`96GB`, `22.5GiB`). Raises `SettingsError`.

    A size alone has no peak and no bandwidth: its layouts are planned, and no time is.
    """
    key = re.sub(r"[\s_-]+", "-", name.strip()).lower().removeprefix("nvidia-")
    if card := {label.lower(): card for label, card in CARDS.items()}.get(_SIZES.get(key.replace("-", ""), key)):
        return card
    if (size := _MEMORY.fullmatch(name.strip())) and float(size[1]):
        return Card(name, float(size[1]) * (2**30 if size[2].lower() == "gib" else 1e9), {})
    raise SettingsError(f"gpu is {name!r}; it may be {', '.join(CARDS)}, or a GPU's memory, such as 96GB")
