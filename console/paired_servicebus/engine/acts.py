"""How each action of the table is done to a pairing: one function a row, and the sentence that says what came of it.

An act may fail with PairedError, or with what the SDK raises: the guard says so and ends the audit. It never asks
whether it may be done.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import Final, Protocol

from paired_servicebus.core.actions import Scope
from paired_servicebus.core.errors import DrainError
from paired_servicebus.engine.steered import Steered

Others = Callable[[Steered], Awaitable[frozenset[int]]]
"""The indices of the backlog queues that other known engines of the same namespaces use.

Raises:
    CleanUpError: one that may be of them does not say.
"""


async def nobody(_paired: Steered) -> frozenset[int]:
    """For an engine that knows no others."""
    return frozenset()


class Drains(Protocol):
    """What starts a drain, and ends one. Both raise DrainError."""

    async def start(self, *, why: str) -> str:
        """A sentence, once it is under way."""

    def end(self) -> str:
        """A sentence, once it was told to."""


@dataclass(slots=True)
class Reach:
    """What acts act on: the pairing, and the engine, which can be told to end (with a reason) or to be read-only."""

    paired: Steered
    end: Callable[[str], None]
    read_only: bool = False
    others: Others = nobody
    drains: Drains | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Deed:
    """One act on one target, by whom and why."""

    scope: Scope
    target: str
    by: str
    why: str = ""

    @property
    def queue(self) -> int | None:
        """The index, where the target is a backlog queue."""
        return int(self.target) if self.scope is Scope.QUEUE else None

    @property
    def destination(self) -> str:
        """The path, where the target is a destination; else empty."""
        return self.target if self.scope is Scope.DESTINATION else ""


Act = Callable[[Reach, Deed], Awaitable[str]]


async def _force(reach: Reach, deed: Deed) -> str:
    return reach.paired.force(deed.target, by=deed.by, why=deed.why)


async def _release(reach: Reach, deed: Deed) -> str:
    return reach.paired.release(deed.target, by=deed.by, why=deed.why)


async def _pin(reach: Reach, deed: Deed) -> str:
    return reach.paired.pin(deed.target, by=deed.by, why=deed.why)


async def _pause(reach: Reach, deed: Deed) -> str:
    return reach.paired.pause_syphon(by=deed.by, why=deed.why, queue=deed.queue, destination=deed.destination)


async def _resume(reach: Reach, deed: Deed) -> str:
    return reach.paired.resume_syphon(by=deed.by, why=deed.why, queue=deed.queue, destination=deed.destination)


async def _clean_up(reach: Reach, deed: Deed) -> str:
    return await reach.paired.clean_up(deed.target, elsewhere=partial(reach.others, reach.paired))


async def _redrive(reach: Reach, deed: Deed) -> str:
    return await reach.paired.redrive(int(deed.target))


async def _move_stranded(reach: Reach, deed: Deed) -> str:
    return await reach.paired.move_stranded(deed.target)


async def _drain(reach: Reach, deed: Deed) -> str:
    if reach.drains is None:
        raise DrainError("this engine starts no drain; the command does: paired drain")
    return await reach.drains.start(why=deed.why)


async def _end_drain(reach: Reach, _deed: Deed) -> str:
    if reach.drains is None:
        raise DrainError("this engine ends no drain; who started it does")
    return reach.drains.end()


async def _lock(reach: Reach, _deed: Deed) -> str:
    reach.read_only = True
    return "the engine is read-only: it takes no order but the one that makes it writable"


async def _unlock(reach: Reach, _deed: Deed) -> str:
    reach.read_only = False
    return "the engine takes orders again"


async def _stop(reach: Reach, deed: Deed) -> str:
    reach.end(f"stopped by {deed.by}" + (f': "{deed.why}"' if deed.why else ""))
    return "the engine ends in order: sends in hand finish, locks are released"


ACTS: Final[dict[str, Act]] = {
    "force": _force,
    "release": _release,
    "pin": _pin,
    "pause-syphon": _pause,
    "resume-syphon": _resume,
    "clean-up": _clean_up,
    "redrive": _redrive,
    "move-stranded": _move_stranded,
    "drain": _drain,
    "end-drain": _end_drain,
    "read-only": _lock,
    "read-write": _unlock,
    "stop": _stop,
}
"""By the action's id: every action of the table has one."""
