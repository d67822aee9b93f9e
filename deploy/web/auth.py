"""API keys: who may ask. Off only where nobody but this machine can reach the endpoint, or where somebody says so."""

import hashlib
import hmac
import ipaddress
import os
from collections.abc import Iterable, Sequence
from pathlib import Path

from actors.errors import SettingsError
from deploy.errors import ApiError
from deploy.settings import AccessSettings

VARIABLE = "ASSAY_API_KEYS"
_SHORTEST = 16


class Keys:
    """The digests of all keys. The keys themselves aren't kept, so that none can get into a log or a pickle."""

    def __init__(self, keys: Iterable[str], *, everybody: bool = False, hosts: Iterable[str] = ()) -> None:
        """Without any key, `everybody` may ask, or else who is on this machine, under its own names or one of `hosts`."""
        self._digests = tuple(_digest(key) for key in keys)
        self._everybody = everybody
        self._hosts = frozenset(host.lower() for host in hosts)

    def __bool__(self) -> bool:
        """Whether one is needed."""
        return bool(self._digests)

    def check(self, authorization: str, client: str, host: str = "") -> None:
        """Raise `ApiError` unless the header `Authorization` has a key, or the address of the client needs none.

        A browser on this machine asks for any page that it shows: so without keys the header `Host` must name this machine,
        and no name of somebody else's that leads here (DNS rebinding). A request without one is no browser's.

        Takes as long for a wrong key as for a right one.
        """
        if not self._digests:
            if not self._everybody and not is_loopback(client):
                raise ApiError(
                    403, f"no API keys are set up here ({VARIABLE}), so only this machine may ask", code="no_keys"
                )
            if not self._everybody and host and not self._is_ours(host):
                raise ApiError(
                    403,
                    "without API keys this endpoint is asked as localhost or 127.0.0.1 alone, and the Host of this request "
                    f"is another: ask there, set up keys ({VARIABLE}), or name the host with --allowed-hosts",
                    code="unknown_host",
                )
            return
        scheme, _, key = authorization.partition(" ")
        given = _digest(key.strip())
        known = [hmac.compare_digest(given, digest) for digest in self._digests]
        if scheme.lower() != "bearer" or not any(known):
            raise ApiError(401, "a valid API key is needed: Authorization: Bearer KEY", code="invalid_api_key")

    def _is_ours(self, host: str) -> bool:
        """Whether a `Host`, with a port or without, is a name of this machine."""
        name = host.strip().lower()
        if name.startswith("["):
            name, end, port = name[1:].partition("]")
            port = port.removeprefix(":") if end else "?"
        else:
            name, _, port = name.partition(":")
        return (not port or port.isdecimal()) and (is_loopback(name) or name in self._hosts)


def read_keys(access: AccessSettings) -> Keys:
    """The keys in the file and in the environment. Raises `SettingsError` for a file that can't be read, or a short key."""
    keys = os.environ.get(VARIABLE, "").split(",")
    if access.api_keys_file is not None:
        try:
            keys += Path(access.api_keys_file).read_text("utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise SettingsError(f"--api-keys-file {access.api_keys_file} can't be read: {error}") from error
    found = [key.strip() for key in keys if key.strip() and not key.lstrip().startswith("#")]
    if access.api_keys_file is not None and not found:
        raise SettingsError(f"--api-keys-file {access.api_keys_file} holds no key: it takes one per line")
    if short := sum(len(key) < _SHORTEST for key in found):
        raise SettingsError(
            f"{short} API keys have fewer than {_SHORTEST} characters; `openssl rand -hex 32` makes good ones"
        )
    if other := sum(not key.isascii() for key in found):
        raise SettingsError(
            f"{other} API keys hold characters beyond ASCII, which clients write into a header in different ways; `openssl "
            "rand -hex 32` makes good ones"
        )
    return Keys(found, everybody=access.open, hosts=access.allowed_hosts)


def check_reach(keys: Keys, access: AccessSettings, hosts: Sequence[str]) -> None:
    """Raise `SettingsError` if anybody could ask from elsewhere without a key."""
    if not keys and not access.open and (wide := [host for host in hosts if not is_loopback(host)]):
        raise SettingsError(
            f"listening on {', '.join(wide)} without API keys would let everybody in: give {VARIABLE} or --api-keys-file, "
            "listen on 127.0.0.1, or say --open if something else guards the address"
        )


def is_loopback(host: str) -> bool:
    """Whether an address is of this machine alone."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode("utf-8", "surrogateescape")).digest()
