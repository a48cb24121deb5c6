"""Journals made up for measurements: what an engine would write, as many events as wanted, with failovers in them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from paired_servicebus.core.model.pairing_events import (
    Delivered,
    Diverted,
    EngineStarted,
    Event,
    MessageReceived,
    Moved,
    OperationsCounted,
    PingAccepted,
    PingFailed,
    PingSent,
    QueueRead,
    Record,
    SendsCounted,
    StateChanged,
)
from paired_servicebus.engine.journal import records
from paired_servicebus.engine.journal.spool import CLOSED, SUFFIX

ENTITIES: Final = ("orders", "payments", "audit")
QUEUES: Final = 10
OUTAGE: Final = 300
"""Seconds between two beginnings of an outage; it lasts a third of that."""
FILE_LINES: Final = 64 * 1024


def events(count: int, *, per_second: int, start: float) -> Iterator[Event]:
    """So many events of an engine whose journal holds every message, `per_second` of its time."""
    yield EngineStarted(
        at=start,
        pairing="bench",
        primary="contoso",
        secondary="backup",
        backlog_queues=QUEUES,
        syphon=True,
        version="0",
    )
    made, second = 1, 0
    parked: list[tuple[str, str, int]] = []
    while made < count:
        for event in _second(second, start + second, per_second, parked):
            if made == count:
                return
            made += 1
            yield event
        second += 1


def _second(second: int, at: float, per_second: int, parked: list[tuple[str, str, int]]) -> Iterator[Event]:
    down = second % OUTAGE >= OUTAGE * 2 // 3
    yield from _changes(second, at, down=down)
    messages = (per_second - 10) // 2
    for index in range(messages):
        entity, name, when = ENTITIES[index % 3], f"m-{second}-{index}", at + index / messages
        if down:
            queue = index % QUEUES
            parked.append((entity, name, queue))
            yield Diverted(at=when, entity=entity, message_id=name, queue=queue)
        else:
            yield Delivered(at=when, entity=entity, message_id=name)
            yield MessageReceived(
                at=when + 0.001, entity=entity, message_id=name, stream=entity, number=second * 100_000 + index
            )
    if not down:
        for entity, name, queue in parked[: messages // 2]:
            yield Moved(at=at + 0.5, entity=entity, message_id=name, queue=queue)
            yield MessageReceived(at=at + 0.6, entity=entity, message_id=name, stream="late")
        del parked[: messages // 2]
    for entity in ENTITIES:
        route = "backlog/0" if down else "primary"
        yield SendsCounted(at=at + 1, entity=entity, route=route, accepted=messages // 3, failed=0, seconds=1.0)
    if second % 10 == 0:
        yield OperationsCounted(
            at=at + 1, sends=messages, parked=0, pings=0, receives=1, moves=0, settlements=0, sent_bytes=messages * 900,
            parked_bytes=0, moved_bytes=0,
        )  # fmt: skip
        yield QueueRead(at=at + 1, queue=0, depth=len(parked), size_bytes=0, dead_lettered=0, scheduled=0)


def _changes(second: int, at: float, *, down: bool) -> Iterator[Event]:
    into = second % OUTAGE - OUTAGE * 2 // 3
    for entity in ENTITIES:
        if into == 0:
            yield StateChanged(at=at, entity=entity, was="healthy", now="suspect", why="timeout")
            yield StateChanged(at=at, entity=entity, was="suspect", now="failed over", why="no send accepted for 1 s")
        elif down and into % 10 == 0:
            yield PingSent(at=at, entity=entity, number=into // 10)
            yield PingFailed(at=at, entity=entity, number=into // 10, reason="timeout", took=1.0)
        elif second and second % OUTAGE == 0:
            yield PingSent(at=at, entity=entity, number=99)
            yield PingAccepted(at=at, entity=entity, number=99, took=0.02)
            yield StateChanged(at=at, entity=entity, was="failed over", now="healthy", why="a ping was accepted")


def write_journal(
    folder: Path, count: int, *, per_second: int = 1000, start: float = 1_790_000_000.0, lines: int = FILE_LINES
) -> int:
    """A journal of so many events in whole files of so many lines; its bytes."""
    whole = folder / CLOSED
    whole.mkdir(parents=True, exist_ok=True)
    held: list[bytes] = []
    size = 0
    for seq, event in enumerate(events(count, per_second=per_second, start=start), start=1):
        held.append(records.encode(Record(engine="bench@here", boot="b0", seq=seq, event=event)))
        if len(held) == lines or seq == count:
            data = b"\n".join(held) + b"\n"
            size += (whole / f"bench@here-{seq:012d}{SUFFIX}").write_bytes(data)
            held.clear()
    return size
