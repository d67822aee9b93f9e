"""What a command prints of an upload to the Hugging Face Hub. Imports nothing heavy."""

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from pipelines.cli.plain_console import say

if TYPE_CHECKING:
    from pipelines.hub.upload import Upload


def with_upload(figures: dict[str, Any], upload: "Upload | None") -> dict[str, Any]:
    """The figures of a command with those of the upload, if there was one."""
    return figures if upload is None else {**figures, "hub": asdict(upload)}


def show_upload(upload: "Upload | None") -> None:
    """Print where a result was uploaded to."""
    if upload is not None:
        readers = "anybody may read it" if upload.public else "private"
        say(f"Uploaded to {upload.url} ({readers}), commit {upload.commit}")
