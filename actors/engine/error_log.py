"""The errors that an engine's processes log: the cause of their death, which vLLM doesn't report to the parent process."""

import json
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

_CONFIG_VARIABLE = "VLLM_LOGGING_CONFIG_PATH"
_LONGEST = 500
"""Characters of a message that are kept."""


class ErrorLog:
    """A file that gets the errors of vLLM's log, beside its usual output. Not where the user configures vLLM's log."""

    def __init__(self, log_config: Mapping[str, Any]) -> None:
        """`log_config` is vLLM's own, in the form of `logging.config.dictConfig`."""
        self._folder = Path(tempfile.mkdtemp(prefix="assay-engine-"))
        self._errors = self._folder / "errors.log"
        self._config = self._folder / "log.json"
        config = json.loads(json.dumps(log_config))
        config["handlers"]["last_words"] = {
            "class": "logging.FileHandler",
            "filename": str(self._errors),
            "level": "ERROR",
            "delay": True,
        }
        config["loggers"]["vllm"]["handlers"].append("last_words")
        self._config.write_text(json.dumps(config))

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Processes started in this block write their errors to the file."""
        if _CONFIG_VARIABLE in os.environ or os.environ.get("VLLM_CONFIGURE_LOGGING") == "0":
            yield
            return
        os.environ[_CONFIG_VARIABLE] = str(self._config)
        try:
            yield
        finally:
            del os.environ[_CONFIG_VARIABLE]

    def read(self) -> str | None:
        """The first exception in the file, as its last line says it: later ones are its consequences in other processes."""
        if not self._errors.exists():
            return None
        lines = iter(self._errors.read_text(errors="replace").splitlines())
        for line in lines:
            if line.startswith("Traceback "):
                break
        # The frames of a traceback are indented, its exception is not.
        return next((line[:_LONGEST] for line in lines if line and not line.startswith(" ")), None)

    def forget(self) -> None:
        """Remove the file."""
        shutil.rmtree(self._folder, ignore_errors=True)
