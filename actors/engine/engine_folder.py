"""The folder of an engine's processes: their sockets, and the errors that they log.

The errors tell the cause of a death, which vLLM doesn't report to the parent process.
"""

import json
import os
import shutil
import tempfile
from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from actors.engine.vllm_environment import variables

_CONFIG_VARIABLE = "VLLM_LOGGING_CONFIG_PATH"
_SOCKETS_VARIABLE = "VLLM_RPC_BASE_PATH"
_LONGEST = 500  # characters of a message that are kept
# Bytes of the path of a folder for sockets: with a slash and vLLM's 36 characters, of 107 that a socket's may have.
_LONGEST_PATH = 70


class EngineFolder:
    """A temporary folder, deleted with the engine.

    The file of errors is written beside vLLM's usual output, and not where the user configures vLLM's log.
    """

    def __init__(self, log_config: Mapping[str, Any]) -> None:
        """`log_config` is vLLM's own, in the form of `logging.config.dictConfig`."""
        self._path = Path(tempfile.mkdtemp(prefix="assay-engine-"))
        self._errors = self._path / "errors.log"
        self._config = self._path / "log.json"
        config = json.loads(json.dumps(log_config))
        config["handlers"]["last_words"] = {
            "class": "logging.FileHandler",
            "filename": str(self._errors),
            "level": "ERROR",
            "delay": True,
        }
        config["loggers"]["vllm"]["handlers"].append("last_words")
        self._config.write_text(json.dumps(config))

    def in_use(self, *, sockets: bool) -> AbstractContextManager[None]:
        """Let processes that are started in this block use the folder.

        `sockets`: for their sockets, too, of which each engine would leave three in the temporary folder. Not for processes
        on other nodes, to which vLLM sends the variable and where the folder isn't.
        """
        values = {}
        if os.environ.get("VLLM_CONFIGURE_LOGGING") != "0":
            values[_CONFIG_VARIABLE] = str(self._config)
        if sockets and len(os.fsencode(self._path)) <= _LONGEST_PATH:
            values[_SOCKETS_VARIABLE] = str(self._path)
        return variables(values)

    def read_error(self) -> str | None:
        """The first exception in the file, as its last line says it: later ones are its consequences in other processes."""
        if not self._errors.exists():
            return None
        lines = iter(self._errors.read_text(errors="replace").splitlines())
        for line in lines:
            if line.startswith("Traceback "):
                break
        # The frames of a traceback are indented, its exception is not.
        return next((line[:_LONGEST] for line in lines if line and not line.startswith(" ")), None)

    def delete(self) -> None:
        shutil.rmtree(self._path, ignore_errors=True)
