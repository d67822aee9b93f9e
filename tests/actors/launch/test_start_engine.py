"""What ends a start, so that no row is tried on an engine that can do none."""

import gc
import json
import shutil
import sys
import warnings
from importlib.abc import MetaPathFinder
from pathlib import Path

import psutil
import pytest

from actors.checkpoint.checkpoint_files import BUILT_IN
from actors.errors import EngineError
from actors.launch.start_engine import start_engine
from actors.reward_model import resolve_model
from actors.settings.replica import EngineSettings, ModelSettings, RenderSettings


def test_an_adapter_that_vllm_refuses_ends_the_start_with_its_words(tmp_path: Path) -> None:
    adapter = Path(shutil.copytree(BUILT_IN / "r3-lora", tmp_path / "adapter"))
    config = adapter / "adapter_config.json"
    config.write_text(json.dumps({**json.loads(config.read_text()), "use_dora": True}))
    model = resolve_model(ModelSettings(model="tiny-genrm-principle", adapter=str(adapter), family="r3"), RenderSettings())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # vLLM leaves a ZeroMQ context open
        with pytest.raises(EngineError, match=f"the adapter {adapter} can't be loaded: .*does not yet support DoRA"):
            start_engine(model, EngineSettings())
        gc.collect()
    assert not [child for child in psutil.Process().children(recursive=True) if "EngineCore" in child.name()]


def test_a_vllm_that_isnt_installed_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "actors.engine.vllm_engine", raising=False)
    for name in [name for name in sys.modules if name.partition(".")[0] == "vllm"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(sys, "meta_path", [_WithoutVllm(), *sys.meta_path])
    model = resolve_model(ModelSettings(model="tiny-scalar"), RenderSettings())
    with pytest.raises(EngineError, match=r"vLLM isn't installed: pip install \"assay\[gpu\]\" for NVIDIA"):
        start_engine(model, EngineSettings())


class _WithoutVllm(MetaPathFinder):
    """Finds no vLLM, as where it isn't installed."""

    def find_spec(self, name: str, path: object, target: object = None) -> None:
        if name.partition(".")[0] == "vllm":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


def test_a_vllm_that_cant_be_imported_says_why_and_what_is_often_the_cause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "actors.engine.vllm_engine", raising=False)
    monkeypatch.setitem(sys.modules, "vllm.engine.arg_utils", None)
    model = resolve_model(ModelSettings(model="tiny-scalar"), RenderSettings())
    with pytest.raises(
        EngineError, match=r"vLLM can't be imported: ModuleNotFoundError: .*torchvision and torchaudio from one"
    ):
        start_engine(model, EngineSettings())
