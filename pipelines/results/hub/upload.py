"""Uploads a finished result to a dataset on the Hugging Face Hub, in one commit.

1. Before the command works: the name, the visibility of the dataset, and whether the token may write there.
2. After it: the files of rows under `data/`, and a card. Files there that the result doesn't have are deleted by the same
   commit, so that the dataset is the result and nothing else. Beside `data/` only the card is touched.

Only rows and the card leave this machine: no document, manifest or recipe, which name folders. The client finds its token
as always (HF_TOKEN, or `hf auth login`).
"""

import shutil
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, TypeVar

from actors.errors import AssayError, RunStopped, SettingsError
from pipelines.data import storage
from pipelines.data.storage import open_read
from pipelines.results.hub.hub_card import DATA, hub_card, read_result
from pipelines.settings.hub_settings import HubSettings

_KIND, _CARD = "dataset", "README.md"
_WAITS_S = (1.0, 2.0, 4.0, 8.0)  # between attempts, while the Hub is busy or can't be reached: 15 s in all

_Answer = TypeVar("_Answer")


@dataclass(frozen=True)
class Upload:
    """What was uploaded: the dataset's page, the commit, the number of files of rows, and whether anybody may read it."""

    url: str
    commit: str
    files: int
    public: bool


def check_hub(settings: HubSettings, output: str | None) -> None:
    """Raise `SettingsError`, before a command works, if the Hub wouldn't take what it will write to `output`."""
    if settings.hub is None:
        if settings.public:
            raise SettingsError("--public goes with --hub ORG/NAME")
        return
    if output is None:
        raise SettingsError("--hub: there is nothing to upload without an output folder")
    _check_access(settings.hub, settings.public)


def upload_made(settings: HubSettings, output: str | None) -> Upload | None:
    """Upload what a command wrote, if its settings say so. Raises as `upload_result`: the result is there all the same."""
    if settings.hub is None or output is None:
        return None
    return upload_result(output, settings.hub, settings.public)


def upload_result(folder: str, repository: str, public: bool = False) -> Upload:
    """Upload a finished result to the dataset ORG/NAME, which is created if it isn't there.

    Raises `SettingsError` if the folder isn't such a result, or the Hub wouldn't take it (no token that may write there,
    or another visibility), and `RunStopped` if the Hub can't be reached or goes on refusing.
    """
    from huggingface_hub import CommitOperationAdd, CommitOperationDelete

    result = read_result(folder)
    _check_access(repository, public)
    api = _api()
    hub = _Hub(repository, f"; the result is complete, and `assay upload {folder} {repository}` uploads it")
    with tempfile.TemporaryDirectory(prefix="assay-hub-") as place:
        hub.ask(lambda: api.create_repo(repository, repo_type=_KIND, private=not public, exist_ok=True))
        contents: dict[str, str | bytes] = {f"{DATA}/{name}": _local_path(folder, name, place) for name in result.names}
        contents[_CARD] = hub_card(result, repository).encode()
        present = hub.ask(lambda: list(api.list_repo_files(repository, repo_type=_KIND)))
        stale = [name for name in present if name.startswith(f"{DATA}/") and name not in contents]

        def commit() -> Any:
            # Not `upload_folder`, which makes several commits of many files. Made anew for each attempt: an operation
            # remembers that its file was uploaded.
            additions = [CommitOperationAdd(name, content) for name, content in contents.items()]
            deletions = [CommitOperationDelete(name) for name in stale]
            message = f"{len(result.names):,} files of rows by `assay {result.kind.name}`"
            return api.create_commit(repository, [*additions, *deletions], commit_message=message, repo_type=_KIND)

        made = hub.ask(commit)
    return Upload(f"{api.endpoint}/datasets/{repository}", made.oid, len(result.names), public)


def _check_access(repository: str, public: bool) -> None:
    """Raise `SettingsError` if the token can't write the dataset, or it has another visibility than was asked for."""
    from huggingface_hub.errors import RepositoryNotFoundError

    api, hub = _api(), _Hub(repository)

    def is_private_there() -> bool | None:
        try:
            return bool(api.repo_info(repository, repo_type=_KIND).private)
        except RepositoryNotFoundError:  # nothing is there, or nothing that this token may see: `create_repo` will tell
            return None

    is_private = hub.ask(is_private_there)
    if is_private is None:
        hub.ask(api.whoami)  # that there is a token, and a valid one, at least
        return
    hub.ask(lambda: api.auth_check(repository, repo_type=_KIND, write=True))
    if not is_private and not public:
        raise SettingsError(f"--hub {repository} is public: anybody could read the rows. Give --public if that is meant")
    if is_private and public:
        raise SettingsError(
            f"--hub {repository} is private, and --public is given; change it on its page first, or leave that out"
        )


def _api() -> Any:
    from huggingface_hub import HfApi

    return HfApi(library_name="assay")


def _local_path(folder: str, name: str, place: str) -> str:
    """The path of a file on this machine; one in a store is copied to `place`, as the client reads files twice."""
    path = storage.folder(folder).file(name)
    if "://" not in path:
        return path
    copy = f"{place}/{name}"
    with open_read(path) as stream, open(copy, "wb") as target:
        shutil.copyfileobj(stream, target)
    return copy


@dataclass(frozen=True)
class _Hub:
    """Asks the Hub about a dataset, and says its errors as ours; `way_out`, if there is a finished result that waits."""

    repository: str
    way_out: str = ""

    def ask(self, request: Callable[[], _Answer]) -> _Answer:
        """The answer to a request, which is made again while the Hub can't be reached or is busy (429, 5xx)."""
        from huggingface_hub.errors import (  # type: ignore[attr-defined]  # HTTPError is of its HTTP library, which changes
            HfHubHTTPError,
            HTTPError,
            LocalTokenNotFoundError,
            OfflineModeIsEnabled,
        )

        for wait_s in (*_WAITS_S, None):
            try:
                return request()
            except OfflineModeIsEnabled as error:
                raise self._error(SettingsError, "HF_HUB_OFFLINE is set, so the Hub can't be reached") from error
            except LocalTokenNotFoundError as error:
                text = "there is no token; set HF_TOKEN, or log in with `hf auth login`"
                raise self._error(SettingsError, text) from error
            except HTTPError as error:
                status = error.response.status_code if isinstance(error, HfHubHTTPError) else None
                if status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN, HTTPStatus.NOT_FOUND):
                    text = "the token of HF_TOKEN or `hf auth login` must be one that may write there"
                    raise self._error(SettingsError, f"the Hub refuses it ({status}); {text}") from error
                if wait_s is None or (status is not None and status < 500 and status != HTTPStatus.TOO_MANY_REQUESTS):
                    text = f"the Hub can't be reached ({error})" if status is None else f"the Hub answered {status}"
                    raise self._error(RunStopped, text) from error
            time.sleep(wait_s)
        raise AssertionError("the last attempt has returned or raised")

    def _error(self, kind: type[AssayError], text: str) -> AssayError:
        return kind(f"--hub {self.repository}: {text}{self.way_out}")
