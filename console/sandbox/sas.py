"""Shared access signatures: making a token and judging one.

A token is `SharedAccessSignature sr=<resource>&sig=<signature>&se=<expiry>&skn=<key name>`; its signature
is HMAC-SHA256 with the key's text over the encoded resource, a line feed and the expiry. Pure functions: the
time and the keys come in as arguments. What a key may do (Send, Listen, Manage) does not belong here.
"""

from __future__ import annotations

import hmac
from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from urllib.parse import quote_plus, unquote, unquote_plus, urlsplit

PREFIX = "SharedAccessSignature "
_FIELDS = ("sr", "sig", "se", "skn")


class SasError(Exception):
    """A token was refused. `reason` is one sentence for the client; it holds no key and no signature."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


@dataclass(frozen=True, slots=True)
class SasToken:
    """A token that was found good. `expires_at` is in epoch seconds, `resource` is decoded."""

    key_name: str
    resource: str
    expires_at: float


@dataclass(frozen=True, slots=True)
class _Location:
    """A resource without its scheme: `port` is None where none was written."""

    host: str
    port: int | None
    segments: tuple[str, ...]


def sign(resource: str, key_name: str, key: str, expires_at: float) -> str:
    """A token for `resource` and everything below it, good until `expires_at` (epoch seconds)."""
    encoded, expiry = quote_plus(resource), str(int(expires_at))
    signature = quote_plus(_signature(encoded, expiry, key))
    return f"{PREFIX}sr={encoded}&sig={signature}&se={expiry}&skn={quote_plus(key_name)}"


def verify(token: str, *, audience: str, keys: Mapping[str, str], now: float) -> SasToken:
    """Judge `token` for access to `audience`, a URI; any scheme, host with or without port.

    The token's resource has to be the audience or a parent of it, by whole path segments and without regard
    to case. `keys` maps key names to key texts, `now` is in epoch seconds. Raises SasError with the reason.
    """
    fields = _fields(token)
    expires_at = _expiry(fields["se"])
    key_name = _known_name(unquote_plus(fields["skn"]), keys)
    # unquote, not unquote_plus: a client that leaves base64's "+" as it is means "+"
    given, right = unquote(fields["sig"]), _signature(fields["sr"], fields["se"], keys[key_name])
    if not hmac.compare_digest(given.encode(), right.encode()):
        raise SasError(f"The signature was not made with the key '{key_name}' of this namespace; check the key.")
    if expires_at <= now:
        raise SasError(f"The token expired {now - expires_at:.0f} seconds ago; sign a new one.")
    resource = unquote_plus(fields["sr"])
    if not _covers(_locate(resource), _locate(audience)):
        raise SasError(f"The token is for '{resource}', which does not cover '{audience}'.")
    return SasToken(key_name, resource, expires_at)


def _signature(encoded_resource: str, expiry: str, key: str) -> str:
    digest = hmac.digest(key.encode(), f"{encoded_resource}\n{expiry}".encode(), sha256)
    return b64encode(digest).decode("ascii")


def _fields(token: str) -> dict[str, str]:
    if not token.startswith(PREFIX):
        raise SasError("The token is not a shared access signature: it has to start with 'SharedAccessSignature sr='.")
    pairs = (item.partition("=") for item in token[len(PREFIX) :].split("&"))
    fields = {name.strip(): value.strip() for name, _, value in pairs}
    missing = [name for name in _FIELDS if not fields.get(name)]
    if missing:
        raise SasError(f"The token has no {' and no '.join(missing)}; it needs sr, sig, se and skn.")
    return fields


def _known_name(name: str, keys: Mapping[str, str]) -> str:
    # the Python SDK encodes the key's name twice
    for candidate in (name, unquote_plus(name)):
        if candidate in keys:
            return candidate
    raise SasError(f"This namespace has no key named '{name}'.")


def _expiry(text: str) -> float:
    if not (text.isascii() and text.isdigit()):
        raise SasError(f"The expiry se='{text}' is not a number of seconds since 1970.")
    return float(text)


def _locate(uri: str) -> _Location:
    try:
        parts = urlsplit(uri if "://" in uri else f"//{uri}")
        segments = tuple(part for part in unquote(parts.path).lower().split("/") if part)
        return _Location((parts.hostname or "").lower(), parts.port, segments)
    except ValueError as error:
        raise SasError(f"'{uri}' is not a URI that a token can be judged for: {error}.") from error


def _covers(resource: _Location, audience: _Location) -> bool:
    if not resource.host or resource.host != audience.host:
        return False
    if None not in (resource.port, audience.port) and resource.port != audience.port:
        return False
    return audience.segments[: len(resource.segments)] == resource.segments
