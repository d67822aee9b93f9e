"""Judges by name: rubrics with the prompt and the parser that authors publish, each in `published_rubrics/NAME.yaml`."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

PRESET = "preset:"
_FOLDER = Path(__file__).parent / "published_rubrics"


def presets() -> Mapping[str, str]:
    """What each is in a few words, by its name: the first line of its file."""
    paths = sorted(_FOLDER.glob("*.yaml"), key=lambda path: path.stem)
    return {path.stem: path.read_text(encoding="utf-8").partition("\n")[0].removeprefix("# ") for path in paths}


def preset_path(value: Any) -> Any:
    """The path of the file of `preset:NAME`; any other value as it is. Raises `ValueError` for an unknown name."""
    if not isinstance(value, str) or not value.startswith(PRESET):
        return value
    name = value.removeprefix(PRESET)
    if name not in presets():
        raise ValueError(
            f"the rubric {value!a} isn't there: {PRESET}NAME takes {', '.join(presets())}. A file of yours is given by its "
            "path"
        )
    return str(_FOLDER / f"{name}.yaml")
