"""The scripted outages, as data: which fault is switched on where, and what there is to see."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from console.core.errors import ConfigurationError
from console.core.options import Policy

BEGINS: Final = 0.15
ENDS: Final = 0.55
"""The fault lasts from here to there, as shares of the duration."""
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """A fault of the primary namespace, and the captions while it is played (at most 58 characters: 80 columns)."""

    name: str
    fault: str
    entity: str | None
    before: str
    during: str
    after: str


SCENARIOS: Final = (
    Scenario(
        name="datacenter-outage",
        fault="black-holed",
        entity=None,
        before="all is well; soon the data centre goes silent",
        during="the data centre is silent: sends go to the backlog",
        after="it answers again: sends return, the backlog drains",
    ),
    Scenario(
        name="node-outage",
        fault="refused",
        entity=ORDERS,
        before="all is well; soon the node of orders restarts",
        during="the node of orders is down: orders alone fails over",
        after="the node is back: orders returns, its backlog drains",
    ),
    Scenario(
        name="throttling",
        fault="busy",
        entity=None,
        before="all is well; soon the primary is throttled",
        during='"server busy": senders wait, nothing fails over',
        after="no longer throttled: sends go on",
    ),
)


def scenario_named(name: str) -> Scenario:
    """The scenario called `name`.

    Raises:
        ConfigurationError: there is none.
    """
    for scenario in SCENARIOS:
        if scenario.name == name:
            return scenario
    known = ", ".join(scenario.name for scenario in SCENARIOS)
    raise ConfigurationError(f"there is no scenario {name!r}; there are: {known}")
