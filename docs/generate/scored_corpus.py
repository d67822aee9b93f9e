"""The page of a scored corpus: the columns of its parts, and the manifest of a run that is settled and never started."""

import json
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import fields
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa

from docs.generate.markdown import Page, code, document, heading, table, text
from pipelines.folders.run_folder.columns import CRITERIA_SCORES, FROM_STORE, KEPT, REASONED, STAGE, SUSPECT, Columns
from pipelines.folders.run_folder.manifest import NAME
from pipelines.folders.scored_corpus.summary import Summary
from pipelines.run.prepare.identity import manifest_of
from pipelines.run.prepare.resolve_run import resolve
from pipelines.settings.options import build
from pipelines.settings.run_settings import ScoreSettings

ALWAYS = Columns(pa.schema([]), ("NAME",), "")
EVERYTHING = Columns(
    pa.schema([]),
    ("NAME",),
    "",
    steps=True,
    row_outputs=True,
    votes=True,
    trace=True,
    text=True,
    drawn=True,
    refined=True,
    mixed=True,
    flags=(REASONED, FROM_STORE, SUSPECT),
)

COLUMNS: Mapping[str, str] = {
    "shape": "of a mixed corpus: the shape of the input row; null where it has none, or two",
    "row": "the input row: its file, and its byte offset or its number there; of a dataset the MD5 of its content",
    "response_name": "which of the row's responses: `final`, `chosen`, `turn[3]` ...",
    "prompt_hash": "32 hexadecimal digits, equal for responses to the same prompt; null where no prompt could be read",
    "response_text": "the response as it was judged: without stripped reasoning; null where it or its prompt couldn't be "
    "read. Not with `text: false`",
    "candidate": "of `sample` and `refine`: the text that a policy wrote",
    "finish_reason": "of `sample` and `refine`: `stop` if the candidate ended by itself",
    "candidate_tokens": "of `sample` and `refine`: how many tokens were written",
    "parent": "of `refine`: the name of the draft that an edit was made of",
    "feedback": "of `refine`: the feedback that an edit was made by",
    "reward": "the reward; null unless `status` is `scored`",
    "scores": "the model's named outputs, one field each; null unless `status` is `scored`",
    "steps": "of a model that judges steps: the reward of each",
    CRITERIA_SCORES: "of a judge by criteria of the row: the value of each, by its name",
    "status": "`scored`, `rejected` or `failed`",
    "reason": "why there is no reward; null if there is one",
    "prompt_tokens": "tokens of all prompts about the response; responses that are shown together share them",
    "truncated": "whether old turns were dropped to fit (`too_long: trim-turns`), or tokens cut off (`cut-left`)",
    "votes": "of a judge that writes: what each judgement came to",
    "completion_tokens": "of a judge that writes: what it wrote about the response, in tokens",
    "trace": "with `trace`: what it wrote, about which responses as shown, and what was read in it or why nothing",
    REASONED: "where reasoning is stripped or kept: whether there was some, in the response or in turns before it",
    FROM_STORE: "with `--store`: whether the score was taken from the store, or is that of an equal request of this run",
    KEPT: "of `cascade`: whether the response is kept",
    STAGE: "of `cascade`: the model that decided so, whose reward this is",
    SUSPECT: "of `ensemble`: high reward and high disagreement; null where there are no z-scores",
}

MANIFEST: Mapping[str, str] = {
    "assay": "the version of the manifest's own form",
    "identity": "what decides the numbers (below): a run with another one is refused in this folder",
    "files": "the input files, by whose numbers parts know them (below)",
    "carried_columns": "the Arrow schema of what is carried over from the input, in base64",
    "columns": "all columns of a part with their types, for people",
    "outputs": "the names in `scores`",
    "steps": "whether there is a column `steps`",
    "row_outputs": "whether there is a column `criteria_scores`",
    "votes": "whether there are `votes` and `completion_tokens`",
    "trace": "whether there is a column `trace`",
    "drawn": "whether a policy wrote the responses",
    "refined": "whether some of them were made of others",
    "text": "whether there is a column `response_text`",
    "mixed": "whether each input row has a shape of its own",
    "within_row": "whether rewards of different rows can't be compared",
    "staged": "whether there is a column `stage`",
    "flags": "columns of ours that only some corpora have: true, false or null",
    "reserved": "names that are kept free for a corpus that is going to be made of this one",
    "made_with": "what may change between runs into one folder; also in the metadata of every part (below)",
    "run": "the name of the run, with which the names of its parts end",
    "retries": "after `assay retry`: of each retry when it began, its reasons and versions, and the counts before and after",
    "summary_of": "a hash of the names, sizes and times of the parts that the summary is of; there once it is complete",
    "summary": "what came of it (below); null until the run is complete",
}

IDENTITY: Mapping[str, str] = {
    "model": "as it was given",
    "revision": "the commit on the hub; null for a folder or a built-in model",
    "adapter": "the LoRA adapter as it was given, or null",
    "weights": "a hash of all bytes of the checkpoint's weights, or the hub's commit; and hashes of an adapter's files",
    "family": "how it is asked and read",
    "family_plugin": "the distribution and version of the plug-in that has this family; null for one of ours",
    "template": "a hash of the chat template",
    "tokenizer": "a hash of the tokenizer",
    "config": "a hash of `config.json` and of every other file of the checkpoint that counts",
    "dtype": "precision",
    "max_model_len": "longest prompt in tokens",
    "reward_weights": "weights of the named outputs in the reward",
    "read": "how a head's outputs are read, where that isn't as published",
    "judge": "how a judge that writes is asked and read; only of these",
    "engine": "`vllm` or `fake`",
    "engine_args": "what was passed on to vLLM and may change numbers",
    "shape": "shape of the rows",
    "shape_plugin": "the distribution and version of the plug-in that has this shape; null for one of ours",
    "own_columns": "the fields with prompt and response, where they were named",
    "fields": "the columns with principles, references and other fields that the model read, by the field's name",
    "row_reader": "the version of how rows are read",
    "written_out": "whether prompts that are conversations written out as one text are taken apart",
    "turns": "which assistant turns are judged",
    "render": "how a conversation becomes a prompt",
    "reasoning": "what becomes of reasoning in what is judged",
    "limit": "only so many input rows",
    "max_record_bytes": "longer records are rejected unread",
    "prefix": "put before the names of our columns",
}

FILES: Mapping[str, str] = {
    "index": "the number that names of parts begin with",
    "name": "its name in `row`",
    "path": "where it was found",
    "kind": "how it is read",
    "size": "in bytes",
    "fingerprint": "the object store's tag, or a hash of the content; of a file above 64 MiB a hash of samples and the time",
    "extent": "where it ends: a number of bytes or rows; null where only reading it to its end tells",
    "modified": "when it was last written, in nanoseconds since 1970; no part of what the file is",
}

MADE_WITH: Mapping[str, str] = {
    "assay": "version of Assay",
    "vllm": "version of vLLM; a run that another one of these three began goes on only with `accept_versions`",
    "torch": "version of PyTorch",
    "transformers": "version of transformers",
    "ray": "version of Ray",
    "tensor_parallel": "GPUs that share a layer",
    "pipeline_parallel": "groups of GPUs that share the layers out",
    "engine_args": "what was passed on to vLLM",
    "model_runner": "which of vLLM's model runners was asked for",
}

SUMMARY: Mapping[str, str] = {
    "rows": "input rows",
    "responses": "scored, rejected and failed together",
    "scored": "with a reward",
    "rejected": "couldn't be judged as they are",
    "failed": "the model was asked, and gave no usable answer",
    "truncated": "old turns were dropped to fit",
    "prompt_tokens": "what the model read",
    "reasons": "how many of each reason",
    "quantiles": "of the reward and each named output: minimum, 5 %, 25 %, median, 75 %, 95 %, maximum",
    "flags": "how often each flag is true",
    "completion_tokens": "what a judge wrote",
    "orders": "of a judge that saw pairs in both orders: pairs, those that the order decided, and for the first shown",
    "shapes": "of a mixed corpus: how many input rows of each shape",
    "labels": "how rewards go with the labels `chosen` and `rejected`",
    "repeats": "responses with the text of an earlier response to an equal prompt; null where they weren't counted",
    "examples": "of each reason three responses that have it, with what was wrong, or the ends of what a judge wrote; under "
    "`scored` what a judge wrote of some that have a reward",
    "work": "how long it took, on how many engines, and of the prompt tokens `computed_tokens` and `cached_tokens`",
    "endpoint": "of a model behind an address: requests, tokens, cost by the prices, `system_fingerprint`s seen",
    "left_out": "files in the input's folders that weren't read",
    "sampling": "of `sample`: prompts, candidates drawn and possible, their tokens, mean rewards of all and of each "
    "prompt's best, tokens read by policy and judge, and what an endpoint refused",
    "refining": "of `refine`: the same of drafts and edits",
    "cascade": "of `cascade`: the bounds; of each model how many rows it scored, and its band, by which slice; errors in "
    "a slice that wasn't calibrated by, with their intervals",
    "agreement": "of `ensemble`: how many prompts have z-scores, and of each two models how often they have the same best "
    "response, and how their z-scores correlate",
}


@cache
def manifest() -> Mapping[str, Any]:
    """The manifest of a run by a built-in judge, as it is written: settled, never started, with the keys of later states."""
    with tempfile.TemporaryDirectory() as folder:
        corpus = Path(folder, "corpus.jsonl")
        corpus.write_text('{"prompt": "What is 3 + 4?", "response": "7"}\n')
        flat = {"inputs": [str(corpus)], "output": folder, "model": "tiny-genrm", "trace": True, "reasoning": "strip"}
        settings = build(ScoreSettings, flat)
        manifest_of(resolve(settings), settings).write(folder)
        written: Mapping[str, Any] = json.loads(Path(folder, NAME).read_text())
        return written


def pages() -> Iterator[Page]:
    """The page. Raises `KeyError` for a column or a key that nothing is said of here."""
    written = manifest()
    summary = (*(field.name for field in fields(Summary)), "sampling", "refining", "cascade", "agreement")
    yield Page(
        "scored-corpus.md",
        document(
            "# Scored corpus",
            "A scored corpus is a folder with `parts/*.parquet`, one row for each response judged, and `manifest.json`. "
            "`pipelines.read_scored` reads it, and so does anything that reads Parquet: the parts whose names end with the "
            "manifest's `run`.",
            heading(2, "Columns of a part", "columns"),
            "First come the input's: of JSON rows `record`, the row's own bytes, and its flat fields; of Parquet its "
            "columns. Then come ours, under `prefix`:",
            table(("column", "type", "always", "what it is"), map(_column, EVERYTHING.ours)),
            heading(2, "Manifest", "manifest"),
            _keys(written, MANIFEST),
            heading(3, "Identity", "identity"),
            _keys(written["identity"], IDENTITY),
            "Runs of `sample`, `refine` and `ensemble` have their own settings beside these, and a run of a mixed corpus "
            "has `shapes`, all that a row of it could be read in, each with its plug-in.",
            heading(3, "Files", "files"),
            _keys(written["files"][0], FILES),
            heading(3, "Made with", "made-with"),
            _keys(written["made_with"], MADE_WITH),
            heading(3, "Summary", "summary"),
            _keys(dict.fromkeys(summary), SUMMARY),
        ),
    )


def _column(field: pa.Field) -> tuple[str, str, str, str]:
    always = "yes" if field.name in ALWAYS.ours.names else ""
    return code(field.name), code(field.type), always, text(COLUMNS[field.name])


def _keys(written: Mapping[str, Any], meanings: Mapping[str, str]) -> str:
    return table(("key", "what it is"), ((code(name), text(meanings[name])) for name in written))
