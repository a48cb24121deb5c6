"""The result of judging a token: access to a path with rights and an end, or a refusal."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from servicebus_sandbox.broker.authorization_rules import Right


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
class ProvenAccess:
    """The access of a good token to `path` and everything below it. `expires_at` is in epoch seconds."""

    path: str
    rights: frozenset[Right]
    expires_at: float
