"""Every setting decides numbers, and is in a run's identity, or doesn't, and the reason why is here."""

import json
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from actors.engine.engine_arguments import OURS, SAME_NUMBERS
from actors.errors import SettingsError
from actors.reward_model import resolve_model
from actors.settings.base import Settings
from actors.settings.replica import EngineSettings, ModelSettings
from pipelines.data.formats import PROMPT_READER, ROW_READER
from pipelines.run.prepare import resolve_run
from pipelines.run.prepare.identity import manifest_of, scoring_identity
from pipelines.run.sampling import policies, refine_prompts, sample_prompts
from pipelines.settings.options import build, leaves
from pipelines.settings.refine_settings import RefineSettings
from pipelines.settings.run_settings import SampleSettings, ScoreSettings
from tests.support.corpora import lines, write
from tests.support.engines import write_adapter
from tests.support.judges import judge_folder

SPEED, PLACE, AFTER = "how fast, and how much is lost by a crash", "where it is", "made of the numbers, and not them"
BESIDE = "stored beside the numbers; the parts of a folder agree in it"

NOT_RECORDED: dict[str, str] = {
    **dict.fromkeys(("inputs", "output", "overwrite", "append", "store"), PLACE),
    "accept_versions": "the versions themselves are recorded, in each part",
    **dict.fromkeys(("replicas", "max_replicas", "min_replicas", "max_engine_deaths", "part_rows", "unit_bytes"), SPEED),
    **dict.fromkeys(("max_failed_fraction", "tensor_parallel", "pipeline_parallel", "request_timeout_s"), SPEED),
    **dict.fromkeys(("max_in_flight", "autoscaled", "placement_timeout_s", "in_turns"), SPEED),
    **dict.fromkeys(("policy_replicas", "policy_tensor_parallel", "policy_pipeline_parallel"), SPEED),
    **dict.fromkeys(("policy_max_in_flight", "endpoint_patience_s", "storage_patience_s"), SPEED),
    **dict.fromkeys(("requests_per_minute", "tokens_per_minute", "patience_s", "batch", "batch_poll_s"), SPEED),
    **dict.fromkeys(("max_cost", "input_price", "output_price"), "what the numbers may cost"),
    "endpoint": "its address is in the identity, as `served_at`; it takes an endpoint",
    "text": BESIDE,
    "log": "where the run is shown while it works",
    **dict.fromkeys(("revision", "policy_revision"), "the commit that it stands for is in the identity; it takes a hub"),
}

JUDGE = {"model": "tiny-genrm"}
EXACT = {"model": "exact-match", "reference_column": "s"}
STOPPING = {"votes": 8, "stop": True, "stop_at": 2.5}
SEVERAL = {"prompt_column": "q", "response_column": "rs"}
RUBRICS = ["Response 1: so\nResponse 2: so", "\n".join(f"{grade}: so" for grade in range(1, 6))]
"""Rubrics for the two kinds of rating."""
PRINCIPLED = {"model": "tiny-genrm-principle", "principles": {"a": "b"}}
RECORDED: dict[str, tuple[dict[str, Any], Any]] = {
    # Beside what, and to what it changes. The model's own are of the judge, unless it says otherwise.
    "model": ({}, "tiny-first-logit"),
    "family": ({"model": "judge", "family": "rm-r1", **SEVERAL}, "rm-r1-instruct"),
    "dtype": ({}, "float16"),
    "weights": ({"model": "tiny-attributes"}, {"helpfulness": 1.0}),
    "all_outputs": ({"model": "tiny-attributes"}, True),
    "steerlm_rounding": ({"model": "tiny-attributes"}, True),
    "principles": ({"model": "tiny-principle", "principles": {"c": "d"}}, {"a": "b"}),
    "principle_reward": (PRINCIPLED, "min"),
    "rating": ({"model": "tiny-r3", **SEVERAL, "field": {"principle": "rubric"}}, "pointwise"),
    "diverging_lambda": ({"model": "tiny-mean-variance"}, 2.0),
    "votes": (JUDGE, 4),
    "stop": ({**JUDGE, "votes": 8}, True),
    "stop_error": ({**JUDGE, "votes": 8, "stop": True}, 0.1),
    "stop_at": ({"model": "tiny-r3", "rating": "pointwise", "principles": {"a": RUBRICS[1]}, **STOPPING}, 3.5),
    "temperature": (JUDGE, 0.5),
    "top_p": (JUDGE, 0.5),
    "max_tokens": (JUDGE, 77),
    "seed": (JUDGE, 7),
    "pairs": (JUDGE, "all"),
    "aggregate": ({**JUDGE, **SEVERAL}, "win-rate"),
    "reask": (JUDGE, 1),
    "trace": (JUDGE, True),
    "too_long": ({}, "trim-turns"),
    "reasoning": ({}, "strip"),
    "max_model_len": ({}, 99),
    "second_bos": ({}, True),
    "system": ({}, "Be kind."),
    "engine": ({}, "fake"),
    "deterministic": ({}, True),
    "engine_args": ({}, {"quantization": "fp8"}),
    "unparsed": (EXACT, 0.0),
    "answer_pattern": (EXACT, "(b)"),
    "reference_pattern": (EXACT, "(c)"),
    "any_of": (EXACT, True),
    "choices": ({**EXACT, "model": "multiple-choice"}, "AB"),
    "answer_regex": ({"model": "regex", "answer_regex": "a"}, "b"),
    "prefix": ({}, "j_"),
    "format": ({}, "mixed"),
    "prompt_column": ({"response_column": "r"}, "q"),
    "response_column": ({"prompt_column": "q"}, "r"),
    "conversation_column": ({}, "messages"),
    "system_column": ({"prompt_column": "q", "response_column": "r"}, "s"),
    "field": ({"model": "tiny-principle", "field": {"principle": "q"}}, {"principle": "s"}),
    "turns": ({}, "all"),
    "limit": ({}, 1),
    "max_record_bytes": ({}, 1000),
    "policy": ({}, "tiny-rm-r1"),
    "policy_dtype": ({}, "float16"),
    "policy_system": ({}, "Be kind."),
    "policy_temperature": ({}, 0.5),
    "policy_top_p": ({}, 0.5),
    "policy_max_tokens": ({}, 77),
    "policy_stop": ({}, ("x",)),
    "policy_seed": ({}, 7),
    "policy_engine_args": ({}, {"quantization": "fp8"}),
    "n": ({}, 3),
    "enough": ({}, 1.0),
    "min_gain": ({}, 0.5),
    "feedback": ({}, "tiny-rm-r1"),
    "edit": ({}, "tiny-rm-r1"),
    "drafts": ({}, 7),
    "feedbacks": ({}, 7),
}
BY_FILES = {
    "adapter",
    "policy_adapter",
    "rubric",
    "reference_column",
    "criteria_column",
    "criteria_calls",
    "feedback_prompt",
    "edit_prompt",
    "policy_name",
    "answer_schema",
    "grader",
    "chat_template",
    "policy_chat_template",
}
"""What has a test of its own, since it takes files to change it, or an endpoint."""

CLASSES = (ScoreSettings, SampleSettings, RefineSettings)


def test_every_setting_is_in_the_identity_or_has_a_reason() -> None:
    names = {leaf.name for settings in CLASSES for leaf in leaves(settings)}
    assert names - RECORDED.keys() - NOT_RECORDED.keys() - BY_FILES == set()
    assert sorted(names) == sorted([*RECORDED, *NOT_RECORDED, *BY_FILES])


def identity(kind: type[Settings], flat: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """What the manifest of a run would hold."""
    row = {"messages": [{"role": "user", "content": "a"}], "q": "a", "r": "b", "rs": ["b", "c"], "s": "c"}
    answered = {**row, "messages": [*row["messages"], {"role": "assistant", "content": "b"}]}
    if not (corpus := folder / f"{kind.__name__}.jsonl").exists():
        write(corpus, lines([{**(answered if kind is ScoreSettings else row), "rubric": rubric} for rubric in RUBRICS]))
    settings: Any = build(kind, {"inputs": (str(corpus),), "output": "out", **flat})
    more: dict[str, Any] = {}
    if isinstance(settings, SampleSettings):
        more = sample_prompts.sampling_identity(settings, policies.policy_of(settings.policy))
    if isinstance(settings, RefineSettings):
        work = refine_prompts._Refining(settings, *refine_prompts._prompts(settings), refine_prompts._writers(settings))
        more = work.recorded()
    plan = resolve_run.resolve(settings, unanswered=kind is not ScoreSettings)
    document: dict[str, Any] = json.loads(json.dumps(manifest_of(plan, settings, more).identity))
    return document


def test_how_rows_are_read_is_in_the_identity_and_how_prompts_are_of_what_a_policy_writes(tmp_path: Path) -> None:
    result = [identity(kind, base_of(kind), tmp_path) for kind in CLASSES]
    assert [run.get("row_reader") for run in result] == [ROW_READER, None, None]
    assert [run.get("prompt_reader") for run in result] == [None, PROMPT_READER, PROMPT_READER]


def kind_of(name: str) -> type[Settings]:
    """The first command that has the setting."""
    return next(kind for kind in CLASSES if name in {leaf.name for leaf in leaves(kind)})


def base_of(kind: type[Settings]) -> dict[str, Any]:
    policy = {} if kind is ScoreSettings else {"policy": "tiny-policy", "policy_max_tokens": 64}
    return {"model": "tiny-scalar", **policy}


def test_a_setting_that_decides_numbers_is_in_the_identity(tmp_path: Path) -> None:
    for name, (beside, value) in RECORDED.items():
        folder = Path(tempfile.mkdtemp(dir=tmp_path))
        kind = kind_of(name)
        if beside.get("model") == "judge":
            beside = {**beside, "model": str(judge_folder(folder / "judge"))}
        flat = {**base_of(kind), **beside}
        before = {key: item for key, item in flat.items() if not _needs(key, name)}
        assert identity(kind, before, folder) != identity(kind, {**flat, name: value}, folder)


OF_SCORES = sorted(
    {leaf.name for kind in (ModelSettings, EngineSettings) for leaf in leaves(kind)} & RECORDED.keys() - {"trace"}
    | {"max_model_len"}
)
"""What decides the scores of a request that is rendered already; the other settings decide how it is rendered."""


def test_a_setting_of_the_model_or_its_engine_is_in_the_identity_of_stored_scores(tmp_path: Path) -> None:
    for name in OF_SCORES:
        folder = Path(tempfile.mkdtemp(dir=tmp_path))
        beside, value = RECORDED[name]
        if beside.get("model") == "judge":
            beside = {**beside, "model": str(judge_folder(folder / "judge"))}
        flat = {**base_of(ScoreSettings), **beside}
        assert stored_identity(flat) != stored_identity({**flat, name: value})


def test_a_judges_texts_are_stored_for_whoever_asks_for_them(tmp_path: Path) -> None:
    model = {"model": "tiny-genrm-json"}
    assert stored_identity(model) == stored_identity({**model, "trace": True})


def stored_identity(flat: Mapping[str, Any]) -> dict[str, Any]:
    settings = build(ScoreSettings, {"inputs": ("in",), "output": "out", **flat})
    return scoring_identity(resolve_model(settings.model, settings.render), settings.engine)


def test_a_model_has_the_same_stored_scores_wherever_it_lies(tmp_path: Path) -> None:
    for name in ("a", "b"):
        judge_folder(tmp_path / name)
    first, other = (stored_identity({"model": str(tmp_path / name), "family": "genrm-json"}) for name in ("a", "b"))
    assert first == other
    template = tmp_path / "b" / "chat_template.jinja"
    template.write_text(template.read_text() + "{# another #}")
    assert stored_identity({"model": str(tmp_path / "b"), "family": "genrm-json"}) != first


def test_a_new_version_takes_nothing_from_the_store_of_an_old_one(monkeypatch: pytest.MonkeyPatch) -> None:
    before = stored_identity({"model": "tiny-scalar"})
    monkeypatch.setattr("pipelines.folders.run_folder.manifest.installed", lambda package: f"new {package}")
    assert stored_identity({"model": "tiny-scalar"}) != before


def _needs(key: str, name: str) -> bool:
    """Whether a column goes with another one alone."""
    return name in ("prompt_column", "response_column") and key.endswith("_column")


def test_the_files_of_an_adapter_are_in_the_identity(tmp_path: Path) -> None:
    write_adapter(tmp_path / "adapter")
    judge = {"model": "tiny-genrm", "family": "genrm-boxed"}
    flat = {**judge, "adapter": str(tmp_path / "adapter")}
    sampled = {**base_of(SampleSettings), "policy_adapter": str(tmp_path / "adapter")}
    before = [identity(ScoreSettings, flat, tmp_path), identity(SampleSettings, sampled, tmp_path)]
    assert identity(ScoreSettings, judge, tmp_path) != before[0]
    assert identity(SampleSettings, base_of(SampleSettings), tmp_path) != before[1]
    config = tmp_path / "adapter" / "adapter_config.json"
    config.write_text(json.dumps({**json.loads(config.read_text()), "lora_alpha": 1}))
    after = [identity(ScoreSettings, flat, tmp_path), identity(SampleSettings, sampled, tmp_path)]
    assert [item != other for item, other in zip(before, after, strict=True)] == [True, True]


@pytest.mark.parametrize("name", ["feedback_prompt", "edit_prompt", "rubric"])
def test_what_a_file_says_is_in_the_identity(name: str, tmp_path: Path) -> None:
    kind, flat, result = kind_of(name), dict[str, Any](), []
    for text in ("one", "two"):
        prompt = f"{text} {{{{ conversation }}}} {{{{ response }}}} {{{{ feedback }}}}"
        if name == "rubric":
            flat = {"rubric": {"prompt": f"{text} {{{{ response }}}}", "pattern": "(\\d)", "low": 1, "high": 5}}
        else:
            write(tmp_path / "prompt", (prompt if name == "edit_prompt" else prompt.replace("{{ feedback }}", "")).encode())
            flat = {name: str(tmp_path / "prompt")}
        model = {"model": str(tmp_path / "judge")} if name == "rubric" else {}
        if model and not (tmp_path / "judge").exists():
            judge_folder(tmp_path / "judge")
        result.append(identity(kind, {**base_of(kind), **model, **flat}, tmp_path))
    assert result[0] != result[1]


def test_an_argument_of_the_engine_is_ours_or_in_the_identity_or_is_known_to_change_nothing() -> None:
    assert not SAME_NUMBERS & OURS.keys()


SERVED = {
    "id": "served", "root": "served", "kind": "head", "outputs": ["score"], "weights": {"score": 1.0},
    "takes_principles": False, "needs_principles": False, "system_fingerprint": "0123abcd",
    "identity": {"reasoning": "reject", "render": {}, "steps": False, "within_row": False},
}  # fmt: skip
"""What `assay serve` lists of a model."""


def test_how_a_run_asks_a_served_model_to_handle_reasoning_is_in_the_identity(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("actors.endpoint.remote_model.listed_models", lambda url, route: [SERVED])
    served = {"model": "served", "endpoint": "http://127.0.0.1:9/v1"}
    ways = (None, "reject", "strip", "keep")
    handled = [identity(ScoreSettings, {**served, "reasoning": way}, tmp_path)["reasoning"] for way in ways]
    assert handled == ["reject", "reject", "strip", "keep"]
    with pytest.raises(SettingsError, match="system: "):  # it would make its prompts without it
        identity(ScoreSettings, {**served, "system": "Be kind."}, tmp_path)
