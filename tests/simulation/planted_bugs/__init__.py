"""Deliberate mistakes, to show that the checks can fail. Shipped code knows none of them.

Each must be caught within `WITHIN` seeds; the rules as shipped must pass.

    bug              one mistake, and how it gets into a run
    pump_bugs        mistakes in the shipped rules of pumps
    pairing_bugs     mistakes in the shipped rules of senders, entities and backlog queues
    adapter_bugs     mistakes in the World's adapters
"""

from __future__ import annotations

from typing import Final

from tests.simulation.planted_bugs.adapter_bugs import ADAPTER_BUGS
from tests.simulation.planted_bugs.bug import Bug
from tests.simulation.planted_bugs.pairing_bugs import PAIRING_BUGS
from tests.simulation.planted_bugs.pump_bugs import PUMP_BUGS

BUGS: Final[tuple[Bug, ...]] = (*PUMP_BUGS, *PAIRING_BUGS, *ADAPTER_BUGS)
SHIPPED_BUGS: Final = sum(bug.is_shipped for bug in BUGS)
"""Number of bugs in shipped rules."""
