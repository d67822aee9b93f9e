"""How authors ran a model on a benchmark where that isn't how its card says that it is read: `presets.yaml`."""

import functools
from collections.abc import Mapping

from pydantic import Field

from actors.settings.replica import Dtype, TooLong
from pipelines.results.evaluation.published import YamlData, plain_name


class PresetSettings(YamlData):
    """Settings of `assay score`; those of None are as in the reading by the card."""

    dtype: Dtype | None = None
    max_model_len: int | None = None
    too_long: TooLong | None = None
    second_bos: bool | None = None
    system: str | None = None

    def render(self) -> Mapping[str, object]:
        # `dtype` is the engine's; the others are those of `RenderSettings`.
        return self.model_dump(exclude={"dtype"}, exclude_none=True)

    def __str__(self) -> str:
        settings = self.model_dump(mode="json", exclude_none=True)
        settings |= {"system": repr(self.system)} if self.system is not None else {}
        return ", ".join(name if value is True else f"{name} {value}" for name, value in settings.items())


class Preset(YamlData):
    """How `models` were run on a benchmark: the source, what it states, and the part of that which isn't reproduced."""

    benchmark: str
    models: tuple[str, ...]
    source: str
    stated: str
    settings: PresetSettings
    not_reproduced: tuple[str, ...] = ()

    def lines(self) -> list[str]:
        missing = [f"Not reproduced: {'; '.join(self.not_reproduced)}."] if self.not_reproduced else []
        return [f"As published: {self.stated} ({self.source}).", f"Here: {self.settings}.", *missing]


class _Presets(YamlData):
    presets: tuple[Preset, ...] = Field(min_length=1)


@functools.cache
def presets() -> tuple[Preset, ...]:
    """The presets of all benchmarks, read once."""
    return _Presets.read("presets.yaml").presets


def preset_of(benchmark: str, model: str) -> Preset | None:
    """How authors ran a model, given as hub id or folder, on a benchmark; None if that isn't known.

    Models are told by the last part of their names, so that a folder on disk is one, too.
    """
    of_benchmark = (preset for preset in presets() if preset.benchmark == benchmark)
    return next((preset for preset in of_benchmark if plain_name(model) in map(plain_name, preset.models)), None)
