"""What happens to a dataset: `from pipelines import score, keep, sample, pairs` and so on (`pipelines.api`).

They are loaded when they are first asked for: they bring Ray with them, and `assay --help` does without it.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pipelines.api import (
        choose,
        diff,
        ensemble,
        evaluate,
        export,
        keep,
        pairs,
        read_scored,
        refine,
        retry,
        sample,
        score,
        top_fraction,
        top_k,
        upload,
        verify,
    )

__all__ = [
    "choose",
    "diff",
    "ensemble",
    "evaluate",
    "export",
    "keep",
    "pairs",
    "read_scored",
    "refine",
    "retry",
    "sample",
    "score",
    "top_fraction",
    "top_k",
    "upload",
    "verify",
]


def __getattr__(name: str) -> Any:
    if name in __all__:
        from pipelines import api

        return getattr(api, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
