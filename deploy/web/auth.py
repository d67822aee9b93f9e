"""API keys. Not needed only where this machine alone can reach the endpoint, or with --open."""

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
_SHORTEST = 16  # characters: 64 bits in hexadecimal


class Keys:
    """The digests of all keys. The keys themselves aren't kept, so that none can get into a log or a pickle."""

    def __init__(self, keys: Iterable[str], *, everybody: bool = False, hosts: Iterable[str] = ()) -> None:
        """Without keys, requests come from `everybody`, or else from this machine, under its own names or one of `hosts`."""
        self._digests = tuple(_digest(key) for key in keys)
        self._everybody = everybody
        self._hosts = frozenset(host.lower() for host in hosts)

    def __bool__(self) -> bool:
        return bool(self._digests)

    def check(self, authorization: str, client: str, host: str = "") -> None:
        """Raise `ApiError` unless the header `Authorization` has a key, or the address of the client needs none.

        A browser on this machine sends requests for any web page it shows. So without keys the header `Host` must name this
        machine: a page whose own domain resolves to 127.0.0.1 (DNS rebinding) sends that domain. A request without `Host`
        isn't a browser's.
        """
        if not self._digests:
            if not self._everybody and not is_loopback(client):
                raise ApiError(
                    403,
                    f"no API keys are set up here ({VARIABLE}), so only requests from this machine are answered",
                    code="no_keys",
                )
            # After the address: only a client of this machine gets here.
            if not self._everybody and host and not self._is_ours(host):
                raise ApiError(
                    403,
                    "without API keys this endpoint answers only requests to localhost or 127.0.0.1, and this request has "
                    f"another Host: use one of these, set up keys ({VARIABLE}), or name the host in access.allowed_hosts",
                    code="unknown_host",
                )
            return
        scheme, _, key = authorization.partition(" ")
        digest = _digest(key.strip())
        # All keys, in constant time each: the time of an answer tells nothing about a wrong key.
        matches = [hmac.compare_digest(digest, valid) for valid in self._digests]
        if scheme.lower() != "bearer" or not any(matches):
            raise ApiError(401, "a valid API key is needed: Authorization: Bearer KEY", code="invalid_api_key")

    def _is_ours(self, host: str) -> bool:
        """Whether a `Host`, with or without a port, names this machine. `[::1]:8000` has brackets, for its colons."""
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
    stripped = [key.strip() for key in keys if key.strip() and not key.lstrip().startswith("#")]
    if access.api_keys_file is not None and not stripped:
        raise SettingsError(f"--api-keys-file {access.api_keys_file} holds no key: it takes one per line")
    if short := sum(len(key) < _SHORTEST for key in stripped):
        raise SettingsError(
            f"{short} API keys have fewer than {_SHORTEST} characters; `openssl rand -hex 32` makes good ones"
        )
    if foreign := sum(not key.isascii() for key in stripped):
        raise SettingsError(
            f"{foreign} API keys hold characters beyond ASCII, which clients write into a header in different ways; "
            "`openssl rand -hex 32` makes good ones"
        )
    return Keys(stripped, everybody=access.open, hosts=access.allowed_hosts)


def check_reach(keys: Keys, access: AccessSettings, hosts: Sequence[str]) -> None:
    """Raise `SettingsError` if other machines could send requests without a key."""
    if not keys and not access.open and (wide := [host for host in hosts if not is_loopback(host)]):
        raise SettingsError(
            f"listening on {', '.join(wide)} without API keys would let everybody in: give {VARIABLE} or --api-keys-file, "
            "listen on 127.0.0.1, or say --open if something else guards the address"
        )


def is_loopback(host: str) -> bool:
    """Whether an address is reached from this machine alone."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"  # any other name may resolve to anything


def _digest(key: str) -> bytes:
    # Bytes of the environment that aren't UTF-8 come as surrogates: such a key is refused with a message, not by an encoder.
    return hashlib.sha256(key.encode("utf-8", "surrogateescape")).digest()
