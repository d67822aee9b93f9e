"""Output folders whose clearing is cut short."""

from collections.abc import Callable
from typing import Any

import pytest

from pipelines.scored_corpus import output_folder
from pipelines.storage import files


def die_in_start(patch: pytest.MonkeyPatch, deletions: int) -> None:
    """Let `output_folder.start` end, as if it was killed, where it would delete more often than that."""
    left, start = iter(range(deletions)), output_folder.start

    def dying(delete: Callable[..., None]) -> Callable[..., None]:
        def delete_or_die(*arguments: Any) -> None:
            if next(left, None) is None:
                raise KeyboardInterrupt
            delete(*arguments)

        return delete_or_die

    def start_or_die(*arguments: Any) -> Any:
        with pytest.MonkeyPatch.context() as local_disk:
            for name in ("delete", "delete_all"):
                local_disk.setattr(files._Local, name, dying(getattr(files._Local, name)))
            return start(*arguments)

    patch.setattr(output_folder, "start", start_or_die)
