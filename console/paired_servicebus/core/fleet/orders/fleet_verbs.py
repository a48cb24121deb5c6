"""The columns of an action that concern the fleet. The rows are in core/operator/actions.py, which builds FLEET_VERBS.

The rules get that table as an argument, because the operator's package is above this one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum


class EnginesPerOrder(StrEnum):
    """How many engines one order of the fleet may address."""

    NONE = "none"
    ONE = "one"
    ANY = "any"


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetVerb:
    """What the rules need of an action."""

    id: str
    label: str
    scopes: tuple[str, ...]
    whole_scope: str
    """The scope without targets."""
    stands_for: str
    revokes: bool
    dangerous: bool
    confirms: str
    over: EnginesPerOrder

    @property
    def stands(self) -> bool:
        """Return whether the order holds until its end."""
        return bool(self.stands_for) and not self.revokes


FleetVerbs = Mapping[str, FleetVerb]
