"""The table of plays: of each its actors, the course of its faults, and the promises that it checks."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Final

from servicebus_sandbox import NamespaceSpec
from servicebus_sandbox.specs import MAX_CREDITS
from tests.stage.course import DEDUP
from tests.stage.director import Director
from tests.stage.plays import chaos, fleet, flood, gateway, languages, refused, runbooks, syphon, verbs

LEDGER: Final = "nothing accepted is lost, nothing arrives unsent, changed or dead-lettered, copies only in the windows"
WORKS: Final = "after each episode everything works with no restart but of the killed"
ENDS: Final = "all drains; all processes end in order, none by itself; no log has an error of ours"


@dataclass(frozen=True, slots=True, kw_only=True)
class Play:
    """One play. minutes: how long new trouble begins, by default. The rest but specs is of the ledger's verdict.

    promises: besides those of every play: the ledger's, and that no process is left.
    """

    perform: Callable[[Director, float, int], Awaitable[None]]
    actors: str
    course: str
    promises: Sequence[str]
    specs: Sequence[NamespaceSpec]
    minutes: float = 1.0
    send_timeout: float = 1.0
    calls_only: bool = False
    dedup: str = ""
    may_park: bool = False


_POISON: Final = (
    "good messages arrive within twice the time that they need alone",
    "all good messages arrive, each other one is delivered or dead-lettered with a printable reason, none waits",
    "the engine's loop is never busy for more than 100 ms at a time, by its processor time",
)

_CLEANED: Final = (
    "after each kill --clean deletes everything of the run and its record",
    "no other entity and no message of one changes",
)

PLAYS: Final[dict[str, Play]] = {
    "chaos": Play(
        perform=chaos.chaos,
        actors="an engine, 2 senders with engines of their own (some with a syphon), 2 receivers; queues with "
        "duplicate detection and sessions, a topic",
        course="rounds of every kind of fault of the sandbox, drawn by the seed: alone, mixed, with limits; both "
        "namespaces down; the secondary fails during an outage; kills while sending, while pinging and between the "
        "syphon's send and its completion; the syphon frozen, and the clock set, past the end of its locks",
        promises=(WORKS, ENDS, "an operator's order outlives its engine"),
        specs=chaos.SPECS,
        minutes=2.0,
        send_timeout=chaos.SEND_TIMEOUT,
        dedup=DEDUP,
    ),
    "gateway-chaos": Play(
        perform=gateway.gateway_chaos,
        actors="an engine with a gateway, 2 clients of the SDK, 2 receivers, up to 1,000 idle connections",
        course="kills of the engine and of clients in transfers; the primary refused, reset, silent; more than 64 MB "
        "for a silent primary; both namespaces down with full hands, and for longer than a "
        "send may last; beside each: deaf clients, halves of transfers, "
        "connections without a key",
        promises=(WORKS, ENDS, "lost connections come back", "memory stays below a bound and does not grow"),
        specs=chaos.SPECS,
        send_timeout=gateway.SEND_TIMEOUT,
        dedup=DEDUP,
    ),
    "two-engines": Play(
        perform=syphon.two_engines,
        actors="`paired up` and an application with a syphon, both on one backlog",
        course="a queue is refused, silent or disabled (by the seed), then healed",
        promises=(
            "no snapshot, event or alarm of either calls the syphon stuck",
            "each waits for the outage, and all drains",
            "all processes end in order, none by itself; no log has an error of ours",
        ),
        specs=syphon.TWO_SPECS,
        minutes=1.5,
        send_timeout=5.0,
    ),
    "poison": Play(
        perform=syphon.poison,
        actors="an application with a syphon",
        course="2,000 good messages in a backlog queue, alone and with every kind of poison among them, 7 times each",
        promises=_POISON,
        specs=syphon.POISON_SPECS,
        minutes=0.0,
    ),
    "fuzz-poison": Play(
        perform=syphon.poison_fuzz,
        actors="an application with a syphon",
        course="400 good messages and 400 kinds of poison damaged at random, round by round",
        promises=_POISON[1:],
        specs=syphon.POISON_SPECS,
    ),
    "flood": Play(
        perform=flood.flood,
        actors="a sandbox and an engine as processes with 1,024 descriptors each; a sender that parks all the time",
        course="2,000 connections that say nothing or half of something, on one server of ours after another: metrics, "
        "control socket, namespace (silent, AMQP, TLS), ARM, control URL",
        promises=(
            "the engine shows its state within a second, besides that for a core, and `paired status` works",
            "the journal and the syphon go on, the log stays small",
            ENDS,
        ),
        specs=(),
        minutes=0.15,
    ),
    "refused": Play(
        perform=refused.refused,
        actors="an application with an engine, 3 senders for each of a queue and a topic",
        course="both namespaces are lost twice, by faults and in an order that the seed chooses",
        promises=(
            "engine, snapshot and metrics count refused calls exactly as the application does, reasons add up",
            "view, alarm, status, metrics and on_change show it within 2 s of the first, besides those for a core",
        ),
        specs=refused.SPECS,
        minutes=0.0,
        may_park=True,
    ),
    "drill-kills": Play(
        perform=verbs.drill_kills,
        actors="`paired drill`, beside real entities of which some are called like a drill's",
        course="kills of the drill at random moments, every fourth in its first seconds",
        promises=_CLEANED,
        specs=verbs.SPECS,
        minutes=5.0,
    ),
    "verify-kills": Play(
        perform=verbs.verify_kills,
        actors="`paired verify`",
        course="kills of the experiments at random moments, every fourth in their first seconds",
        promises=_CLEANED,
        specs=verbs.SPECS,
        minutes=5.0,
    ),
}


_HOSTS: Final = "engines as processes (--engines), each as on a host of its own behind gates; consoles"
_FLEET: Final[dict[str, tuple[Callable[[Director, float, int], Awaitable[None]], str, Sequence[str]]]] = {
    "partition": (
        fleet.partition,
        "3 engines cut off, by silence and by resets, during an order; then healed",
        (
            "the console shows them as silent",
            "the verb refuses without --partial, and with it reports who is silent",
            "the others obey, those cut off do not; back, they obey within two looks, and a release reaches all",
        ),
    ),
    "order-kills": (
        fleet.order_kills,
        "kills of 4 engines at random moments of each of 6 orders, one right after its act",
        ("the next boot holds what is in force before its first send", "all do the order and none is silent"),
    ),
    "boot-kills": (
        fleet.boot_kills,
        "kills of 4 engines in each of 4 boots, before and while they apply what is in force",
        ("no first send goes to another side than that of the order", "all do the order and none is silent"),
    ),
    "cleaning-kills": (
        fleet.cleaning_kills,
        "kills of 2 engines while they delete posts that do not count, with others held",
        ("no post that counts is deleted", "the others clean on", "an order afterwards is done by all"),
    ),
    "posting-kills": (
        fleet.posting_kills,
        "kills of the engine that a console posts through, before a post and 8 times within one",
        (
            "an order on the board is done by all others, one that is not by none",
            "no console is told that an order is posted that is not",
        ),
    ),
    "throttled": (
        fleet.throttled,
        "all park through a secondary of 1,000 credits a second",
        ("a watched fleet costs parking at most 5 % of the credits",),
    ),
    "latency": (
        fleet.latency,
        "none; orders while it is watched and while it is not",
        ("95 % act within 10 s and answers are shown within 12 s, unwatched 65 s, on a machine with a free core",),
    ),
    "many": (fleet.many, "none; orders over 500 engines in one process", ("95 % act within 45 s",)),
    "netns": (
        fleet.netns,
        "the interface of an engine in a network namespace is down, then up (as root)",
        ("the console shows its host's name", "it is silent, does not obey, and obeys within two looks afterwards"),
    ),
}
PLAYS.update(
    {
        f"fleet-{name}": Play(
            perform=perform, actors=_HOSTS, course=course, promises=promises, minutes=0.0, may_park=True,
            specs=fleet.specs(MAX_CREDITS if name == "throttled" else None),
        )
        for name, (perform, course, promises) in _FLEET.items()
    }
)  # fmt: skip

_OUTAGES: Final = {"reset": "reset", "silent": "black-holed", "disabled": "disabled", "throttled": "busy"}
PLAYS.update(
    {
        f"languages-{name}": Play(
            perform=languages.outage(fault, fails_over=fault != "busy"),
            actors="an engine with a gateway, senders in Python, JavaScript, Java and Go with their own lists",
            course=f"the primary is {fault}; below a minute with short times of the engine",
            promises=(
                "no error from send, no connection lost, every call returns",
                "each sender has messages accepted late in the outage" if fault != "busy" else "nothing fails over",
                "copies only of calls that were under way as the outage began, or longer than an attempt",
            ),
            specs=languages.SPECS,
            minutes=1.0 if fault == "busy" else 1.5,
            send_timeout=languages.SEND_TIMEOUT,
            calls_only=True,
        )
        for name, fault in _OUTAGES.items()
    }
)

PLAYS.update(
    {
        f"silence-{interval}": Play(
            perform=languages.silence(interval),
            actors=f"an engine with a gateway and a failover interval of {interval} s; {languages.CROWD} senders in "
            "Python, in one process",
            course="the primary is silent for 45 s, with a call of each sender in flight",
            promises=(
                "no error from send, no connection lost, every call returns",
                "no message arrives twice, no healthy backlog queue is pulled or alarmed about",
            ),
            specs=languages.SPECS,
            minutes=0.75,
            send_timeout=languages.SEND_TIMEOUT,
            calls_only=True,
        )
        for interval in (10, 14, 15, 16, 20, 25)
    }
)
"""Around the whole time of a call less one attempt's limit: 25 s and 10 s at a gateway."""

PLAYS.update(
    {
        f"runbook-{performance.name}": Play(
            perform=runbooks.play_of(title),
            actors="an engine that the page's commands start and end, 2 applications with engines of their own",
            course=f"the runbook {title!r} of deploy/RUNBOOKS.md, step by step",
            promises=("each command shows what the page says", ENDS),
            specs=runbooks.SPECS,
            minutes=0.0,
            send_timeout=runbooks.SEND_TIMEOUT,
        )
        for title, performance in runbooks.RUNBOOKS.items()
    }
)


def chosen_plays(names: Sequence[str]) -> list[str]:
    """Return the plays of these names; a first word names all that begin with it. Raises KeyError: there is none."""
    found: list[str] = []
    for name in names:
        these = [name] if name in PLAYS else [one for one in PLAYS if one.startswith(f"{name}-")]
        if not these:
            raise KeyError(f"there is no play {name!r}; there are {', '.join(PLAYS)}")
        found += these
    return found
