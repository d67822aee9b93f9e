"""The schema of recipes says yes to what `assay run` takes, and no to what it doesn't."""

import json
from typing import Any

import pytest
from click.testing import CliRunner
from jsonschema import Draft202012Validator

from actors.errors import SettingsError
from pipelines.cli.app import cli
from pipelines.settings.options import validate
from pipelines.settings.recipe import Recipe

SCORE = {"output": "out"}
INPUTS, MODEL = {"inputs": "a.jsonl"}, {"model": "tiny-scalar"}


@pytest.fixture(scope="module")
def validator() -> Draft202012Validator:
    schema = json.loads(CliRunner().invoke(cli, ["schema"]).stdout)
    Draft202012Validator.check_schema(schema)
    return Draft202012Validator(schema)


def test_the_schema_has_every_step_and_says_what_each_setting_is_for(validator: Draft202012Validator) -> None:
    schema: Any = validator.schema
    assert schema["properties"].keys() == Recipe.model_fields.keys()
    settings = schema["$defs"]["EngineSettings"]["properties"]
    assert [name for name, setting in settings.items() if not setting.get("description")] == []


@pytest.mark.parametrize(
    ("step", "is_valid"),
    [
        ({**INPUTS, **MODEL}, True),  # short forms: the input beside its section, one value for a list, a bare model
        ({"corpus": {"inputs": ["a.jsonl", "b.jsonl"], "limit": 5}, "model": {"model": "tiny-scalar"}}, True),
        ({"corpus": "a.jsonl", **MODEL, "part_rows": 4, "engine": "fake"}, True),
        ({**INPUTS, **MODEL, "work": {"part_rows": "many"}}, False),
        ({**INPUTS, **MODEL, "part_rows": "many"}, False),
        ({**INPUTS, "modle": "tiny-scalar"}, False),
        (MODEL, False),
    ],
)
def test_the_schema_takes_what_the_command_takes(
    validator: Draft202012Validator, step: dict[str, Any], is_valid: bool
) -> None:
    document = {"score": {**SCORE, **step}}
    assert validator.is_valid(document) is is_valid
    if is_valid:
        assert validate(Recipe, document).steps
    else:
        with pytest.raises(SettingsError, match="score"):
            validate(Recipe, document)
