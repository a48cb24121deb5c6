"""What tokens of every kind come down to: access to a path, with rights, until an end; or a refusal with its reason."""

from __future__ import annotations

from dataclasses import dataclass

from console.sandbox.broker.access import Right


class TokenError(Exception):
    """A token was refused. `reason` is one sentence for the client; it holds no key and no signature."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Access:
    """What a good token opens: `path` with everything below it. `expires_at` is in epoch seconds."""

    path: str
    rights: frozenset[Right]
    expires_at: float
