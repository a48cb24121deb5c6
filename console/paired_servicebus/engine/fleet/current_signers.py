"""The file of operators as it is now: read before each verification, so that a removed operator loses the right.

    the file now                             what an engine does
    has other lines                          judges every order on the board again, as an engine that starts: an order
                                             that stands by a removed key is undone, one by an added key is taken up
    cannot be read, is broken or unusable    looks only: no new order counts, whoever signed it, with an alarm while it
                                             lasts; what stands here stays until its end
    is usable again                          judges every order on the board again

Not kept: the last good file, because it could hold a key that was revoked. Not undone: what stands, because a file that
cannot be read proves no removal, and a namespace may be down meanwhile. `valid-before` in a line ends a key's right
without an end of what it ordered before.

The file is read whole each time. A change counts once two readings agree, because an editor may write it in parts.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from paired_servicebus.core.errors import ConfigurationError
from paired_servicebus.core.fleet.fleet_documents import Order, Signer, Unverified
from paired_servicebus.core.operator.notifications import ALARM
from paired_servicebus.core.text.untrusted_text import repeated
from paired_servicebus.engine.fleet.order_signatures import verify
from paired_servicebus.engine.fleet.signers_file import Signers, read_signers
from paired_servicebus.extras import DISTRIBUTION

READ_SECONDS: Final = 2.0
SETTLE_SECONDS: Final = 0.2
"""Seconds between two readings that have to agree."""
MAX_READINGS: Final = 5


class CurrentSigners:
    """The operators of one engine.

    Args:
        path: the file of operators; None: none is configured, so the engine looks only.
        warn: called with a subject and a sentence for the operator.

    changed: called with the file's new hash; empty: the file is unusable.
    """

    def __init__(self, path: Path | None, *, warn: Callable[[str, str], object]) -> None:
        self.changed: Callable[[str], object] = lambda _hash: None
        self._path, self._warn = path, warn
        self._found: Signers | str = ""
        """The file's content, or why it is unusable."""
        self._reading: asyncio.Future[Signers | str] | None = None
        self._lock = asyncio.Lock()

    async def load(self) -> None:
        """Read the file for the first time."""
        if self._path is None:
            return
        self._found = await self._read(self._path)
        if isinstance(self._found, str):
            self._warn("fleet", self._found)
        else:
            self._report_skipped(self._found, ())

    async def refresh(self) -> None:
        """Read the file again; report a change."""
        if self._path is None:
            return
        async with self._lock:
            found = await self._read(self._path)
            if found == self._found:
                return
            found = await self._settle(self._path, found)
            before, self._found = self._found, found
        if found != before:
            self._report(before, found)
            self.changed(self.hash)

    def verify(self, order: Order, at: float) -> Signer | Unverified:
        """Return who signed an order, by the file as it was read last. It raises nothing."""
        if self.trouble:
            return Unverified(why=self.trouble, is_unknown=True)
        return verify(order.signed, order.signature, self.signers, at=at)

    @property
    def signers(self) -> Signers | None:
        """Return the operators; None: the engine looks only."""
        return self._found if isinstance(self._found, Signers) else None

    @property
    def hash(self) -> str:
        """Return the hash of the file; empty: the engine looks only."""
        return self._found.hash if isinstance(self._found, Signers) else ""

    @property
    def trouble(self) -> str:
        """Return why the configured file is unusable; empty: it is usable, or none is configured."""
        return self._found if isinstance(self._found, str) else ""

    @property
    def alarm(self) -> str:
        """Return the alarm for the operator; empty: none."""
        return _alarm(self.trouble) if self.trouble else ""

    async def _read(self, path: Path) -> Signers | str:
        """Read the file off the event loop. One that hangs, as on a network's file system, occupies one thread."""
        if self._reading is None:
            self._reading = asyncio.ensure_future(asyncio.to_thread(_read_now, path))
        await asyncio.wait({self._reading}, timeout=READ_SECONDS)
        if not self._reading.done():
            return f"look only: {path} was not read within {READ_SECONDS:g} s"
        reading, self._reading = self._reading, None
        return reading.result()

    async def _settle(self, path: Path, found: Signers | str) -> Signers | str:
        for _ in range(MAX_READINGS):
            await asyncio.sleep(SETTLE_SECONDS)
            again = await self._read(path)
            if again == found:
                return found
            found = again
        return f"look only: {path} changed between {MAX_READINGS} readings: write it once"

    def _report(self, before: Signers | str, found: Signers | str) -> None:
        if isinstance(found, str):
            if isinstance(before, str):
                self._warn(ALARM, f"over: {_alarm(before)}")
            self._warn(ALARM, _alarm(found))
            return
        if isinstance(before, str):
            self._warn(ALARM, f"over: {_alarm(before)}")
            self._warn("fleet", "the file of operators is usable again; every order on the board is judged again")
        else:
            self._warn(
                "fleet", f"the file of operators changed{_difference(before, found)}; every order is judged again"
            )
        self._report_skipped(found, before.skipped if isinstance(before, Signers) else ())

    def _report_skipped(self, found: Signers, before: tuple[str, ...]) -> None:
        for text in found.skipped:
            if text not in before:
                self._warn("fleet", text)


def _read_now(path: Path) -> Signers | str:
    if find_spec("cryptography") is None:
        return f"look only: orders need cryptography: pip install '{DISTRIBUTION}[fleet]'"
    try:
        return read_signers(path)
    except ConfigurationError as error:
        return str(error)


def _alarm(trouble: str) -> str:
    return f"{trouble}; no new order of the fleet counts here, and what stands stays until its end"


def _difference(before: Signers, found: Signers) -> str:
    """Return "; added ann; removed bob", by lines: a changed option is both."""
    added = [one.principals for one in found.lines if one not in before.lines]
    removed = [one.principals for one in before.lines if one not in found.lines]
    parts = (f"; {word} {repeated(', '.join(who))}" for word, who in (("added", added), ("removed", removed)) if who)
    return "".join(parts)
