"""Reading the timeline: the listed events, the selected one, and the search for a time or a word.

An entry is selected by its number, so that new events move nothing; without a selection the newest is followed.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Final

from paired_servicebus.ui.state.log_entries import Log, LogEntry
from paired_servicebus.ui.state.row_order import has_all
from paired_servicebus.ui.state.view import TimelinePosition

_TIME: Final = re.compile(r"(?:(\d{4}-\d{2}-\d{2})[ T])?(\d{1,2}):(\d{2})(?::(\d{2}))?")


def entries(log: Log, words: str) -> Sequence[LogEntry]:
    """Return the entries that have all the words, oldest first."""
    wanted = words.casefold().split()
    return [entry for entry in log if has_all(_text(entry), wanted)] if wanted else log


def place_of(shown: Sequence[LogEntry], cursor: int | None) -> int:
    """Return the place of the selected entry, or of the one after it; -1 if nothing is shown."""
    if cursor is None:
        return len(shown) - 1
    return min(bisect_left(shown, cursor, key=lambda entry: entry.number), len(shown) - 1)


def move_cursor(log: Log, position: TimelinePosition, steps: int) -> TimelinePosition:
    """Return the selection further down; at the end it follows the newest event."""
    shown = entries(log, position.filter)
    return _at(position, shown, max(0, place_of(shown, position.cursor) + steps))


def set_filter(position: TimelinePosition, words: str) -> TimelinePosition:
    """Return the reading with only entries with these words, at the same time."""
    return replace(position, filter=words)


def go_to_time(log: Log, position: TimelinePosition, at: float) -> TimelinePosition:
    """Return the selection at the first entry from that time on."""
    shown = entries(log, position.filter)
    return _at(position, shown, next((place for place, entry in enumerate(shown) if entry.at >= at), len(shown) - 1))


def parse_time(text: str, now: float) -> float | None:
    """Return a UTC time from "14:02", "14:02:03" or "2026-11-20 14:02"; None if it is invalid.

    Without a day it is the latest such time before `now`.
    """
    match = _TIME.fullmatch(text.strip())
    if match is None:
        return None
    day, hour, minute, second = match.groups()
    today = datetime.fromtimestamp(now, UTC)
    try:
        base = datetime.fromisoformat(day).replace(tzinfo=UTC) if day else today
        wanted = base.replace(hour=int(hour), minute=int(minute), second=int(second or 0), microsecond=0)
    except ValueError:
        return None
    return (wanted - timedelta(days=1) if not day and wanted > today else wanted).timestamp()


def _at(position: TimelinePosition, shown: Sequence[LogEntry], place: int) -> TimelinePosition:
    last = place >= len(shown) - 1
    return replace(position, cursor=None if last else shown[place].number)


def _text(entry: LogEntry) -> str:
    return f"{entry.sentence.subject} {entry.text} {entry.kind}".casefold()
