"""Whatever is wrong with a setting is said in a person's words, once, in every way to give settings."""

import functools
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import assay
from actors.errors import SettingsError
from actors.settings.base import Settings
from deploy.command import _from_file
from deploy.settings import AddressSettings, EndpointSettings, SingleModelSettings
from pipelines.cli.app import cli
from pipelines.settings.diff_settings import DiffSettings
from pipelines.settings.estimate_settings import LayoutSettings, PlanSettings
from pipelines.settings.options import build, leaves, validate
from pipelines.settings.recipe import Recipe, read_recipe
from pipelines.settings.report_settings import ReportSettings
from pipelines.settings.rescore_settings import RetrySettings, VerifySettings
from pipelines.settings.run_settings import CheckSettings, DatasetSampleSettings, ScoreSettings
from tests.support.settings import steps

EVERY: list[type[Settings]] = [
    *steps().values(),
    *(CheckSettings, PlanSettings, LayoutSettings, DatasetSampleSettings),
    *(ReportSettings, DiffSettings, VerifySettings, RetrySettings),
    *(EndpointSettings, AddressSettings, SingleModelSettings),
]
WRONG: list[Any] = [
    *(None, True, -1, 0, 3, 0.5, 1e9, 10**400, float("nan"), float("inf"), "", " ", "a b", "1x", "x", "maybe", "\ud800"),
    *((), [], {}, [None], [1, "a"], [[]], ["a", "a"], ["a", "b", "c"], [{}]),
    *({"a": 1}, {"a b": " "}, {1: 2}, {"a": None}, object(), b"x"),
]
PROGRAMMERS = re.compile(
    r"Input should|Value error|valid (tuple|list|dict|string|integer|number)|instance of|PydanticUndefined|Errno|<class"
    r"|Settings\b|\(\)|\[\]|None|\bstr\b|\bint\b|\bTrue\b|\bFalse\b|\[type="
)


@functools.cache
def messages(settings: type[Settings]) -> list[tuple[str, str]]:
    """Each setting with each value that may be wrong for it: its name, and what is said, if anything."""
    refusals: list[tuple[str, str]] = []
    for leaf in leaves(settings):
        for value in WRONG:
            nested: dict[str, Any] = {leaf.name: value}
            for section in reversed(leaf.sections):
                nested = {section: nested}
            for read, given in ((validate, nested), (build, {leaf.name: value})):
                try:
                    read(settings, given)
                except SettingsError as error:
                    refusals.append((leaf.name, str(error)))
    return refusals


@pytest.mark.parametrize("settings", EVERY)
def test_messages_are_in_a_persons_words_and_say_nothing_twice(settings: type[Settings]) -> None:
    assert len({name for name, _ in messages(settings)}) == len(list(leaves(settings)))
    for _, message in messages(settings):
        assert not PROGRAMMERS.search(message)
        assert "must match" not in message, "a pattern has words of its own"
        parts = message.split("; ")
        assert len(parts) == len(set(parts)), message
        assert not [part for part in parts if re.search(r"= '([^']{2,})': .*\1", part)], message


# --- one mistake, in every way to give it ---------------------------------------------------------------------------

MISTAKES: Mapping[str, tuple[str, Any, str]] = {
    "a bound": ("tensor_parallel", 0, " = 0: must be at least 1"),
    "a word": ("dtype", "float8", " = 'float8': must be 'auto', 'float32', 'bfloat16' or 'float16'"),
    "a number": ("limit", "many", " = 'many': must be a whole number"),
    "a pattern": ("prefix", "1a", " = '1a': must be letters, digits and _, without a digit first, or empty"),
    "a switch": ("overwrite", "maybe", " = 'maybe': must be true or false"),
    "a number in a mapping": ("weights", {"a": "x"}, ".a = 'x': must be a number"),
    "a name in a mapping": ("principles", {"a b": "x"}, ": the name 'a b' must be letters, digits and _, without a digit"),
    "an empty list": ("inputs", [], " is empty: must have at least 1"),
    "a number in a list": ("inputs", [1], "[0] = 1: must be text"),
    "no text": ("output", None, " is empty: must be text"),
    "a file that isn't there": ("rubric", "no.yaml", ": the rubric no.yaml can't be read: No such file or directory"),
    "a field twice": ("response_column", ["a", "a"], ": a is given twice"),
}


def refusal(read: Callable[[], object]) -> str:
    with pytest.raises(SettingsError) as caught:
        read()
    return str(caught.value)


@pytest.mark.parametrize(("name", "value", "problem"), MISTAKES.values(), ids=MISTAKES)
def test_a_mistake_in_a_python_call_and_in_a_recipe(name: str, value: Any, problem: str, tmp_path: Path) -> None:
    step = {"inputs": "c.jsonl", "output": "o", "model": "tiny-scalar", name: value}
    options = dict(step)
    message = refusal(lambda: assay.score(options.pop("inputs"), options.pop("output"), **options))
    assert message.startswith(f"{name}{problem}")
    assert "; " not in message
    file = tmp_path / "r.yaml"
    file.write_text(f"score: {step}\n".replace("None", "null"))
    (place,) = (".".join(("score", *leaf.sections, name)) for leaf in leaves(ScoreSettings) if leaf.name == name)
    assert refusal(lambda: read_recipe(str(file))).startswith(f"{file}: {place}{problem}")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--tensor-parallel 0", "--tensor-parallel 0: must be at least 1"),
        ("--set prefix=1a", "--set prefix=1a: must be letters"),
        ("--set max_failed_fraction=half", "--set work.max_failed_fraction=half: must be a number"),
        ("--set engine.deterministic=maybe", "--set engine.deterministic=maybe: must be true or false"),
        ("--set corpus.turns=some", "--set corpus.turns=some: must be 'final', 'all' or 'final-answer'"),
        ("--set principles=[1]", "--set read.principles is a list: must be a mapping of names to values"),
        ("--rubric no.yaml", "--rubric: the rubric no.yaml can't be read: No such file or directory"),
        ("--set weights.a=x", "--set model.weights.a=x: must be a number"),
        (
            "--replicas 2 --set max_replicas=3",
            "replicas is a number that stays, and min_replicas and max_replicas one that changes: give either",
        ),
        ("--response-column a --response-column a", "--response-column: a is given twice"),
    ],
)
def test_a_mistake_on_the_command_line_is_named_by_its_flag(words: str, message: str) -> None:
    done = CliRunner().invoke(cli, ["score", "c.jsonl", "o", "--model", "tiny-scalar", *words.split()])
    assert str(done.exception).startswith(message)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("score c o", "--model is missing"),
        ("sample p o --policy p --judge j -n 0", "-n 0: must be at least 1"),
        ("serve --model a --port 70000", "--port 70000: must be at most 65535"),
        ("plan --model a --set card.context=0", "--set card.context=0: must be at least 1"),
        ("report a b c", "SCORED has 3: must have at most 2"),
    ],
)
def test_other_commands_name_their_flags(words: str, message: str) -> None:
    assert str(CliRunner().invoke(cli, words.split()).exception).startswith(message)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("models: {model: a, tensor_parallel: 0}\n", "models[0].engine.tensor_parallel = 0: must be at least 1"),
        ("models: 5\n", "models = 5: must be text, or a list"),
        ("models: [a, a]\n", "models: two models are called a"),
        ("models: a\nallowed_hosts: http://x\n", "access.allowed_hosts[0] = 'http://x': must be a host's name alone"),
        ("models: a\nlimits: {max_items: 0}\n", "limits.max_items = 0: must be at least 1"),
        ("modles: []\n", "models is missing\n  modles isn't a setting"),
        ("[a]\n", "the content is a list: must be a mapping of names to values"),
    ],
)
def test_a_mistake_in_a_file_for_the_endpoint(content: str, message: str, tmp_path: Path) -> None:
    file = tmp_path / "serve.yaml"
    file.write_text(content)
    assert refusal(lambda: _from_file(str(file), {})).startswith(f"{file}: {message}")


def test_what_a_file_for_the_endpoint_sets_is_named_by_its_flags() -> None:
    options = ["--file", "s.yaml", "--max-replicas", "2", "--set", "max_items=3", "--name", "a"]
    message = str(CliRunner().invoke(cli, ["serve", *options]).exception)
    assert message == (
        "--file s.yaml sets everything but the address: leave out --set limits.max_items, --max-replicas, --name"
    )


@pytest.mark.parametrize("name", ["api_key", "hf_token"])
def test_a_credential_is_named_and_never_shown(name: str, tmp_path: Path) -> None:
    secret = "hf_0123456789"
    step = {"inputs": "c", "output": "o", "model": "m", "engine_args": {name: secret}}
    given = ["score", "c", "o", "--model", "m", "--set", f"engine.engine_args.{name}={secret}"]
    messages = [
        refusal(lambda: validate(Recipe, {"score": step})),
        refusal(lambda: assay.score("c", "o", model="m", engine_args={name: secret})),
        str(CliRunner().invoke(cli, given).exception),
        refusal(lambda: validate(EndpointSettings, {"models": {"model": "a", "engine_args": {name: secret}}})),
    ]
    assert all(f"engine_args.{name} is a credential" in message and secret not in message for message in messages)


@pytest.mark.parametrize(
    ("recipe", "hint"),
    [
        ({"export": {"scored": "a", "output": "b", "for": "sft"}}, "export.for isn't a setting; did you mean trainer?"),
        ({"filter": {"scored": "a", "output": "b", "filter": "reward > 1"}}, "did you mean where?"),
        ({"choose": {"scored": "a", "output": "b", "keep": "best"}}, "did you mean where or strategy?"),
        ({"refine": {"inputs": "a", "output": "b", "policy": "p", "select": "m"}}, "did you mean model? Allowed"),
        *(
            (
                {step: {"inputs": "a", "output": "b", "model": "m"}},
                f"{step}.policy is missing; it writes the answers; `assay score`",
            )
            for step in ("sample", "refine")
        ),
    ],
)
def test_names_of_other_places_are_known(recipe: dict[str, Any], hint: str) -> None:
    with pytest.raises(SettingsError) as refusal:
        validate(Recipe, recipe)
    assert hint in str(refusal.value)


@pytest.mark.parametrize(
    ("step", "message"),
    [
        ({"input": "c.jsonl"}, "score.input isn't a setting; did you mean inputs or input_price? Allowed: corpus,"),
        ({"inputs": "c", "part_row": 5}, "score.part_row isn't a setting; did you mean part_rows? "),
        ({}, "score.inputs is missing"),
    ],
)
def test_a_name_beside_its_section_is_known(step: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingsError) as caught:
        validate(Recipe, {"score": {"output": "o", "model": "tiny-scalar", **step}})
    assert message in str(caught.value)
    assert "corpus is missing" not in str(caught.value)


def test_wrong_arguments_are_told_under_the_name_that_was_called() -> None:
    with pytest.raises(TypeError, match=r"^pairs\(\) missing 1 required positional argument: 'output'"):
        assay.pairs("scored")  # type: ignore[call-overload]
    with pytest.raises(TypeError, match=r"^score\(\) missing"):
        assay.score("corpus.jsonl", model="m")  # type: ignore[call-overload]
