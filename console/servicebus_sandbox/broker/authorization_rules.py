"""Authorization rules of an entity, and the rights that they give to holders of their keys.

Values only, checked when they are made (`InvalidSettings`). Not here: judging tokens.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum

from servicebus_sandbox.broker.broker_errors import InvalidSettings

MAX_RULES = 12
"""The limit of one entity or namespace."""


class Right(StrEnum):
    """A right, by its name in claims."""

    SEND = "Send"
    LISTEN = "Listen"
    MANAGE = "Manage"


ALL_RIGHTS = frozenset(Right)


@dataclass(frozen=True, slots=True, kw_only=True)
class AuthorizationRule:
    """A shared access rule: either of its two keys gives its rights, there and below.

    Raises InvalidSettings for no name, no right, Manage without Send and Listen, and a missing key.
    """

    name: str
    rights: frozenset[Right]
    primary_key: str = field(repr=False)
    secondary_key: str = field(repr=False)

    def __post_init__(self) -> None:
        if not self.name:
            raise InvalidSettings("an authorization rule has no name; give it one")
        if not self.rights:
            raise InvalidSettings(
                f"the authorization rule '{self.name}' gives no right; allowed are {', '.join(Right)}"
            )
        if Right.MANAGE in self.rights and self.rights != ALL_RIGHTS:
            raise InvalidSettings(
                f"the authorization rule '{self.name}' gives Manage; then it has to give Send and Listen"
            )
        if not self.primary_key or not self.secondary_key:
            raise InvalidSettings(f"the authorization rule '{self.name}' needs a primary and a secondary key")

    @property
    def keys(self) -> tuple[str, str]:
        return self.primary_key, self.secondary_key


def check_rules(rules: Iterable[AuthorizationRule]) -> None:
    """Raise InvalidSettings for more than MAX_RULES rules of one owner, or a repeated name."""
    names = [rule.name for rule in rules]
    if len(names) > MAX_RULES:
        raise InvalidSettings(f"there are {len(names)} authorization rules; allowed are up to {MAX_RULES}")
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise InvalidSettings(f"there are two authorization rules named '{twice[0]}'; give each a name of its own")
