"""What a plug-in is written with: the types that it defines, and what they are made of (`docs/contributing/plug-ins.md`).

A plug-in is a distribution with entry points in `assay.families`, `assay.shapes`, `assay.trainers` or `assay.loggers`. Each
names a module that defines a constant:

| group | constants |
|---|---|
| `assay.families` | `FAMILY`, a `Family`: a kind of reward model, how it is asked and read; or a `Verifier` |
| `assay.shapes` | `SHAPES`, `PROMPT_SHAPES` or both, tuples of `Shape`: how rows hold prompts and responses |
| `assay.trainers` | `FORMATS`, a tuple of `PairFormat` and `ResponseFormat`: rows for a trainer |
| `assay.loggers` | `LOGGER`, a `LoggerKind`: where the progress of a run is shown |
"""

from typing import TYPE_CHECKING

from assay._lazy import lazy_names

if TYPE_CHECKING:  # for type checkers and editors; below the same names, imported when they are first asked for
    from actors.checkpoint.checkpoint_files import Checkpoint as Checkpoint
    from actors.contracts.by_principle import ByPrinciple as ByPrinciple
    from actors.contracts.distribution import Distribution as Distribution
    from actors.contracts.family import ChatTemplate as ChatTemplate
    from actors.contracts.family import Family as Family
    from actors.contracts.family import OneLogit as OneLogit
    from actors.contracts.family import Question as Question
    from actors.contracts.judge import Judge as Judge
    from actors.contracts.judge import Verdict as Verdict
    from actors.contracts.known_model import Golden as Golden
    from actors.contracts.known_model import KnownModel as KnownModel
    from actors.contracts.logit_head import LogitHead as LogitHead
    from actors.contracts.showings import Shows as Shows
    from actors.contracts.verifier import Verifier as Verifier
    from actors.contracts.verifier import without_weights as without_weights
    from actors.engine.protocol import Generation as Generation
    from actors.engine.protocol import Sampling as Sampling
    from actors.engine.protocol import Task as Task
    from actors.errors import ModelError as ModelError
    from actors.errors import Rejected as Rejected
    from actors.errors import Unreadable as Unreadable
    from actors.records import Message as Message
    from actors.records import Reading as Reading
    from actors.records import Reason as Reason
    from actors.records import Reasoning as Reasoning
    from actors.records import Response as Response
    from actors.records import Role as Role
    from actors.records import ScoreRequest as ScoreRequest
    from pipelines.data.formats.content import answer as answer
    from pipelines.data.formats.content import conversation as conversation
    from pipelines.data.formats.content import field as field
    from pipelines.data.formats.content import text as text
    from pipelines.data.formats.rows import ONLY_RESPONSE as ONLY_RESPONSE
    from pipelines.data.formats.rows import Exchange as Exchange
    from pipelines.data.formats.rows import Row as Row
    from pipelines.data.formats.rows import RowRequests as RowRequests
    from pipelines.data.formats.rows import Shape as Shape
    from pipelines.data.formats.rows import gather as gather
    from pipelines.data.formats.rows import prompt_request as prompt_request
    from pipelines.folders.scored_corpus.candidates import Candidate as Candidate
    from pipelines.folders.scored_corpus.candidates import PreferencePair as PreferencePair
    from pipelines.results.exports.trainer_format import Labels as Labels
    from pipelines.results.exports.trainer_format import PairFormat as PairFormat
    from pipelines.results.exports.trainer_format import ResponseFormat as ResponseFormat
    from pipelines.results.exports.trainer_messages import Refusal as Refusal
    from pipelines.results.exports.trainer_messages import messages as messages
    from pipelines.results.exports.trainer_messages import whole_conversation as whole_conversation
    from pipelines.workflows.run_logging.run_logger import LoggerKind as LoggerKind
    from pipelines.workflows.run_logging.run_logger import RunLogger as RunLogger
    from pipelines.workflows.run_logging.run_logger import RunToLog as RunToLog
else:
    __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "actors.checkpoint.checkpoint_files": ("Checkpoint",),
            "actors.contracts.by_principle": ("ByPrinciple",),
            "actors.contracts.distribution": ("Distribution",),
            "actors.contracts.family": ("ChatTemplate", "Family", "OneLogit", "Question"),
            "actors.contracts.known_model": ("Golden", "KnownModel"),
            "actors.contracts.judge": ("Judge", "Verdict"),
            "actors.contracts.logit_head": ("LogitHead",),
            "actors.errors": ("ModelError", "Rejected", "Unreadable"),
            "actors.records": ("Message", "Reading", "Reason", "Reasoning", "Response", "Role", "ScoreRequest"),
            "pipelines.data.formats.content": ("answer", "conversation", "field", "text"),
            "pipelines.data.formats.rows": (
                *("Exchange", "ONLY_RESPONSE", "Row", "RowRequests", "Shape"),
                *("gather", "prompt_request"),
            ),
            "pipelines.folders.scored_corpus.candidates": ("Candidate", "PreferencePair"),
            "pipelines.results.exports.trainer_format": ("Labels", "PairFormat", "ResponseFormat"),
            "pipelines.results.exports.trainer_messages": ("Refusal", "messages", "whole_conversation"),
            "pipelines.workflows.run_logging.run_logger": ("LoggerKind", "RunLogger", "RunToLog"),
            "actors.contracts.showings": ("Shows",),
            "actors.contracts.verifier": ("Verifier", "without_weights"),
            "actors.engine.protocol": ("Generation", "Sampling", "Task"),
        },
    )
