"""The command `upload`."""

from typing import Any

from pipelines.cli.flags import argument, build_from, command, json_option, settings_options
from pipelines.cli.plain_console import tell, upload_text
from pipelines.settings.hub_settings import UploadSettings


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
    from pipelines.results.hub.upload import upload_result

    settings = build_from(UploadSettings, options)
    uploaded = upload_result(settings.folder, settings.hub, settings.public)
    tell(as_json, uploaded, [upload_text(uploaded)])
