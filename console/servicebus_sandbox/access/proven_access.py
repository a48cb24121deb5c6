"""What tokens of every kind come down to: access to a path, with rights, until an end; or a refusal with its reason."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from servicebus_sandbox.broker.authorization_rules import Right


class Flaw(StrEnum):
    """What can be wrong with a token, by the names the service gives it."""

    MALFORMED = "MalformedToken"
    SIGNATURE = "InvalidSignature"
    EXPIRED = "ExpiredToken"
    AUDIENCE = "InvalidAudience"
    ISSUER = "InvalidIssuer"


class TokenError(Exception):
    """A token was refused. `reason` is for the client: the flaw and one sentence; it holds no key and no signature."""

    def __init__(self, flaw: Flaw, sentence: str) -> None:
        self.flaw = flaw
        self.reason = f"{flaw}: {sentence}"
        super().__init__(self.reason)


@dataclass(frozen=True, slots=True)
class ProvenAccess:
    """What a good token opens: `path` with everything below it. `expires_at` is in epoch seconds."""

    path: str
    rights: frozenset[Right]
    expires_at: float
