"""Journals made by hypothesis: several engines, boots and pairings, subscriptions, sessions, gaps and duplicates."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from hypothesis import strategies as some

from paired_servicebus.core.model import pairing_events as e

Draw = Callable[[some.SearchStrategy[Any]], Any]
ENGINES = ("orders@web-1", "orders@web-1", "orders@web-2", "orders-drain@web-2", "stock@web-1", "odd")
ENTITIES = ("orders", "Orders", "news", "by-session")
KINDS = ("delivered", "diverted", "in doubt", "refused", "moved", "dead-lettered", "received", "received", "read")
SPAN = 4000
"""Seconds of the events' times."""


@some.composite
def journals(draw: Draw) -> list[e.Record]:
    """Records of some engines in any order, some of them twice; some are missing."""
    found: list[e.Record] = []
    is_at_rest = draw(some.booleans())
    for boot in range(draw(some.integers(1, 4))):
        engine = draw(some.sampled_from(ENGINES))
        events = sorted(draw(some.lists(_event(), max_size=14)), key=lambda event: event.at)
        if draw(some.booleans()):
            events.insert(0, _started(draw, events[0].at if events else 1.0))
        if is_at_rest and boot == 0:
            events += _tail(draw)
        if is_at_rest or draw(some.booleans()):
            events.append(e.EngineStopped(at=(events[-1].at if events else 1.0) + 0.5, reason="done"))
        records = [e.Record(engine=engine, boot=f"b{boot}", seq=seq, event=one) for seq, one in enumerate(events, 1)]
        gone = draw(some.sets(some.integers(1, 14), max_size=3)) if draw(some.integers(0, 3)) == 0 else set()
        found += [record for record in records if record.seq not in gone]
    found = [_at_its_own_time(record, index) for index, record in enumerate(found)]
    twice = draw(some.lists(some.sampled_from(found), max_size=3)) if found else []
    return list(draw(some.permutations(found))) + twice


def _tail(draw: Draw) -> list[e.Event]:
    """The queues' last readings, and a message that shows that receivers got past all others."""
    read = [
        e.QueueRead(
            at=SPAN + 100.0, queue=queue, depth=draw(some.integers(0, 1)), size_bytes=0, dead_lettered=0, scheduled=0
        )
        for queue in (0, 1)
    ]
    later = {"entity": "orders", "message_id": "later"}
    return [*read, e.Delivered(at=SPAN + 2000.0, **later), e.MessageReceived(at=SPAN + 2001.0, **later)]


def _started(draw: Draw, at: float) -> e.Event:
    pairing = draw(some.sampled_from(["orders", "orders", "stock", "shop"]))
    syphon = draw(some.booleans())
    return e.EngineStarted(
        at=at, pairing=pairing, primary="p", secondary=f"s-{pairing[:1]}", backlog_queues=2, syphon=syphon, version="1"
    )


def _at_its_own_time(record: e.Record, index: int) -> e.Record:
    """Two records at the same microsecond have no order, and the two judges may differ."""
    return replace(record, event=replace(record.event, at=record.event.at + index / 1000))


@some.composite
def _event(draw: Draw) -> e.Event:
    at = float(draw(some.integers(0, SPAN)))
    kind = draw(some.sampled_from(KINDS))
    if kind == "read":
        counts = {name: draw(some.integers(0, 2)) for name in ("queue", "depth", "dead_lettered", "scheduled")}
        return e.QueueRead(at=at, size_bytes=0, **counts)
    named = {"at": at, "entity": draw(some.sampled_from(ENTITIES)), "message_id": f"m{draw(some.integers(0, 7))}"}
    queue = draw(some.integers(0, 1))
    match kind:
        case "delivered":
            return e.Delivered(**named, is_scheduled=draw(some.sampled_from([None, None, None, True])))
        case "diverted":
            return e.Diverted(**named, queue=queue, key=draw(some.sampled_from([None, "web"])))
        case "in doubt":
            return e.InDoubt(**named, route="primary", reason="timeout")
        case "refused":
            return e.Refused(**named, reason="too large")
        case "moved":
            return e.Moved(**named, queue=queue)
        case "dead-lettered":
            return e.DeadLettered(**named, queue=queue, reason=draw(some.sampled_from(["poison", "expired"])))
        case "received":
            return _received(draw, named)
    return e.Warned(at=at, about="a", text="b")


def _received(draw: Draw, named: dict[str, Any]) -> e.Event:
    is_topic = named["entity"] == "news"
    session = draw(some.sampled_from(["kim", "lea"])) if named["entity"] == "by-session" else None
    return e.MessageReceived(
        **named,
        subscription=draw(some.sampled_from(["all", "ALL", "red"])) if is_topic else None,
        session=session,
        stream=session or draw(some.sampled_from(["", "s"])),
        number=draw(some.sampled_from([None, 1, 2, 3])),
        delivery_count=draw(some.sampled_from([None, 0, 1])),
    )
