"""Tokens for `$cbs`: from a key, from a ready signature, or from Microsoft Entra ID; and when the next one is due.

The credential is asked anew for each token, so that a key, signature or secret changed in place counts from the next
renewal or connection on. How a token is put is requests' and line's; nothing here is ever logged.
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
"""How long a token that we sign is good."""
_EARLY_SECONDS: Final = 300
_EARLY_SHARE: Final = 0.1
_UNKNOWN_LIFE: Final = 3600


@dataclass(frozen=True, slots=True)
class CbsToken:
    """expires_at: seconds since 1970. kind: as `$cbs` calls it."""

    text: str = field(repr=False)
    kind: str
    expires_at: float

    def renew_at(self, now: float) -> float:
        """When to have the next one: five minutes early, a tenth of a long life, half of a short one."""
        life = max(0.0, self.expires_at - now)
        return self.expires_at - max(_EARLY_SHARE * life, min(_EARLY_SECONDS, life / 2))


async def token_for(credential: Any, audience: str, *, now: float) -> CbsToken:
    """A token for an audience such as `sb://contoso.servicebus.windows.net/orders`.

    credential: as `ServiceBusClient` takes them. A `named_key` is signed with, a `signature` is used as it is, and
    `get_token` is called, awaited if it is a coroutine.

    Raises:
        WireAuthenticationError: the credential gives none; chained to its own error.
    """
    try:
        if (named := getattr(credential, "named_key", None)) is not None:
            return sign(audience, named[0], named[1], now + KEY_SECONDS)
        if (signature := getattr(credential, "signature", None)) is not None:
            return CbsToken(signature, SAS, _expiry_of(signature, now))
        return await _asked(credential, audience)
    except Exception as error:  # azure-identity and credentials of callers raise what they like
        raise WireAuthenticationError(
            f"{type(credential).__name__} gave no token for {audience}: {type(error).__name__}: {error}"
        ) from error


def sign(audience: str, key_name: str, key: str, expires_at: float) -> CbsToken:
    """A shared access signature over the audience: HMAC-SHA256 of its encoded form, a line feed and the expiry."""
    resource, expiry = quote_plus(audience), str(int(expires_at))
    digest = hmac.digest(key.encode(), f"{resource}\n{expiry}".encode(), sha256)
    signature = quote_plus(b64encode(digest))
    text = f"SharedAccessSignature sr={resource}&sig={signature}&se={expiry}&skn={quote_plus(key_name)}"
    return CbsToken(text, SAS, float(expiry))


async def _asked(credential: Any, audience: str) -> CbsToken:
    """As the SDK asks: keys of connection strings by audience, all others by the scope of Service Bus."""
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
