"""The scripts: every failure mode of SPEC.md section 10, and some that people have met. Data alone."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from paired_servicebus.core.errors import ConfigurationError
from paired_servicebus.core.model.envelope import PATH, SCHEDULED, TIME_TO_LIVE
from paired_servicebus.core.model.policy import Policy

# The parts of a scenario as values: faults over time, captions, foreign messages, and expectations.
#
# Times are shares of the duration, so that one script fits a minute and a quarter of one. The scripts are in
# `scenarios`; `player` performs them.

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


SCENARIOS: Final = (
    Scenario(
        name="datacenter-outage",
        about="the primary's data centre goes silent: everything fails over, and comes home",
        mode="unable to contact the primary at all",
        breaks=(FaultWindow(fault="black-holed", begins=0.15, ends=0.55),),
        captions=(
            Caption(0, "all is well; soon the data centre goes silent"),
            Caption(0.15, "the data centre is silent: sends time out"),
            Caption(0.3, "the data centre is silent: sends go to the backlog"),
            Caption(0.55, "it answers again: sends return, the backlog drains"),
        ),
        fails_over=ENTITIES,
    ),
    Scenario(
        name="node-outage",
        about="the node of one entity is down: that one alone fails over",
        mode="unable to send",
        breaks=(FaultWindow(fault="refused", begins=0.15, ends=0.55, entities=(ORDERS,)),),
        captions=(
            Caption(0, "all is well; soon the node of orders restarts"),
            Caption(0.15, "the node of orders is down: orders alone fails over"),
            Caption(0.55, "the node is back: orders returns, its backlog drains"),
        ),
        fails_over=(ORDERS,),
    ),
    Scenario(
        name="throttling",
        about="the primary is busy: senders wait, nothing fails over",
        mode="throttling",
        breaks=(FaultWindow(fault="busy", begins=0.15, ends=0.55),),
        captions=(
            Caption(0, "all is well; soon the primary is throttled"),
            Caption(0.15, '"server busy": senders wait, nothing fails over'),
            Caption(0.55, "no longer throttled: sends go on"),
        ),
    ),
    Scenario(
        name="node-restart",
        about="a node with two entities restarts, and is slow for a while afterwards",
        mode="unable to send",
        breaks=(
            FaultWindow(fault="refused", begins=0.15, ends=0.5, entities=(ORDERS, PAYMENTS)),
            FaultWindow(fault="latency", begins=0.5, ends=0.7, entities=(ORDERS, PAYMENTS), delay=0.3),
        ),
        captions=(
            Caption(0, "all is well; soon a node with two entities restarts"),
            Caption(0.15, "orders and payments are down, audit is on another node"),
            Caption(0.5, "the node is back, and slow: pings decide who returns"),
            Caption(0.7, "as quick as before: the backlog drains"),
        ),
        fails_over=(ORDERS, PAYMENTS),
    ),
    Scenario(
        name="entity-outage",
        about="three entities fail for three reasons: disabled, full, and silent",
        mode="unable to send",
        breaks=(
            FaultWindow(fault="disabled", begins=0.12, ends=0.5, entities=(ORDERS,)),
            FaultWindow(fault="full", begins=0.18, ends=0.56, entities=(PAYMENTS,)),
            FaultWindow(fault="black-holed", begins=0.24, ends=0.62, entities=(AUDIT,)),
        ),
        captions=(
            Caption(0, "all is well; soon each entity fails for its own reason"),
            Caption(0.12, "orders is disabled: it fails over, with the reason"),
            Caption(0.18, "payments is full: pings are refused as sends are"),
            Caption(0.24, "audit does not answer: three failovers, three reasons"),
            Caption(0.5, "orders is enabled again and returns by itself"),
            Caption(0.62, "all have recovered, one after another"),
        ),
        fails_over=ENTITIES,
    ),
    Scenario(
        name="namespace-refused",
        about="the primary refuses every connection",
        mode="unable to send",
        breaks=(FaultWindow(fault="refused", begins=0.15, ends=0.55),),
        captions=(
            Caption(0, "all is well; soon connections are refused"),
            Caption(0.15, "connections are refused: suspect, then failed over"),
            Caption(0.55, "connections are taken again: home, entity by entity"),
        ),
        fails_over=ENTITIES,
    ),
    Scenario(
        name="namespace-reset",
        about="the primary takes connections and resets them",
        mode="unable to send",
        breaks=(FaultWindow(fault="reset", begins=0.15, ends=0.55),),
        captions=(
            Caption(0, "all is well; soon connections break"),
            Caption(0.15, "connections are reset: sends under way are in doubt"),
            Caption(0.55, "connections are stable; duplicates are counted"),
        ),
        fails_over=ENTITIES,
    ),
    Scenario(
        name="cannot-receive",
        about="nobody can receive; sending goes on and nothing fails over",
        mode="unable to receive",
        breaks=(FaultWindow(fault="refused", begins=0.15, ends=0.55, operations=("receive", "settle")),),
        captions=(
            Caption(0, "all is well; soon all receivers fail"),
            Caption(0.15, "orders are taken, none processed: no reason to fail over"),
            Caption(0.55, "receivers are back and catch up"),
        ),
    ),
    Scenario(
        name="cannot-manage",
        about="management does not answer, and then an entity fails: it fails over all the same",
        mode="unable to manage",
        breaks=(
            FaultWindow(fault="black-holed", begins=0.1, ends=0.7, operations=("manage",)),
            FaultWindow(fault="black-holed", begins=0.1, ends=0.7, operations=("manage",), namespace=SECONDARY),
            FaultWindow(fault="refused", begins=0.2, ends=0.5, entities=(ORDERS,)),
        ),
        captions=(
            Caption(0, "all is well; soon management does not answer"),
            Caption(0.1, "depths cannot be read: they grey and show their age"),
            Caption(0.2, "now orders fails: failover needs no management"),
            Caption(0.5, "orders is back: ping and syphon need none either"),
            Caption(0.7, "management answers: depths are fresh again"),
        ),
        fails_over=(ORDERS,),
    ),
    Scenario(
        name="both-down",
        about="the secondary goes down as well: an honest error at once, recovery without a restart",
        mode="the secondary as well",
        breaks=(
            FaultWindow(fault="black-holed", begins=0.12, ends=0.6),
            FaultWindow(fault="refused", begins=0.32, ends=0.52, namespace=SECONDARY),
        ),
        captions=(
            Caption(0, "all is well; soon both namespaces are down"),
            Caption(0.12, "the primary is silent: sends go to the backlog"),
            Caption(0.32, "the secondary as well: senders get errors at once"),
            Caption(0.52, "the secondary is back: the backlog takes messages again"),
            Caption(0.6, "the primary too: nothing was restarted, nothing is lost"),
        ),
        fails_over=ENTITIES,
    ),
    Scenario(
        name="secondary-outage",
        about="only the secondary is down: senders do not notice",
        mode="",
        breaks=(FaultWindow(fault="refused", begins=0.15, ends=0.55, namespace=SECONDARY),),
        captions=(
            Caption(0, "all is well; soon the secondary is down"),
            Caption(0.15, "the secondary is down: sends go on, a failover would not"),
            Caption(0.55, "the secondary is back: ready to fail over again"),
        ),
    ),
    Scenario(
        name="accepted-but-late",
        about="the backlog accepts messages and shows them late: empty is not drained",
        mode="accepted but late by up to 15 min",
        breaks=(
            FaultWindow(fault="refused", begins=0.15, ends=0.5, entities=(ORDERS,)),
            FaultWindow(fault="late", begins=0.1, ends=0.5, namespace=SECONDARY, delay=10.0),
        ),
        captions=(
            Caption(0, "all is well; soon messages appear late"),
            Caption(0.15, "orders fails over, and its messages cannot be seen yet"),
            Caption(0.35, "the backlog looks empty: that does not mean drained"),
            Caption(0.5, "orders is back, and parked messages still appear"),
        ),
        fails_over=(ORDERS,),
    ),
    Scenario(
        name="backlog-queue-outage",
        about="one backlog queue refuses: it leaves the rotation, the others go on",
        mode="one backlog queue",
        breaks=(
            FaultWindow(fault="refused", begins=0.12, ends=0.65, entities=(ORDERS, AUDIT)),
            FaultWindow(fault="refused", begins=0.36, ends=0.55, namespace=SECONDARY, entities=(BACKLOG_IN_USE,)),
        ),
        captions=(
            Caption(0, "all is well; soon orders and audit fail over"),
            Caption(0.12, "orders and audit are down: each picks a backlog queue"),
            Caption(0.36, "that queue fails: the same send goes on with another"),
            Caption(0.55, "the queue is back: a probe returns it to the rotation"),
            Caption(0.65, "the entities are back: every queue drains"),
        ),
        fails_over=(ORDERS, AUDIT),
    ),
    Scenario(
        name="dying-backlog-queue",
        about="a backlog queue dies by degrees: slow, then silent, then disabled until the end",
        mode="",
        breaks=(
            FaultWindow(fault="refused", begins=0.12, ends=0.65, entities=(ORDERS, PAYMENTS)),
            FaultWindow(
                fault="latency", begins=0.32, ends=0.4, namespace=SECONDARY, entities=(BACKLOG_IN_USE,), delay=0.4
            ),
            FaultWindow(
                fault="acknowledgement-lost", begins=0.4, ends=0.5, namespace=SECONDARY, entities=(BACKLOG_IN_USE,)
            ),
            FaultWindow(fault="disabled", begins=0.5, ends=0.9, namespace=SECONDARY, entities=(BACKLOG_IN_USE,)),
        ),
        captions=(
            Caption(0, "all is well; soon a backlog queue dies by degrees"),
            Caption(0.12, "orders and payments are down and go to the backlog"),
            Caption(0.32, "one backlog queue is slow: its senders wait with it"),
            Caption(0.4, "it accepts messages without an answer: sent again"),
            Caption(0.5, "it is disabled: its messages wait, the others move"),
            Caption(0.65, "the primary is back: all but that queue drains"),
            Caption(0.9, "it is enabled again: the last messages come home"),
        ),
        fails_over=(ORDERS, PAYMENTS),
    ),
    Scenario(
        name="flapping",
        about="the primary comes and goes: two accepted pings in a row lead back",
        mode="",
        breaks=(
            FaultWindow(fault="refused", begins=0.1, ends=0.31),
            FaultWindow(fault="refused", begins=0.4, ends=0.56),
            FaultWindow(fault="refused", begins=0.67, ends=0.78),
        ),
        captions=(
            Caption(0, "all is well; soon the primary comes and goes"),
            Caption(0.1, "it is gone: everything fails over"),
            Caption(0.31, "back? two accepted pings in a row are asked for"),
            Caption(0.4, "gone again"),
            Caption(0.56, "back again"),
            Caption(0.67, "and gone once more"),
            Caption(0.78, "back to stay: the backlog drains"),
        ),
        policy=replace(POLICY, failback_pings=2),
        fails_over=ENTITIES,
    ),
    Scenario(
        name="poison-messages",
        about="malformed messages in the backlog are dead-lettered with a reason; the others pass",
        mode="",
        breaks=(FaultWindow(fault="refused", begins=0.12, ends=0.5, entities=(ORDERS,)),),
        poison=(0.3, 0.6),
        captions=(
            Caption(0, "all is well; soon a stranger sends to the backlog"),
            Caption(0.12, "orders is down: its messages are parked"),
            Caption(0.3, "a stranger parks messages that lead nowhere"),
            Caption(0.36, "each is dead-lettered with its reason, none is dropped"),
            Caption(0.5, "orders is back: its messages pass the poisoned ones"),
            Caption(0.6, "and a second helping"),
        ),
        fails_over=(ORDERS,),
        dead_lettered=2 * len(MALFORMED),
    ),
)


FLEET: Final = Scenario(
    name="fleet",
    about="eight engines, one cut off, one read-only: an order over all of them, and its release",
    mode="",
    captions=(),
)
"""Has a player of its own (paired_servicebus.demo.fleet_player), which waits for answers and not only for times."""
ANY_LANGUAGE: Final = Scenario(
    name="any-language",
    about="in a clone: senders in four languages go through a gateway, and notice no outage",
    mode="",
    captions=(
        Caption(0, "each sender has a connection string, and knows no more"),
        Caption(0.2, "the primary is gone: sends wait, then go to the backlog"),
        Caption(0.6, "it serves again: sends return, the backlog drains"),
    ),
    fails_over=(ORDERS,),
    policy=replace(POLICY, hold_until_failover=True, record_received=True),
)
"""Has a player of its own too, in a clone's tests/examples: its senders are programs."""
LISTED: Final = (*SCENARIOS, FLEET, ANY_LANGUAGE)
UNNUMBERED: Final = frozenset((ANY_LANGUAGE.name,))
"""The scenarios whose senders number no message: the application's lists do not know the order of sending."""


def scenario_named(name: str) -> Scenario:
    """Return the scenario called `name`. Raises ConfigurationError: there is none."""
    for scenario in LISTED:
        if scenario.name == name:
            return scenario
    known = ", ".join(scenario.name for scenario in LISTED)
    raise ConfigurationError(f"there is no scenario {name!r}; there are: {known}")


def scenario_list() -> str:
    """Every scenario in a line, for a person."""
    width = max(len(scenario.name) for scenario in LISTED)
    return "\n".join(f"{scenario.name:{width}}  {scenario.about}" for scenario in LISTED)
