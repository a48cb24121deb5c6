"""The intervals of an engine's part in the fleet (FLEET.md section 4), and the bounds of an unsigned watch.

Each operation is billed, so idle engines look once a minute. A watch makes all of them faster. Anyone with Send on the
board can post one, so a watch is bounded: by its intervals, and by a daily number of operations.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from paired_servicebus.core.fleet.fleet_documents import PRESENCE_INTERVAL, Watch
from paired_servicebus.core.model.entity_state import State
from paired_servicebus.core.model.snapshot import Snapshot

LOOK_WELL: Final = 60.0
LOOK_NOT_WELL: Final = 10.0
LOOK_LEAST: Final = 5.0
REPORT_LEAST: Final = 15.0
LOOK_MOST: Final = 300.0
"""The longest interval that a reader accepts from a document, so that a hostile one cannot prolong a silence."""
ENGINES_PER_LOOK_SECOND: Final = 50.0
ENGINES_PER_REPORT_SECOND: Final = 8.0
CHANGE_FLOOR: Final = 5.0
"""Least seconds between two reports, however often the state changes."""
PRESENCE_FLOOR: Final = 60.0
"""Least seconds between two presences, however often the syphon changes."""
PRESENCE_WATCHED: Final = 600.0
"""Seconds between two presences while a watch is in force: older messages can be deleted, so new consoles read few."""
CAPPED_REPORT: Final = 300.0
"""Seconds between two reports of an engine whose daily operations for watches are used up."""
WATCH_OPERATIONS_A_DAY: Final = 30_000
"""A console that watches for a whole day at the fastest pace costs each engine about 25,000."""
WATCH_AGAIN: Final = 90.0
"""Seconds after which a watching engine posts its watch again; one ends after WATCH_SECONDS."""
READ_REPORTS: Final = 5.0
"""Seconds between two readings of the reports while this engine watches."""
READ_UNWATCHED: Final = 3600.0
READ_ASKED: Final = 60.0
"""Least seconds between two readings that an asking rule causes."""
CLEAN_WATCHED: Final = 60.0
CLEAN_UNWATCHED: Final = 3600.0
BUSY_SILENCE: Final = 10.0
"""Seconds without any operation after "server busy": parking has priority."""
REFUSED_SILENCE: Final = 600.0
"""Seconds until a post on the orders is tried again after the namespace refused the key."""
CHECK_EVERY: Final = 10
"""Looks after which one also peeks from number 1, to detect a queue that was deleted and created again."""

NOT_WELL: Final = frozenset({State.SUSPECT, State.FAILED_OVER, State.FORCED})
"""States that make an engine look faster. A pinned entity may stay so for weeks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchPace:
    """The pace that the watches in force ask for."""

    look: float
    report: float


def look_for(engines: int) -> float:
    """Return the seconds between two looks of each engine while this number of engines is watched."""
    return max(LOOK_LEAST, engines / ENGINES_PER_LOOK_SECOND)


def report_for(engines: int) -> float:
    """Return the seconds between two reports of each engine while this number of engines is watched."""
    return max(REPORT_LEAST, engines / ENGINES_PER_REPORT_SECOND)


def is_well(snapshot: Snapshot | None) -> bool:
    """Return whether no entity makes this engine look faster."""
    return snapshot is None or not any(entity.state in NOT_WELL for entity in snapshot.entities)


def watch_pace(watches: Sequence[Watch]) -> WatchPace | None:
    """Return the fastest pace of the watches, within the bounds; None: there are none."""
    if not watches:
        return None
    look = min(_bounded(watch.look, LOOK_LEAST) for watch in watches)
    return WatchPace(look=look, report=min(_bounded(watch.report, REPORT_LEAST) for watch in watches))


def look_interval(*, well: bool, watch: WatchPace | None, spent: int) -> float:
    """Return the seconds between two looks. spent: operations for watches today."""
    own = LOOK_WELL if well else LOOK_NOT_WELL
    return own if watch is None or spent >= WATCH_OPERATIONS_A_DAY else min(own, watch.look)


def report_interval(*, watch: WatchPace | None, spent: int) -> float | None:
    """Return the seconds between two reports; None: none are posted."""
    if watch is None:
        return None
    return watch.report if spent < WATCH_OPERATIONS_A_DAY else max(CAPPED_REPORT, watch.report)


def presence_interval(*, watch: WatchPace | None, spent: int) -> float:
    """Return the seconds between two presences of an engine in which nothing changes."""
    return PRESENCE_INTERVAL if watch is None or spent >= WATCH_OPERATIONS_A_DAY else PRESENCE_WATCHED


def change_floor(pace: float) -> float:
    """Return the least seconds between two reports of a changing engine."""
    return max(CHANGE_FLOOR, pace / 3)


def first_wait(interval: float, spread: float) -> float:
    """Return the seconds from the first look to the second. spread: from 0 up to 1, different for each engine."""
    return interval * min(max(spread, 0.0), 1.0) or interval


def _bounded(seconds: float, least: float) -> float:
    return min(max(seconds, least), LOOK_MOST) if seconds == seconds else LOOK_MOST  # NaN differs from itself
