"""Kills the clearing of an output folder after some deletions."""

from collections.abc import Callable
from typing import Any

import pytest

from pipelines.data.storage.local_files import LocalFolder
from pipelines.folders.run_folder import output_folder


def die_in_start(patch: pytest.MonkeyPatch, deletions: int) -> None:
    """Make `output_folder.start` raise KeyboardInterrupt, as if killed, at its deletion number `deletions` + 1."""
    remaining, start = iter(range(deletions)), output_folder.start

    def dying(delete: Callable[..., None]) -> Callable[..., None]:
        def delete_or_die(*arguments: Any) -> None:
            if next(remaining, None) is None:
                raise KeyboardInterrupt
            delete(*arguments)

        return delete_or_die

    def start_or_die(*arguments: Any) -> Any:
        with pytest.MonkeyPatch.context() as local_disk:
            for name in ("delete", "delete_all"):
                local_disk.setattr(LocalFolder, name, dying(getattr(LocalFolder, name)))
            return start(*arguments)

    patch.setattr(output_folder, "start", start_or_die)
