"""How authors ran models: each preset is of a benchmark and of models that are known, and can be carried out."""

import pytest

from actors.reward_model import family_known
from actors.settings.replica import RenderSettings, TooLong
from pipelines.results.evaluation.benchmarks import benchmarks
from pipelines.results.evaluation.published.figures import published
from pipelines.results.evaluation.published.presets import preset_of, presets

EACH = pytest.mark.parametrize("preset", presets(), ids=lambda preset: f"{preset.benchmark}-{preset.models[0]}")


def test_its_benchmark_and_its_models_are_known() -> None:
    for preset in presets():
        assert preset.benchmark in benchmarks()
        assert all(family_known(model) is not None for model in preset.models)
        assert [preset_of(preset.benchmark, model) for model in preset.models] == [preset] * len(preset.models), (
            "and once only"
        )


def test_its_settings_are_those_of_a_run_and_change_something() -> None:
    for preset in presets():
        render = RenderSettings.model_validate(preset.settings.render())
        assert preset.settings.model_dump(exclude_none=True)
        assert render.too_long is not TooLong.CUT_LEFT or render.max_model_len, "a cut needs a length"
        assert render.second_bos == ("once more with special tokens" in preset.stated)
        assert all(str(value) in preset.stated for value in (render.max_model_len, preset.settings.dtype) if value)


def test_a_folder_of_the_models_name_and_no_other_model() -> None:
    assert preset_of("judgebench", "/models/Skywork-Reward-Llama-3.1-8B/") is not None
    assert preset_of("judgebench", "Skywork/Skywork-Reward-V2-Llama-3.1-8B") is None
    assert preset_of("pairs", "Skywork/Skywork-Reward-Llama-3.1-8B") is None


def test_the_models_of_judgebenchs_published_rewards_have_one() -> None:
    (table,) = (
        table for table in published().tables if table.source.startswith("rewards published in ScalerLab/JudgeBench")
    )
    assert all(preset_of("judgebench", model) for model in table.models)
