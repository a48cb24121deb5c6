"""The one place where commands are executed; screens and command lines only ask it.

What can be commanded is a row of VERBS. The guard checks the order, then writes the audit line and waits until it is
on disk, then acts, then writes what came of it: an engine killed in between leaves an audit line without an end, which
reads as "outcome unknown". If the disk takes no line the act is done all the same, since in an incident the act
matters more, and the answer says that the audit is not written.

Read-only is enforced here, so that no way in can go round it; what it refuses is audited too.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol

from console.core.errors import PairedError
from console.core.events import Commanded, CommandEnded, Event
from console.engine.protocol import Command, CommandDone
from console.engine.steered import Steered

log = logging.getLogger(__name__)


class Audit(Protocol):
    """Where audit lines go."""

    @property
    def trouble(self) -> str:
        """Why lines are not written at present; empty if they are."""

    def record(self, event: Event) -> int:
        """Writes an event; its number in this boot."""

    async def sync(self) -> bool:
        """Waits until what was written is on disk; whether it is."""


@dataclass(frozen=True, slots=True)
class Reach:
    """What commands act on: the pairing, and the engine that can be told to end (with a reason)."""

    paired: Steered
    end: Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Verb:
    """A command. `dangerous`: a screen asks before it orders this. `act` returns what came of it, as a sentence."""

    name: str
    dangerous: bool
    needs_target: bool
    act: Callable[[Reach, Command], str]


def _force(reach: Reach, order: Command) -> str:
    return reach.paired.force(order.target, by=order.by, why=order.why)


def _release(reach: Reach, order: Command) -> str:
    return reach.paired.release(order.target, by=order.by, why=order.why)


def _pin(reach: Reach, order: Command) -> str:
    return reach.paired.pin(order.target, by=order.by, why=order.why)


def _pause(reach: Reach, order: Command) -> str:
    return reach.paired.pause_syphon(by=order.by, why=order.why)


def _resume(reach: Reach, order: Command) -> str:
    return reach.paired.resume_syphon(by=order.by, why=order.why)


def _stop(reach: Reach, order: Command) -> str:
    reach.end(f"stopped by {order.by}" + (f': "{order.why}"' if order.why else ""))
    return "the engine ends in order: sends in hand finish, locks are released"


VERBS: Final = {
    verb.name: verb
    for verb in (
        Verb(name="force", dangerous=True, needs_target=True, act=_force),
        Verb(name="release", dangerous=True, needs_target=True, act=_release),
        Verb(name="pin", dangerous=True, needs_target=True, act=_pin),
        Verb(name="pause-syphon", dangerous=False, needs_target=False, act=_pause),
        Verb(name="resume-syphon", dangerous=False, needs_target=False, act=_resume),
        Verb(name="stop", dangerous=True, needs_target=False, act=_stop),
    )
}


class Guard:
    """Executes commands, one at a time per console that asks."""

    def __init__(self, reach: Reach, audit: Audit, *, read_only: bool, clock: Callable[[], float]) -> None:
        self._reach = reach
        self._audit = audit
        self._read_only = read_only
        self._clock = clock

    async def execute(self, order: Command) -> CommandDone:
        """Does what is ordered, or says why not. Never raises."""
        fault = self._fault(order)
        if fault:
            return CommandDone(id=order.id, ok=False, text=fault)
        seq = self._audit.record(
            Commanded(at=self._clock(), command=order.verb, target=order.target, by=order.by, why=order.why)
        )
        on_disk = await self._audit.sync()
        ok, outcome = self._act(order)
        self._audit.record(CommandEnded(at=self._clock(), command_seq=seq, outcome=outcome))
        if not on_disk:
            outcome += f" (the audit is not written: {self._audit.trouble})"
        return CommandDone(id=order.id, ok=ok, text=outcome)

    def _fault(self, order: Command) -> str:
        """What is wrong with the order itself; empty if nothing is."""
        verb = VERBS.get(order.verb)
        if verb is None:
            return f"there is no command {order.verb!r}; there are {', '.join(VERBS)}"
        if not order.by.strip():
            return f"{verb.name} needs the name of who orders it"
        if not verb.needs_target:
            return f"{verb.name} takes no target, and {order.target!r} was named" if order.target else ""
        known = [view.path for view in self._reach.paired.entity_views()]
        if order.target.casefold() in (path.casefold() for path in known):
            return ""
        named = f"this engine has no entity {order.target!r}" if order.target else f"{verb.name} needs an entity"
        return f"{named}; it has {', '.join(known) or 'none'}"

    def _act(self, order: Command) -> tuple[bool, str]:
        if self._read_only:
            return False, f"refused: this engine is read-only, and {order.verb} changes something"
        try:
            return True, VERBS[order.verb].act(self._reach, order)
        except PairedError as error:
            return False, str(error)
        except Exception as error:
            log.exception("the command %s failed", order.verb)
            return False, f"{order.verb} failed in the engine ({type(error).__name__}: {error}); its log says where"
