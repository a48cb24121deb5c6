"""Shared access signatures: signed by clients, read and proved by namespaces.

A signature is `SharedAccessSignature sr=<resource>&sig=<signature>&se=<expiry>&skn=<key name>`: HMAC-SHA256 with the
key's text over the encoded resource, a line feed and the expiry. Times are epoch seconds, passed in by the caller.
"""

from __future__ import annotations

import hmac
from base64 import b64encode
from dataclasses import dataclass, field
from enum import StrEnum
from hashlib import sha256
from typing import Final
from urllib.parse import quote_plus, unquote, unquote_plus, urlsplit

PREFIX: Final = "SharedAccessSignature "
_FIELDS: Final = ("sr", "sig", "se", "skn")


class Flaw(StrEnum):
    """A flaw of a token, by the service's name."""

    MALFORMED = "MalformedToken"
    SIGNATURE = "InvalidSignature"
    EXPIRED = "ExpiredToken"
    AUDIENCE = "InvalidAudience"
    ISSUER = "InvalidIssuer"


class TokenError(Exception):
    """A refused token. `reason` is for the client: the flaw and one sentence, without key or signature."""

    def __init__(self, flaw: Flaw, sentence: str) -> None:
        self.flaw = flaw
        self.reason = f"{flaw}: {sentence}"
        super().__init__(self.reason)


@dataclass(frozen=True, slots=True)
class _Location:
    """A resource without its scheme; `port` is None if it has none."""

    host: str
    port: int | None
    segments: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SasToken:
    """A token that is read but not proved. `expires_at` is in epoch seconds, `resource` decoded."""

    key_name: str
    resource: str
    expires_at: float
    _signed: str = field(repr=False)
    _signature: str = field(repr=False)

    @property
    def key_names(self) -> tuple[str, ...]:
        """Return the possible names of the key: the Python SDK encodes the name twice."""
        return tuple(dict.fromkeys((self.key_name, unquote_plus(self.key_name))))

    def is_signed_with(self, key: str) -> bool:
        """Return whether the key made the signature, in constant time."""
        return hmac.compare_digest(self._signature.encode(), _signature(self._signed, key).encode())

    def check(self, audience: str, now: float) -> None:
        """Raise TokenError unless the token is valid at `now` (epoch seconds) and covers `audience`, a URI.

        The token's resource has to be the audience or a parent of it, by whole path segments and without regard to
        case. Any scheme matches, and a host with or without port.
        """
        if self.expires_at <= now:
            raise TokenError(
                Flaw.EXPIRED, f"The token expired {now - self.expires_at:.0f} seconds ago; sign a new one."
            )
        resource = _locate(self.resource)
        if not _covers(resource, resource if audience == self.resource else _locate(audience)):
            raise TokenError(Flaw.AUDIENCE, f"The token is for '{self.resource}', which does not cover '{audience}'.")


def sign(resource: str, key_name: str, key: str, expires_at: float) -> str:
    """Return a token for `resource` and everything below it, valid until `expires_at` (epoch seconds)."""
    encoded, expiry = quote_plus(resource), str(int(expires_at))
    signature = quote_plus(_signature(f"{encoded}\n{expiry}", key))
    return f"{PREFIX}sr={encoded}&sig={signature}&se={expiry}&skn={quote_plus(key_name)}"


def read_token(token: str) -> SasToken:
    """Return the parts of a token. Raises TokenError if it is not a shared access signature."""
    fields = _fields(token)
    return SasToken(
        unquote_plus(fields["skn"]),
        unquote_plus(fields["sr"]),
        _expiry(fields["se"]),
        f"{fields['sr']}\n{fields['se']}",
        # unquote, not unquote_plus: an unencoded "+" is base64's
        unquote(fields["sig"]),
    )


def _signature(signed: str, key: str) -> str:
    return b64encode(hmac.digest(key.encode(), signed.encode(), sha256)).decode("ascii")


def _fields(token: str) -> dict[str, str]:
    if not token.startswith(PREFIX):
        raise TokenError(
            Flaw.MALFORMED,
            "The token is not a shared access signature: it has to start with 'SharedAccessSignature sr='.",
        )
    if not token.isascii():
        raise TokenError(
            Flaw.MALFORMED, "The token holds characters beyond ASCII; its parts have to be percent-encoded."
        )
    pairs = (item.partition("=") for item in token[len(PREFIX) :].split("&"))
    fields = {name.strip(): value.strip() for name, _, value in pairs}
    missing = [name for name in _FIELDS if not fields.get(name)]
    if missing:
        raise TokenError(Flaw.MALFORMED, f"The token has no {' and no '.join(missing)}; it needs sr, sig, se and skn.")
    return fields


def _expiry(text: str) -> float:
    if not (text.isascii() and text.isdigit()):
        raise TokenError(Flaw.MALFORMED, f"The expiry se='{text}' is not a number of seconds since 1970.")
    return float(text)


def _locate(uri: str) -> _Location:
    try:
        parts = urlsplit(uri if "://" in uri else f"//{uri}")
        segments = tuple(part for part in unquote(parts.path).lower().split("/") if part)
        return _Location((parts.hostname or "").lower(), parts.port, segments)
    except ValueError as error:
        raise TokenError(Flaw.MALFORMED, f"'{uri}' is not a URI that a token can be judged for: {error}.") from error


def _covers(resource: _Location, audience: _Location) -> bool:
    if not resource.host or resource.host != audience.host:
        return False
    if None not in (resource.port, audience.port) and resource.port != audience.port:
        return False
    return audience.segments[: len(resource.segments)] == resource.segments
