"""Tokens for `$cbs` from a key, a ready signature or Microsoft Entra ID, and the times of their renewal.

The credential is read again for each token, so that a key, signature or secret changed in place takes effect with the
next renewal or connection. Tokens are never logged.
"""

from __future__ import annotations

import hmac
import inspect
from base64 import b64encode
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any, Final
from urllib.parse import quote_plus

from paired_servicebus.core.errors import WireAuthenticationError
from paired_servicebus.pairing import sdk_internals

SAS: Final = "servicebus.windows.net:sastoken"
JWT: Final = "jwt"
SCOPE: Final = "https://servicebus.azure.net//.default"
KEY_SECONDS: Final = 3600
"""Lifetime of a token signed here."""
_EARLY_SECONDS: Final = 300
_EARLY_SHARE: Final = 0.1
_UNKNOWN_LIFE: Final = 3600


@dataclass(frozen=True, slots=True)
class CbsToken:
    """expires_at: seconds since 1970. kind: the token type of `$cbs`."""

    text: str = field(repr=False)
    kind: str
    expires_at: float

    def renew_at(self, now: float) -> float:
        """Return the time of renewal: five minutes early, a tenth of a long life, half of a short one."""
        life = max(0.0, self.expires_at - now)
        return self.expires_at - max(_EARLY_SHARE * life, min(_EARLY_SECONDS, life / 2))


async def token_for(credential: Any, audience: str, *, now: float) -> CbsToken:
    """Return a token for an audience such as `sb://contoso.servicebus.windows.net/orders`.

    credential: as for `ServiceBusClient`. A `named_key` signs, a `signature` is used unchanged, and `get_token` is
    called, and awaited if it is a coroutine.

    Raises:
        WireAuthenticationError: the credential returned no token; chained to its own error.
    """
    try:
        if (named := getattr(credential, "named_key", None)) is not None:
            return sign(audience, named[0], named[1], now + KEY_SECONDS)
        if (signature := getattr(credential, "signature", None)) is not None:
            return CbsToken(signature, SAS, _expiry_of(signature, now))
        return await _request_token(credential, audience)
    except Exception as error:  # azure-identity and callers' credentials raise any error
        raise WireAuthenticationError(
            f"{type(credential).__name__} gave no token for {audience}: {type(error).__name__}: {error}"
        ) from error


def sign(audience: str, key_name: str, key: str, expires_at: float) -> CbsToken:
    """Sign the audience with HMAC-SHA256 over its encoded form, a line feed and the expiry."""
    resource, expiry = quote_plus(audience), str(int(expires_at))
    digest = hmac.digest(key.encode(), f"{resource}\n{expiry}".encode(), sha256)
    signature = quote_plus(b64encode(digest))
    text = f"SharedAccessSignature sr={resource}&sig={signature}&se={expiry}&skn={quote_plus(key_name)}"
    return CbsToken(text, SAS, float(expiry))


async def _request_token(credential: Any, audience: str) -> CbsToken:
    """Request a token as the SDK does: connection strings' keys by audience, others by the Service Bus scope."""
    kind = sdk_internals.token_type(credential) or JWT
    given = credential.get_token(audience if kind == SAS else SCOPE)
    if inspect.isawaitable(given):
        given = await given
    return CbsToken(_text(given.token), kind, float(given.expires_on))


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value


def _expiry_of(signature: str, now: float) -> float:
    for part in signature.split("&"):
        name, _, value = part.partition("=")
        if name == "se":
            return float(value)
    return now + _UNKNOWN_LIFE
