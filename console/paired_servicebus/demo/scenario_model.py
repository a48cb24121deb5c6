"""The parts of a scenario as values: faults over time, captions, foreign messages, and expectations.

Times are shares of the duration, so that one script fits a minute and a quarter of one. The scripts are in `scenarios`;
`player` performs them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from paired_servicebus.core.model.envelope import PATH, SCHEDULED, TIME_TO_LIVE
from paired_servicebus.core.model.policy import Policy

DRAIN_WITHIN: Final = 60.0
"""Seconds after the last send in which everything has to have arrived."""
LEAST_DURATION: Final = 15.0

QUEUES: Final = 5

POLICY: Final = Policy(
    backlog_queue_count=QUEUES,
    send_timeout=1.0,
    failover_interval=3.0,
    ping_primary_interval=2.0,
    ping_timeout=2.0,
    enable_syphon=True,
    journal="all",
    quiet_period=5.0,
)
"""The demo's own times: an outage of minutes in seconds."""

ORDERS: Final = "orders"
PAYMENTS: Final = "payments"
AUDIT: Final = "audit"
SUBSCRIPTION: Final = "all"
ENTITIES: Final = (ORDERS, PAYMENTS, AUDIT)

MALFORMED: Final[dict[str, dict[str | bytes, str | int]]] = {
    "no-destination": {},
    "empty-destination": {PATH: "/"},
    "destination-is-a-number": {PATH: 7},
    "time-to-live-is-a-text": {PATH: ORDERS, TIME_TO_LIVE: "soon"},
    "schedule-is-a-text": {PATH: ORDERS, SCHEDULED: "tomorrow"},
}
"""Application properties that cannot be translated back (SPEC.md section 8), by their defect."""

PRIMARY: Final = "primary"
SECONDARY: Final = "secondary"
BACKLOG_IN_USE: Final = "the backlog queue in use"
"""Stands for the backlog queue that took the latest message of orders when it was first spoken of."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultWindow:
    """A fault of the sandbox, from `begins` to `ends`."""

    fault: str
    """One of the sandbox's kinds."""
    begins: float
    ends: float
    namespace: str = PRIMARY
    entities: tuple[str, ...] = ()
    """None: the whole namespace."""
    operations: tuple[str, ...] = ()
    """None: all that the kind bears on."""
    delay: float | None = None
    """Seconds, for the kinds that delay."""


@dataclass(frozen=True, slots=True)
class Caption:
    """The caption from `at` on."""

    at: float
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """A script: its faults, the events to watch, and what is expected beyond the balance and an empty backlog."""

    name: str
    about: str
    """One line for the list."""
    mode: str
    """The failure mode it shows, in the words of SPEC.md section 10; empty: one that we added."""
    captions: tuple[Caption, ...]
    fails_over: tuple[str, ...] = ()
    """These at least once, and no others; every failed-over entity failed back."""
    dead_lettered: int = 0
    breaks: tuple[FaultWindow, ...] = ()
    poison: tuple[float, ...] = ()
    """When a program that is none of ours puts a message of each malformed kind into the first backlog queues."""
    policy: Policy = POLICY
