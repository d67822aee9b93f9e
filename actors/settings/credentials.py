"""Refuses credentials in settings, because settings are written into manifests, recipes, parts and messages.

A setting with a credential is an error wherever it comes from. The message names its place and never its value. Credentials
belong into the environment, which is written nowhere.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import parse_qsl, urlsplit

_NAMES = (
    r"token|api[_-]?key|access[_-]?key([_-]?id)?|secret|secret[_-]?(access[_-]?)?key|private[_-]?key|account[_-]?key"
    r"|password|passwd|passphrase|credentials?|authorization|cookie"
)
# Names that are or end in these: `max_tokens` and `token_ids` are none.
_NAME = re.compile(rf"(.*[_.-])?({_NAMES})", re.IGNORECASE | re.DOTALL)
# In a query also the parameters that sign an address: `sig` of Azure, `signature` of S3 and Google.
_IN_QUERY = re.compile(rf"(.*[_.-])?({_NAMES}|key|sig|signature|auth|sas|awsaccesskeyid)", re.IGNORECASE | re.DOTALL)
# Where camel case begins a word: apiKey is read as api_Key.
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
# A bound on the scheme: without it a long word is tried again from each of its letters.
_URL = re.compile(r"(\w{1,20})://[^\s'\"<>]*")


def check_no_credentials(value: Any, place: str = "") -> None:
    """Raise `ValueError`, which names the place and not the value, if a setting's raw value holds a credential anywhere.

    At any depth, since recipes are nested: in the values of mappings, and in lists.
    """
    if problem := next(_find_problems(value, place), None):
        raise ValueError(
            f"{problem}, and settings are written beside the results: give it in the environment instead, as HF_TOKEN, "
            "OPENAI_API_KEY for a policy's endpoint, or what the store's own client reads"
        )


def _find_problems(value: Any, place: str) -> Iterator[str]:
    if isinstance(value, str):
        for url in _URL.finditer(value):
            if problem := _find_problem_in_url(url[0]):
                yield f"{place or 'a setting'} holds an address with {problem}"
    elif isinstance(value, Mapping):
        for name, item in value.items():
            path = f"{place}.{name}" if place else str(name)
            if isinstance(item, str) and item.strip() and _NAME.fullmatch(_CAMEL.sub("_", str(name))):
                yield f"{path} is a credential"
            yield from _find_problems(item, path)
    elif isinstance(value, list | tuple | set | frozenset):
        for item in value:
            yield from _find_problems(item, place)


def _find_problem_in_url(url: str) -> str | None:
    try:
        parts = urlsplit(url)
        user, password = parts.username, parts.password
    except ValueError:  # no address that anybody could ask
        return None
    if password or (
        user and parts.scheme.lower() in {"http", "https"}
    ):  # a user alone may be a container: abfs://box@account
        return "a user's name or password"
    named = (name for name, value in (*parse_qsl(parts.query), *parse_qsl(parts.fragment)) if value)
    if any(_IN_QUERY.fullmatch(_CAMEL.sub("_", name)) for name in named):
        return "a key in its query"
    return None
