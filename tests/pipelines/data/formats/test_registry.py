"""A shape is one file in `shapes/`, found by being there."""

import importlib
import pkgutil

from pipelines.data.formats import PROMPT_SHAPES, SHAPES, Shape, shapes

MODULES = [importlib.import_module(f"{shapes.__name__}.{module.name}") for module in pkgutil.iter_modules(shapes.__path__)]


def test_every_file_holds_a_shape_and_every_shape_has_a_name_of_its_own() -> None:
    answered = [module.SHAPE for module in MODULES if hasattr(module, "SHAPE")]
    prompts = [module.PROMPT_SHAPE for module in MODULES if hasattr(module, "PROMPT_SHAPE")]
    assert all(isinstance(shape, Shape) for shape in (*answered, *prompts))
    assert all(hasattr(module, "SHAPE") or hasattr(module, "PROMPT_SHAPE") for module in MODULES)
    assert sorted(SHAPES) == sorted(shape.name for shape in answered)
    assert sorted(PROMPT_SHAPES) == sorted(shape.name for shape in prompts)
    assert (len(SHAPES), len(PROMPT_SHAPES)) == (len(answered), len(prompts))
    assert len(MODULES) >= 22
