"""One outage of the primary under load, and what senders of every language may see of it: nothing but slowness.

The issue: "0 errors from `send`, 0 client connections lost, 0 messages lost or unexpected, duplicates only in SPEC.md's
windows, by the clients' own lists."
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from paired_servicebus.core.accounting.ledger import Ledger
from paired_servicebus.demo.languages.sender_programs import SenderProgram
from tests.gateway_processes.engine import Figures
from tests.gateway_processes.stage import ENTITY, Broken, Stage, stage

BEFORE: Final = 2.0
AFTER: Final = 2.0
"""Seconds of sending before and after the outage."""
WINDOW: Final = 1.0
"""Seconds around a moment: the senders' lines take a while to get here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outage:
    """A fault of the primary and its length in seconds. `times`: other times of the engine than its defaults."""

    fault: str
    seconds: float
    fails_over: bool = True
    times: dict[str, float] = field(default_factory=dict)


async def outage(
    case: Outage,
    programs: Sequence[SenderProgram],
    folder: Path,
    say: Callable[[str], None],
    *,
    lanes: int,
    pause: float,
) -> None:
    """Break the primary under load and check what the senders saw. Raises Broken."""
    async with stage(folder, **case.times) as world:
        await world.start(programs, lanes=lanes, pause=pause)
        await asyncio.sleep(BEFORE)
        before = await world.figures()
        begun = await _broken_for(world, case)
        during = await world.figures()
        accepted = {one.program.language: one.accepted for one in world.senders}
        await asyncio.sleep(AFTER)
        at_end = await world.figures()
        await world.stop()
        drained = await world.drained()
        ledger = world.ledger()
        for line in lines(world, ledger, drained):
            say(line)
        check_failover(case, during)
        check_connections(before, at_end)
        check_lists(world, ledger, begun)
        if case.fails_over:
            check_progress(world, accepted, begun, case.seconds)


async def _broken_for(world: Stage, case: Outage) -> float:
    """Break the primary and mend it; return when it broke."""
    faults = world.sandbox["primary"].node.faults
    begun = asyncio.get_running_loop().time()
    entity = ENTITY if case.fault == "disabled" else None
    fault = faults.add(case.fault, entity=entity)
    await asyncio.sleep(case.seconds)
    faults.remove(fault.id)
    return begun


def lines(world: Stage, ledger: Ledger, figures: Figures) -> list[str]:
    """Return what each sender saw, and the balance."""
    each = [
        f"{one.program.language} ({one.program.sdk}): {one.accepted} accepted, {len(one.errors)} errors, "
        f"slowest {one.slowest_ms / 1000:.1f} s"
        for one in world.senders
    ]
    return [
        *each,
        f"{ledger.accepted} accepted, {figures.diverted} through the backlog, {ledger.lost} lost, "
        f"{ledger.unexpected} unexpected, {ledger.duplicates} duplicates",
    ]


def check_failover(case: Outage, figures: Figures) -> None:
    """Raise Broken unless the outage did what it is for: else the rest proves nothing."""
    if bool(figures.failovers) != case.fails_over or bool(figures.diverted) != case.fails_over:
        raise Broken(
            f"{case.fault} for {case.seconds:.0f} s: {figures.failovers} failovers, {figures.diverted} diverted"
        )


def check_connections(before: Figures, after: Figures) -> None:
    """Raise Broken if a client lost its connection: it would also have opened another."""
    if after.closed or after.opened != before.opened:
        raise Broken(f"clients lost {after.closed} connections and opened {after.opened - before.opened} more")


def check_lists(world: Stage, ledger: Ledger, begun: float) -> None:
    """Raise Broken unless the senders' own lists agree with the namespaces."""
    errors = {name: said for one in world.senders for name, said in one.errors.items()}
    if errors:
        name, said = next(iter(errors.items()))
        raise Broken(f"{len(errors)} errors from send, the first for {name}: {said}")
    if ledger.lost or ledger.unexpected or ledger.in_doubt:
        first = (*ledger.lost_ids, *ledger.unexpected_ids)[:3]
        raise Broken(f"{ledger.lost} lost, {ledger.unexpected} unexpected, {ledger.in_doubt} in doubt: {first}")
    stray = [name for name in world.duplicates() if not world.was_under_way(name, begun, WINDOW)]
    if stray:
        raise Broken(f"{len(stray)} duplicates of messages that were not under way as the outage began: {stray[:3]}")


def check_progress(world: Stage, accepted: dict[str, int], begun: float, seconds: float) -> None:
    """Raise Broken unless each sender had messages accepted in the last part of the outage."""
    for one in world.senders:
        late = sum(begun + 0.8 * seconds <= answered <= begun + seconds for _, answered in one.calls.values())
        if not late:
            raise Broken(
                f"{one.program.language} had none of {accepted[one.program.language]} accepted late in the outage"
            )
