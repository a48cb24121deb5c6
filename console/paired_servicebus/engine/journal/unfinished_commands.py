"""Commands of a killed engine whose audit lines have no outcome.

The audit line of a command is on disk before its execution (guard.py). Without an outcome, the command may have been
executed wholly, partly or not. The next engine reports "outcome unknown" at its start. Only commands of the journal's
newest boot are read.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from paired_servicebus.core.model.pairing_events import Commanded, CommandEnded
from paired_servicebus.core.text.time_format import clock
from paired_servicebus.engine.journal import records
from paired_servicebus.engine.journal.spool import CLOSED, OPEN, SUFFIX
from paired_servicebus.engine.journal.unreadable_lines import UnreadableLines

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
    files = [*(spool / CLOSED).glob(f"*{SUFFIX}"), *(spool / OPEN).glob(f"*{SUFFIX}")]
    boots = {file.name.rpartition("-")[0] for file in files}
    newest = max(boots, key=lambda boot: boot.rpartition("-")[2], default="")
    return sorted((file for file in files if file.name.rpartition("-")[0] == newest), key=_name)[-MAX_FILES:]


def _name(path: Path) -> str:
    return path.name


def _commands(files: list[Path], unread: UnreadableLines) -> Iterator[tuple[int, Commanded | CommandEnded]]:
    for file in files:
        with file.open("rb") as lines:
            end = 0
            for line in lines:
                end += len(line)
                if COMMAND_MARK not in line:
                    continue
                try:
                    record = records.decode(line.rstrip(b"\n"))
                except records.UnreadableLineError as error:  # torn by the crash, or changed on disk
                    unread.note(file, end - len(line), error)
                    continue
                if record is not None and isinstance(record.event, Commanded | CommandEnded):
                    yield record.seq, record.event
