"""The token node `$cbs`: a client puts a token for an audience, and is told whether it is good.

Tokens are told apart by what they look like, not by their declared type: clients write `jwt` beside shared access
signatures. Where a good token leads is kept in `grants`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from console.sandbox.addresses import path_of
from console.sandbox.conditions import Refusal, bad_argument
from console.sandbox.sas import PREFIX, SasError, verify

PUT_TOKEN = "put-token"


@dataclass(frozen=True, slots=True)
class Grant:
    """What a token opens: an audience's path, until `expires_at` (epoch seconds)."""

    path: str
    expires_at: float


def judge_token(properties: Mapping[str, Any], token: object, *, keys: Mapping[str, str], now: float) -> Grant:
    """What a put-token request grants. Raises Refusal: 400 for a malformed request, 401 for a bad token."""
    operation, audience = properties.get("operation"), properties.get("name")
    if operation != PUT_TOKEN:
        raise bad_argument(f"the token node knows the operation '{PUT_TOKEN}', not '{operation}'")
    if not isinstance(audience, str) or not isinstance(token, str):
        raise bad_argument("a put-token request needs 'name', the audience, and the token as a string value")
    if not token.startswith(PREFIX):
        raise _not_good("the token is no shared access signature")
    try:
        good = verify(token, audience=audience, keys=keys, now=now)
    except SasError as error:
        raise _not_good(error.reason) from error
    return Grant(path_of(audience), good.expires_at)


def _not_good(reason: str) -> Refusal:
    return Refusal("amqp:unauthorized-access", reason, 401)
