"""Standing orders: forced, pinned, paused, read-only. They hold until revoked, beyond the end of their engine.

An operator who paused a failing destination relies on it, even if the engine is killed and restarted. Standing orders
are therefore stored beside the journal, and the next engine applies and reports them before its first pump moves a
message. In an application (`control=True`) orders end with the process, because its restart is a deployment; the next
one reports them. The guard stores them after the command.

Not here: permission (guard.py), and commands without a lasting effect.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Final

import msgspec

from paired_servicebus.core.errors import PairedError
from paired_servicebus.core.operator.action_row import Action
from paired_servicebus.core.operator.actions import BY_ID
from paired_servicebus.core.operator.targets import Scope, named
from paired_servicebus.core.text.time_format import day_and_clock
from paired_servicebus.core.text.untrusted_text import one_line, repeated
from paired_servicebus.durable_file import replace_file
from paired_servicebus.engine.commands.handlers import COMMAND_HANDLERS, CommandContext, CommandTarget
from paired_servicebus.foreign_json import read_json

MAX_SENTENCE_CHARS: Final = 500
"""Characters of an order in a sentence."""
_NAME: Final = "standing.json"


class StandingOrder(msgspec.Struct, frozen=True, kw_only=True):
    """One standing order, given at `at` (seconds since the epoch)."""

    action_id: str = msgspec.field(name="verb")
    scope: Scope
    target: str
    by: str
    at: float
    why: str = ""

    def __str__(self) -> str:
        target = named(self.scope, self.target)
        reason = f' "{self.why}"' if self.why else ""
        order = (
            f"{self.action_id}{f' {target}' if target else ''}, ordered {day_and_clock(self.at)} by {self.by}{reason}"
        )
        return one_line(order, most=MAX_SENTENCE_CHARS)

    @property
    def _subject_key(self) -> tuple[str, Scope, str]:
        return BY_ID[self.action_id].stands_for, self.scope, self.target.casefold()


_ORDERS: Final = msgspec.json.Decoder(tuple[StandingOrder, ...])


class StandingOrders:
    """The orders that stand in one engine, and the file that keeps them.

    Args:
        spool: the journal's folder; it need not be there yet.
    """

    def __init__(self, spool: Path) -> None:
        self._file = spool / _NAME
        self._standing: tuple[StandingOrder, ...] = ()
        self._writing = asyncio.Lock()

    def read(self) -> tuple[StandingOrder, ...]:
        """Return the previous engine's standing orders, oldest first. None of them holds until `note` adds it.

        Raises:
            OSError: the file cannot be read.
            UnreadableError: it contains no orders.
        """
        try:
            return read_json(_ORDERS, self._file.read_bytes())
        except FileNotFoundError:
            return ()

    def note(self, action: Action, deed: CommandTarget, *, at: float) -> bool:
        """Note an executed command; return whether it changed the standing orders."""
        if not action.stands_for:
            return False
        order = StandingOrder(
            action_id=action.id, scope=deed.scope, target=deed.target, by=deed.by, why=deed.why, at=at
        )
        others = tuple(each for each in self._standing if each._subject_key != order._subject_key)
        before, self._standing = self._standing, others if action.revokes else (*others, order)
        return self._standing != before

    def forget(self, action: Action, scope: Scope, targets: tuple[str, ...]) -> bool:
        """Forget the orders about the same subjects as an order of the fleet; return whether there were any."""
        subjects = {(action.stands_for, scope, target.casefold()) for target in targets}
        before = self._standing
        self._standing = tuple(each for each in before if each._subject_key not in subjects)
        return self._standing != before

    async def keep(self) -> str:
        """Write the standing orders to disk; return the reason of a failure, or ""."""
        async with self._writing:
            try:
                await asyncio.to_thread(replace_file, self._file, msgspec.json.encode(self._standing))
            except OSError as error:
                return f"{error.strerror} in {self._file.parent}"
        return ""

    async def take_up(self, order: StandingOrder, reach: CommandContext) -> str:
        """Apply an order of the previous engine; return a sentence for the timeline."""
        action = BY_ID.get(order.action_id)
        if action is None or not action.stands_for:
            return f"cannot be taken up: {order}; this version knows no such order"
        deed = CommandTarget(scope=order.scope, target=order.target, by=order.by, why=order.why)
        if order.scope is Scope.ENTITY:
            reach.paired.watch(order.target)
        try:
            await COMMAND_HANDLERS[action.id](reach, deed)
        except (PairedError, ValueError) as error:  # ValueError: its target is none, as a file's may be
            return f"cannot be taken up: {order}; {repeated(str(error))}"
        self.note(action, deed, at=order.at)
        return f"still stands: {order}; taken up from the engine before"
