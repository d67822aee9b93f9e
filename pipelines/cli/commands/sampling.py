"""The commands `sample`, `refine`, `choose`, `pairs`, `export` and `upload`."""

from typing import Any

from pipelines.cli.flags import argument, build_from, command, json_option, settings_options
from pipelines.cli.steps import do_step
from pipelines.settings.export_settings import ChooseSettings, ExportSettings, PairSettings
from pipelines.settings.hub_settings import UploadSettings
from pipelines.settings.refine_settings import RefineSettings
from pipelines.settings.run_settings import SampleSettings


@command()
@argument("inputs", SampleSettings, nargs=-1, required=True)
@argument("output", SampleSettings)
@settings_options(SampleSettings, "inputs", "output", "response_column", model=("--judge",), n=("-n",))
@json_option
def sample(as_json: bool, **options: Any) -> None:
    """Generate -n answers to each prompt in INPUTS with a policy, judge them, and write both to the folder OUTPUT.

    OUTPUT is a scored corpus with a row for each candidate; `choose` keeps the best of them. Run the same command again to
    resume after an interruption.
    """
    do_step("sample", build_from(SampleSettings, options), as_json)


@command()
@argument("inputs", RefineSettings, nargs=-1, required=True)
@argument("output", RefineSettings)
@settings_options(RefineSettings, "inputs", "output", "response_column", model=("--select",), endpoint=(), max_cost=())
@json_option
def refine(as_json: bool, **options: Any) -> None:
    """Draft answers to the prompts in INPUTS, criticise and edit them, judge all, and write them to the folder OUTPUT.

    OUTPUT is a scored corpus with a row for each draft and each edit; `choose` keeps the best of them. Run the same command
    again to resume after an interruption.
    """
    do_step("refine", build_from(RefineSettings, options), as_json)


@command()
@argument("scored", ChooseSettings)
@argument("output", ChooseSettings)
@settings_options(ChooseSettings, "scored", "output", k=("-k",))
@json_option
def choose(as_json: bool, **options: Any) -> None:
    """Write the candidates of each prompt in SCORED that --strategy chooses, such as the best, to OUTPUT."""
    do_step("choose", build_from(ChooseSettings, options), as_json)


@command()
@argument("scored", PairSettings)
@argument("output", PairSettings)
@settings_options(PairSettings, "scored", "output", trainer=("--for",))
@json_option
def pairs(as_json: bool, **options: Any) -> None:
    """Write preference pairs of the candidates in the scored corpus SCORED to OUTPUT, in a trainer's format."""
    do_step("pairs", build_from(PairSettings, options), as_json)


@command()
@argument("scored", ExportSettings)
@argument("output", ExportSettings)
@settings_options(ExportSettings, "scored", "output", trainer=("--for",))
@json_option
def export(as_json: bool, **options: Any) -> None:
    """Write the responses in the scored corpus SCORED to OUTPUT, with labels made of their scores, in a trainer's format."""
    do_step("export", build_from(ExportSettings, options), as_json)


@command()
@argument("folder", UploadSettings)
@argument("hub", UploadSettings)
@settings_options(UploadSettings, "folder", "hub")
@json_option
def upload(as_json: bool, **options: Any) -> None:
    """Upload the result in FOLDER to the dataset HUB (ORG/NAME) on the Hugging Face Hub, with a card of how it was made.

    FOLDER is a finished result of `filter`, `choose`, `pairs` or `export`; their --hub does the same at their end. The
    client finds its token as always: HF_TOKEN, or `hf auth login`.
    """
    from pipelines.cli.plain_console import tell, upload_text
    from pipelines.results.hub.upload import upload_result

    settings = build_from(UploadSettings, options)
    # The client of the hub finds the token itself: none passes through our settings, which are written down.
    uploaded = upload_result(settings.folder, settings.hub, settings.public)
    tell(as_json, uploaded, [upload_text(uploaded)])
