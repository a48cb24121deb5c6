"""The log records of a pairing's thread, written on another one.

An application's log handler may block, or send its record through the pairing itself. On the pairing's thread it would
stop every send, or wait for itself. The records of that thread's libraries are therefore handed to a writer. Records of
other threads are written where they are made.
"""

from __future__ import annotations

import logging
import threading
import traceback
from queue import SimpleQueue
from typing import Final

LIBRARIES: Final = ("paired_servicebus", "servicebus_amqp", "azure", "asyncio", "aiohttp")
"""The loggers, with their children, that the pairing's thread uses."""
MAX_WAITING: Final = 10_000
"""Records that may wait while a handler blocks; later ones are counted and left out."""
CLOSING_SECONDS: Final = 1.0
"""Seconds in which the waiting records are written at the end."""

log = logging.getLogger(__name__)
_writers: Final[dict[int, LogWriter]] = {}
"""By the identifier of the thread whose records they write."""


class LogWriter:
    """The writer of one thread's records."""

    def __init__(self, name: str) -> None:
        self._waiting: SimpleQueue[logging.LogRecord | None] = SimpleQueue()
        self._left_out = 0
        self._owner = 0
        self._thread = threading.Thread(target=self._run, name=f"{name}'s log", daemon=True)

    def serve_this_thread(self) -> None:
        """Write the records of the calling thread from now on."""
        for name in [*logging.root.manager.loggerDict]:
            if name.partition(".")[0] in LIBRARIES:
                logging.getLogger(name).addFilter(_hand_over)  # a logger's children do not inherit its filters
        self._owner = threading.get_ident()
        self._thread.start()
        _writers[self._owner] = self

    def put(self, record: logging.LogRecord) -> None:
        """Have a record written."""
        if self._waiting.qsize() >= MAX_WAITING:
            self._left_out += 1
            return
        record.msg, record.args = record.getMessage(), None  # its arguments may change until then
        self._waiting.put(record)

    def close(self) -> None:
        """Write what waits, for CLOSING_SECONDS at most, unless a handler blocks."""
        if _writers.pop(self._owner, None) is not None:
            self._waiting.put(None)
            self._thread.join(CLOSING_SECONDS)

    def _run(self) -> None:
        while (record := self._waiting.get()) is not None:
            self._write(record)
            if self._left_out:
                left_out, self._left_out = self._left_out, 0
                text = "%d log records of the pairing are missing: a log handler blocks"
                self._write(logging.LogRecord(log.name, logging.WARNING, __file__, 0, text, (left_out,), None))

    @staticmethod
    def _write(record: logging.LogRecord) -> None:
        try:
            logging.getLogger(record.name).handle(record)
        except Exception:  # noqa: BLE001 - a foreign handler may raise anything; the next record is written all the same
            if logging.raiseExceptions:
                traceback.print_exc()


def _hand_over(record: logging.LogRecord) -> bool:
    """Return whether a record is written by its own thread; hand it to that thread's writer if it has one."""
    writer = _writers.get(threading.get_ident())
    if writer is not None:
        writer.put(record)
    return writer is None
