"""Moments of real plays, kept in files: what an engine said of itself, from which pictures are drawn.

A play depends on the machine's speed, a file does not: from the same moment comes the same picture, at any time. A file
holds lines of the control socket's protocol: the snapshot, the figures over time, then the events before it, oldest
first. A file without figures is read, too.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from paired_servicebus.core.errors import EngineNotRunningError, PairedError
from paired_servicebus.core.model.entity_state import State
from paired_servicebus.core.model.pairing_events import Record
from paired_servicebus.core.model.snapshot import Snapshot
from paired_servicebus.core.series.graphs import Graphs
from paired_servicebus.demo.pipeline_audit import make_tables
from paired_servicebus.demo.runner import print_nothing, relay_lines, worker_process
from paired_servicebus.demo.worker_protocol import PlayRequest
from paired_servicebus.engine.control import protocol
from paired_servicebus.engine.control.control_client import ControlClient
from paired_servicebus.engine.journal import records
from paired_servicebus.ui.state import incident_history
from paired_servicebus.ui.state.incident_history import IncidentHistory

DURATION: Final = 60.0
SEED: Final = 7
START_TIMEOUT: Final = 20.0
CAPTURE_TIMEOUT: Final = 60.0
MAX_EVENTS: Final = 200
"""Events kept before a moment: more than any screen shows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CapturePoint:
    """The first snapshot of a scenario for which `worth_it` holds."""

    name: str
    scenario: str
    worth_it: Callable[[Snapshot], bool]
    with_past: bool = False
    """Whether what the pipeline's tables hold after the play is kept, too; needs Spark."""


@dataclass(frozen=True, slots=True)
class Capture:
    """What a file holds."""

    snapshot: Snapshot
    records: tuple[Record, ...]
    past: IncidentHistory | None = None
    graphs: Graphs | None = None


def play(moment: CapturePoint, target: Path) -> None:
    """Play the scenario until the moment has come, and keep it in `target`.

    Raises:
        PairedError: it did not come.
    """
    with tempfile.TemporaryDirectory(prefix="paired-demo-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        socket = folder / "engine.sock"
        order = PlayRequest(
            scenario=moment.scenario, duration=DURATION, seed=SEED, folder=str(folder), socket=str(socket)
        )
        with worker_process(order, folder) as worker:
            kept = asyncio.run(_awaited(moment, socket))
            if moment.with_past:
                relay_lines(worker, print_nothing)
        if moment.with_past:
            make_tables(order)
            past = incident_history.read_history(order.tables, "")
            _past_of(target).write_bytes(msgspec.json.format(msgspec.json.encode(past)) + b"\n")
    graphs = [] if kept.graphs is None else [protocol.encode(protocol.GraphsSent(kept.graphs))]
    lines = [protocol.encode(protocol.SnapshotSent(kept.snapshot)), *graphs, *map(records.encode, kept.records)]
    target.write_bytes(b"".join(line.rstrip(b"\n") + b"\n" for line in lines))


def read(source: Path) -> Capture:
    """What `play` kept.

    Raises:
        ControlProtocolError, UnreadableLineError, msgspec.DecodeError: the file holds something else.
        OSError: it cannot be read.
    """
    first, *rest = source.read_bytes().splitlines()
    sent = protocol.decode_from_engine(first)
    if not isinstance(sent, protocol.SnapshotSent):
        raise protocol.ControlProtocolError(f"{source} does not begin with a snapshot; play it again")
    graphs = _graphs_of(rest[0]) if rest else None
    known = (records.decode(line) for line in (rest if graphs is None else rest[1:]))
    beside = _past_of(source)
    past = msgspec.json.decode(beside.read_bytes(), type=IncidentHistory) if beside.exists() else None
    return Capture(sent.snapshot, tuple(record for record in known if record is not None), past, graphs)


def _graphs_of(line: bytes) -> Graphs | None:
    """The figures over time; None: the line holds something else, as in a file without them."""
    try:
        sent = protocol.decode_from_engine(line)
    except protocol.ControlProtocolError:
        return None
    return sent.graphs if isinstance(sent, protocol.GraphsSent) else None


def _past_of(moment: Path) -> Path:
    return moment.with_suffix(".past.json")


async def _awaited(moment: CapturePoint, socket: Path) -> Capture:
    client = await _connected(socket)
    before: deque[Record] = deque(maxlen=MAX_EVENTS)
    try:
        async with asyncio.timeout(CAPTURE_TIMEOUT):
            async for update in client.updates():
                if isinstance(update, Record):
                    before.append(update)
                elif isinstance(update, Snapshot) and moment.worth_it(update):
                    return Capture(update, tuple(before), graphs=await _graphs(socket))
    finally:
        await client.close()
    raise PairedError(f"{moment.scenario} ended, and {moment.name} had not come")


async def _graphs(socket: Path) -> Graphs:
    """All curves: the engine sends them to a client that shows them, once, when it connects."""
    client = await ControlClient.connect(socket, graphs=True)
    try:
        async for update in client.updates():
            if isinstance(update, Graphs) and update.whole:
                return update
    finally:
        await client.close()
    raise PairedError("the engine ended before it sent its curves")


async def _connected(socket: Path) -> ControlClient:
    async with asyncio.timeout(START_TIMEOUT):
        while True:
            try:
                return await ControlClient.connect(socket)
            except EngineNotRunningError:
                await asyncio.sleep(0.1)


# -- which moments there are ----------------------------------------------------------------------------------------

PARKED: Final = 150
"""Messages in the backlog that make a picture worth taking."""
CURVES_SECONDS: Final = 27.0
"""Seconds of an engine's run that make its curves worth looking at."""
SETTLE_SECONDS: Final = 3.0
"""Seconds after which all that follows from a queue's failure is there to see."""


def _parked(snapshot: Snapshot) -> int:
    return sum(queue.depth or 0 for queue in snapshot.queues)


def _all_failed_over(snapshot: Snapshot) -> bool:
    ran = snapshot.at - (snapshot.started_at or snapshot.at)
    failed_over = all(entity.state is State.FAILED_OVER for entity in snapshot.entities)
    return failed_over and ran >= CURVES_SECONDS and _parked(snapshot) >= PARKED


def _one_queue_gone(snapshot: Snapshot) -> bool:
    since = [queue.pulled_since for queue in snapshot.queues if queue.pulled_since is not None]
    return bool(since) and snapshot.at - min(since) > SETTLE_SECONDS and _parked(snapshot) >= PARKED


def _coming_home(snapshot: Snapshot) -> bool:
    home = all(entity.state is State.HEALTHY and entity.failbacks for entity in snapshot.entities)
    return home and snapshot.syphon.moved > 0


def _all_is_home(snapshot: Snapshot) -> bool:
    return _coming_home(snapshot) and not _parked(snapshot)


CAPTURE_POINTS: Final = (
    CapturePoint(name="outage", scenario="datacenter-outage", worth_it=_all_failed_over),
    CapturePoint(name="coming-home", scenario="datacenter-outage", worth_it=_coming_home),
    CapturePoint(name="afterwards", scenario="datacenter-outage", worth_it=_all_is_home, with_past=True),
    CapturePoint(name="backlog-queue-gone", scenario="backlog-queue-outage", worth_it=_one_queue_gone),
)
