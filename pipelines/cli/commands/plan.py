"""The command `plan`."""

import sys
from collections.abc import Mapping
from typing import Any

import click

from actors.errors import SettingsError
from actors.text.counted import number_of
from pipelines.cli.flags import argument, build_from, command, given_options, json_option, option, settings_options, spell
from pipelines.cli.plain_console import tell
from pipelines.settings.estimate_settings import BillSettings, CardSettings, LayoutSettings, PlanSettings, SamplingSettings
from pipelines.settings.options import leaves

# No corpus has these endings.
_RECIPES = (".yaml", ".yml")


@command()
@argument("inputs", "input files, glob patterns and folders; or a recipe", nargs=-1)
@click.option("--table", "as_table", is_flag=True, help="print the layouts of all published models as a Markdown table")
@option("--model", help="reward model: a folder, a hub id, or one of the built-in tiny-* models")
@settings_options(PlanSettings, "inputs", "model", endpoint=(), max_cost=())
@json_option
def plan(inputs: tuple[str, ...], as_table: bool, as_json: bool, **options: Any) -> None:
    """Estimate what scoring the corpus INPUTS takes: tokens, rejected rows, time, GPUs and cost. Needs no GPU.

    Tokenises a random sample, or with --full all rows. INPUTS may be a recipe, whose `score` step is estimated. Without
    INPUTS, prints how many GPUs an engine of the model needs and how they share its weights, with the arithmetic.

    With --tensor-parallel, checks that layout instead of finding one.
    """
    if as_table:
        from pipelines.workflows.estimate.layouts import layout_table

        for line in layout_table():
            click.echo(line)
        return
    if inputs:
        _plan_corpus(_settings(inputs, given_options(options)), as_json)
    else:
        _show_layout(given_options(options), as_json)


def _settings(inputs: tuple[str, ...], options: Mapping[str, Any]) -> PlanSettings:
    if not any(path.lower().endswith(_RECIPES) for path in inputs):
        return build_from(PlanSettings, {"inputs": inputs, **options})
    from pipelines.settings.recipe import read_recipe

    (path,) = inputs if len(inputs) == 1 else (None,)
    if path is None:
        raise SettingsError("a recipe is planned by itself: it says what its corpus is")
    recipe = read_recipe(path)
    # How many rows a cascade passes on follows from rewards, which no plan has.
    if recipe.cascade is not None:
        raise SettingsError(
            f"{path} has a cascade, of which a slice tells how many rows its last model gets: `assay run {path} --set "
            "cascade.bound.plan_only=true` scores that, and says so"
        )
    step = recipe.score
    if step is None:
        raise SettingsError(
            f"{path} has no step `score`, and only that can be planned: what a policy will answer isn't known"
        )
    # Everything else is in the recipe: an option that overrode it would plan another run than `assay run` does.
    plan_options = {leaf.name for kind in (CardSettings, SamplingSettings, BillSettings) for leaf in leaves(kind)}
    if of_recipe := sorted(options.keys() - plan_options):
        names = ", ".join(map(spell, of_recipe))
        raise SettingsError(f"{names}: {path} says what is scored and how; change it there")
    engine = step.engine
    # A layout that the recipe states is checked; one GPU is the default, for which the plan finds a layout.
    if engine.tensor_parallel * engine.pipeline_parallel > 1:
        layout = {"tensor_parallel": engine.tensor_parallel, "pipeline_parallel": engine.pipeline_parallel}
        options = layout | dict(options)
    of_plan = {
        section: build_from(kind, {name: value for name, value in options.items() if name in kind.model_fields})
        for section, kind in (("card", CardSettings), ("look", SamplingSettings), ("bill", BillSettings))
    }
    # Sections of the plan that the run has, too, as the recipe sets them.
    of_run = {name: getattr(step, name) for name in PlanSettings.model_fields.keys() - of_plan.keys()}
    return PlanSettings(**of_run, **of_plan)


def _plan_corpus(settings: PlanSettings, as_json: bool) -> None:
    from pipelines.cli.plan_report import TokenisingProgress, plan_report
    from pipelines.workflows.estimate.forecast import corpus_plan

    progress = TokenisingProgress(sys.stderr)
    forecast = corpus_plan(settings, progress.update)
    progress.done()
    tell(as_json, forecast.as_json(), plan_report(forecast))


def _show_layout(options: Mapping[str, Any], as_json: bool) -> None:
    from pipelines.workflows.estimate.layouts import layout_of

    of_corpus = sorted(options.keys() - {leaf.name for leaf in leaves(LayoutSettings)})
    if of_corpus:
        names = ", ".join(map(spell, of_corpus))
        raise SettingsError(f"{names}: of a corpus, and there is none; give its files, or a recipe")
    plan, engine = layout_of(build_from(LayoutSettings, options))
    lines = [f"{plan.layout}: {number_of(plan.layout.gpus, 'GPU')} for an engine", str(plan)]
    lines += [f"Options of `assay score`: {engine}"] if engine else []
    tell(as_json, {**plan.as_json(), "options": engine}, lines)
