"""The columns of an action that concern the fleet. The rows are in core/operator/actions.py, which builds FLEET_VERBS.

The rules get that table as an argument, because the operator's package is above this one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NamedTuple


class EnginesPerOrder(StrEnum):
    """How many engines one order of the fleet may address."""

    NONE = "none"
    ONE = "one"
    ANY = "any"


class OverFleet(NamedTuple):
    """Whether an action is allowed over the fleet, and its words in the answer.

    past: follows the targets ("forced"); whole: the subject of an order without targets ("syphon").
    """

    engines: EnginesPerOrder = EnginesPerOrder.NONE
    past: str = ""
    whole: str = ""


NOT_OVER_FLEET: Final = OverFleet()


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
    over: OverFleet

    @property
    def stands(self) -> bool:
        """Return whether the order holds until its end."""
        return bool(self.stands_for) and not self.revokes


FleetVerbs = Mapping[str, FleetVerb]
