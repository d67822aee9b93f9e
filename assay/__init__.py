"""Trustworthy rewards for massive corpora: `assay.score("corpus.jsonl", "scored/", model="tiny-attributes")`.

The functions are the commands by their names. With paths, each writes a folder and returns a summary; with a
`ray.data.Dataset` first and no output, it returns a Dataset. `assay.plugins` has what a plug-in is written with.
"""

from typing import TYPE_CHECKING

from assay._lazy import lazy_names

if TYPE_CHECKING:  # for type checkers and editors; below the same names, imported when they are first asked for
    from actors.errors import AssayError as AssayError
    from actors.errors import NothingScored as NothingScored
    from actors.errors import UserError as UserError
    from assay._version import __version__ as __version__
    from assay.functions import cascade as cascade
    from assay.functions import choose as choose
    from assay.functions import diff as diff
    from assay.functions import ensemble as ensemble
    from assay.functions import evaluate as evaluate
    from assay.functions import export as export
    from assay.functions import filter as filter
    from assay.functions import pairs as pairs
    from assay.functions import read_scored as read_scored
    from assay.functions import refine as refine
    from assay.functions import retry as retry
    from assay.functions import sample as sample
    from assay.functions import score as score
    from assay.functions import upload as upload
    from assay.functions import verify as verify
    from pipelines.folders.scored_corpus.summary import Summary as Summary
    from pipelines.results.comparison.results import Differences as Differences
    from pipelines.results.evaluation.results import Results as Results
    from pipelines.results.exports.export_counts import ExportSummary as ExportSummary
    from pipelines.results.filtering.filter_corpus import FilterSummary as FilterSummary
    from pipelines.results.hub.upload import Upload as Upload
    from pipelines.run.sampling.refine_prompts import RefineSummary as RefineSummary
    from pipelines.run.sampling.sample_prompts import SampleSummary as SampleSummary
    from pipelines.workflows.cascades.score_cascade import CascadeSummary as CascadeSummary
    from pipelines.workflows.ensembles.score_ensemble import EnsembleSummary as EnsembleSummary
    from pipelines.workflows.rescoring.retry_rows import RetrySummary as RetrySummary
    from pipelines.workflows.rescoring.verify_folder import VerifySummary as VerifySummary
else:
    __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "actors.errors": ("AssayError", "NothingScored", "UserError"),
            "assay._version": ("__version__",),
            "assay.functions": (
                *(
                    "cascade",
                    "choose",
                    "diff",
                    "ensemble",
                    "evaluate",
                    "export",
                    "filter",
                    "pairs",
                    "read_scored",
                    "refine",
                    "retry",
                ),
                *("sample", "score", "upload", "verify"),
            ),
            "pipelines.folders.scored_corpus.summary": ("Summary",),
            "pipelines.results.comparison.results": ("Differences",),
            "pipelines.results.evaluation.results": ("Results",),
            "pipelines.results.exports.export_counts": ("ExportSummary",),
            "pipelines.results.filtering.filter_corpus": ("FilterSummary",),
            "pipelines.results.hub.upload": ("Upload",),
            "pipelines.run.sampling.refine_prompts": ("RefineSummary",),
            "pipelines.run.sampling.sample_prompts": ("SampleSummary",),
            "pipelines.workflows.cascades.score_cascade": ("CascadeSummary",),
            "pipelines.workflows.ensembles.score_ensemble": ("EnsembleSummary",),
            "pipelines.workflows.rescoring.retry_rows": ("RetrySummary",),
            "pipelines.workflows.rescoring.verify_folder": ("VerifySummary",),
        },
    )
