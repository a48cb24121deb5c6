"""Earlier engines' timeline and unfinished commands, replayed from their journal after a restart.

Time, bytes and number are limited, so a journal of any size costs a moment. Call this in a thread. Lines of kinds that
consoles do not receive are skipped undecoded, because a busy outage has thousands of them.

A command's audit line is on disk before its execution (guard.py). Without an outcome in the newest boot, the command
may have been executed wholly, partly or not: the next engine reports "outcome unknown".
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Final

from paired_servicebus.core.model.pairing_events import Commanded, CommandEnded, Record
from paired_servicebus.core.text.time_format import clock
from paired_servicebus.engine.journal.reader import files_of, kind_of, newest_lines
from paired_servicebus.engine.journal.records import UnreadableLines

REPLAY_SECONDS: Final = 3600.0
"""Seconds that are looked back."""
MAX_REPLAY_BYTES: Final = 16 * 1024 * 1024
"""Of the journal, the newest, that are looked into."""


def replay_records(
    spool: Path, *, besides: str, since: float, most: int, untold: Collection[str], unread: UnreadableLines
) -> tuple[tuple[Record, bytes], ...]:
    """Return the newest records that consoles received, oldest first, each with its line.

    Args:
        spool: the journal's folder.
        besides: the boot of the caller, whose own records are left out.
        since: seconds since the epoch; older records are left out.
        most: the maximum number of records.
        untold: kinds of events that consoles do not receive.
        unread: collects unreadable lines.

    Raises:
        OSError: the journal cannot be read.
    """
    passed_over = frozenset(kind.encode() for kind in untold)
    found: list[tuple[Record, bytes]] = []
    for path, at, line in newest_lines(spool, most_bytes=MAX_REPLAY_BYTES, since=since, with_open=False):
        record = None if not line or kind_of(line) in passed_over else unread.decode(path, at, line)
        if record is None or record.boot == besides or record.event.at < since:
            continue
        found.append((record, line))
        if len(found) >= most:
            break
    return tuple(reversed(found))


COMMAND_MARK: Final = b'"kind":"command'
MAX_FILES: Final = 64
"""Newest files of a boot that are read: half a gigabyte at most, and an act is minutes old at its end."""


def unfinished(spool: Path, unread: UnreadableLines) -> tuple[str, ...]:
    """Return a sentence for each unfinished command of the newest boot. `unread` collects unreadable lines.

    Raises:
        OSError: the journal cannot be read.
    """
    open_acts: dict[int, Commanded] = {}
    for seq, event in _commands(_newest_boot(spool), unread):
        if isinstance(event, Commanded):
            open_acts[seq] = event
        else:
            open_acts.pop(event.command_seq, None)
    return tuple(_describe(event) for event in open_acts.values())


def _describe(event: Commanded) -> str:
    target = f" {event.target}" if event.target else ""
    why = f' "{event.why}"' if event.why else ""
    return (
        f"outcome unknown: {event.command}{target}, ordered {clock(event.at)} by {event.by}{why}: the engine ended "
        "before its outcome was written; check the state"
    )


def _newest_boot(spool: Path) -> list[Path]:
    """Return the newest boot's last files. A boot's files share their name up to the number of their first line."""
    files = files_of(spool)
    newest = files[-1].name.rpartition("-")[0] if files else ""
    return [file for file in files if file.name.rpartition("-")[0] == newest][-MAX_FILES:]


def _commands(files: list[Path], unread: UnreadableLines) -> Iterator[tuple[int, Commanded | CommandEnded]]:
    for file in files:
        with file.open("rb") as lines:
            end = 0
            for line in lines:
                end += len(line)
                if COMMAND_MARK not in line:
                    continue
                record = unread.decode(file, end - len(line), line.rstrip(b"\n"))
                if record is not None and isinstance(record.event, Commanded | CommandEnded):
                    yield record.seq, record.event
