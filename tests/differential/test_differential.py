"""Beside the SDK: the same program, under one fault that lasts a moment, in each phase (SPEC.md sections 3 to 6).

The pairing raises where the SDK raises, never elsewhere; it takes at most twice as long, or a second more; it parks
nothing, with hold and without.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import pytest
from azure.servicebus import ServiceBusMessage

from paired_servicebus.core.model.entity_state import State

from .sides import QUEUE, SESSIONS, Outcome, Program, Side, parked, play, sides, state_of

WAIT: Final = 4.0
"""Seconds that a receiver waits for messages."""
A_MOMENT: Final = 0.3
"""Seconds of a fault before the program goes on: the SDK may not notice it earlier, and has no sign that it has."""


# -- faults ---------------------------------------------------------------------------------------------------------


async def detached(side: Side) -> None:
    """Each link of the entities is detached once."""
    for path in (QUEUE, SESSIONS):
        side.fault("detached", entity=path)()
    await asyncio.sleep(A_MOMENT)


async def cut(side: Side) -> None:
    """Each connection is cut once."""
    side.fault("disconnected")()
    await asyncio.sleep(A_MOMENT)


async def moved(side: Side) -> None:
    """The namespace moves: connections are cut, and refused for a moment."""
    heal = side.fault("refused")
    await asyncio.sleep(2 * A_MOMENT)
    heal()


async def slow(side: Side) -> None:
    """Answers are slow for a moment."""
    heal = side.fault("latency", delay_s=0.4)
    asyncio.get_running_loop().call_later(0.9, heal)


async def idle(side: Side) -> None:
    """Eleven quiet minutes pass: idle links are detached, and locks end."""
    side.sandbox.advance(11 * 60)
    await asyncio.sleep(A_MOMENT)


async def lock_lost(side: Side) -> None:
    """The locks of what was received end."""
    side.sandbox.advance(61)


Fault = Callable[[Side], Awaitable[None]]


# -- phases ---------------------------------------------------------------------------------------------------------


async def before(side: Side) -> AsyncIterator[Any]:
    """The fault comes before anything is open."""
    yield await side.struck()
    async with side.client.get_queue_sender(QUEUE) as sender:
        await sender.send_messages(ServiceBusMessage("first"))
    yield side.depth()


async def between(side: Side) -> AsyncIterator[Any]:
    """The fault comes between two sends, one of them a batch."""
    async with side.client.get_queue_sender(QUEUE) as sender:
        await sender.send_messages(ServiceBusMessage("warm"))
        yield await side.struck()
        await sender.send_messages([ServiceBusMessage("one"), ServiceBusMessage("two")])
        yield side.depth()


async def mid_send(side: Side) -> AsyncIterator[Any]:
    """The fault comes when the message has arrived, and before its answer."""
    async with side.client.get_queue_sender(QUEUE) as sender:
        await sender.send_messages(ServiceBusMessage("warm"))
        heal = side.fault("unanswered", entity=QUEUE)
        sending = asyncio.create_task(sender.send_messages(ServiceBusMessage("x", message_id="x")))
        while side.depth() < 2:
            await asyncio.sleep(0.01)
        heal()
        yield await side.struck()
        await sending
        yield side.depth()


async def waiting(side: Side) -> AsyncIterator[Any]:
    """The fault comes while a receiver waits; a message comes afterwards."""
    async with side.client.get_queue_receiver(QUEUE) as receiver:
        receiving = asyncio.create_task(receiver.receive_messages(1, max_wait_time=20))
        await asyncio.sleep(0.5)
        struck = await side.struck()
        yield struck
        await side.put("later")
        for message in await receiving:
            yield str(message)
            await receiver.complete_message(message)
    yield side.depth()


async def iteration(side: Side) -> AsyncIterator[Any]:
    """The fault comes in the middle of an iteration."""
    await side.put("0", "1", "2", "3")
    async with side.client.get_queue_receiver(QUEUE, max_wait_time=WAIT) as receiver:
        async for message in receiver:
            yield str(message)
            await receiver.complete_message(message)
            if str(message) == "1":
                yield await side.struck()
    yield side.depth()


async def settlement(side: Side) -> AsyncIterator[Any]:
    """The fault comes between a message and its settlement; then the receiver goes on."""
    await side.put("0", "1")
    async with side.client.get_queue_receiver(QUEUE, max_wait_time=WAIT) as receiver:
        (message,) = await receiver.receive_messages(1, max_wait_time=WAIT)
        yield await side.struck()
        await receiver.complete_message(message)
        for message in await receiver.receive_messages(1, max_wait_time=WAIT):
            yield str(message)
            await receiver.complete_message(message)
    yield side.depth()


async def session(side: Side) -> AsyncIterator[Any]:
    """The fault comes while a session is held."""
    await side.put("0", "1", path=SESSIONS, session_id="cart")
    async with side.client.get_queue_receiver(SESSIONS, session_id="cart", max_wait_time=WAIT) as receiver:
        (message,) = await receiver.receive_messages(1, max_wait_time=WAIT)
        await receiver.complete_message(message)
        yield await side.struck()
        for message in await receiver.receive_messages(1, max_wait_time=WAIT):
            yield str(message)


async def scheduling(side: Side) -> AsyncIterator[Any]:
    """The fault comes before a schedule and before its cancellation."""
    tomorrow = datetime.now(UTC) + timedelta(days=1)
    async with side.client.get_queue_sender(QUEUE) as sender:
        await sender.send_messages(ServiceBusMessage("warm"))
        yield await side.struck()
        (number,) = await sender.schedule_messages(ServiceBusMessage("later"), tomorrow)
        yield number > 0
        await side.strike(side)
        await sender.cancel_scheduled_messages(number)
    yield side.depth()


SENDS: Final[dict[str, Program]] = {
    "before": before, "between": between, "mid-send": mid_send, "scheduling": scheduling,
}  # fmt: skip
RECEIVES: Final[dict[str, Program]] = {
    "waiting": waiting, "iteration": iteration, "settlement": settlement, "session": session,
}  # fmt: skip
PHASES: Final = SENDS | RECEIVES
FAULTS: Final[dict[str, tuple[Fault, tuple[str, ...]]]] = {
    "link detached": (detached, tuple(PHASES)),
    "connection cut": (cut, tuple(PHASES)),
    "namespace moved": (moved, tuple(PHASES)),
    "slow answers": (slow, tuple(phase for phase in PHASES if phase != "mid-send")),  # its answer never comes
    "idle detach": (idle, ("before", "between", "waiting", "scheduling")),
    "lock lost": (lock_lost, ("settlement", "session")),
}
CLOCK: Final = frozenset({"idle detach", "lock lost"})
"""Faults of the clock, which all sides share: the sides take turns."""
CASES: Final = [
    pytest.param(fault, phase, mode, id=f"{fault}, {phase}, {mode}")
    for fault, (_, phases) in FAULTS.items()
    for phase in phases
    for mode in ("async", "sync")
]


def allowed(sdk: Outcome) -> float:
    """Return the seconds that the pairing may take."""
    return max(2 * sdk.seconds, sdk.seconds + 1.0)


@pytest.mark.parametrize(("fault", "phase", "mode"), CASES)
async def test_the_pairing_is_never_worse_than_the_sdk(
    fault: str, phase: str, mode: str, record_property: Callable[[str, object], None]
) -> None:
    """A routine detach or a single cut is no error at the caller (the SDK beside it raises none either) and no
    failover."""
    async with sides(mode, FAULTS[fault][0]) as all_of:
        plays = [play(PHASES[phase], side) for side in all_of]
        sdk, *ours = [await one for one in plays] if fault in CLOCK else await asyncio.gather(*plays)
        record_property("outcomes", " | ".join(map(str, (sdk, *ours))))
        for side, found in zip(all_of[1:], ours, strict=True):
            assert (found.raised, found.results) == (sdk.raised, sdk.results), side.name
            assert found.seconds <= allowed(sdk), (side.name, found.seconds, sdk.seconds)
            assert await state_of(side) in (State.HEALTHY, State.UNKNOWN), side.name
        assert parked(all_of[1]) == 0


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["async", "sync"])
async def test_one_busy_answer_is_waited_for_ten_seconds(mode: str) -> None:
    """Section 5: server busy: that message is not attempted again for 10 s; the sender waits inside the call."""

    async def busy(side: Side) -> None:
        side.fault("busy", entity=QUEUE, count=1)

    async with sides(mode, busy) as all_of:
        began = time.monotonic()
        sdk, *ours = await asyncio.gather(*(play(between, side) for side in all_of))
        assert [(one.raised, one.results) for one in ours] == [(sdk.raised, sdk.results)] * 2
        assert all(one.seconds >= 10 for one in ours)
        assert time.monotonic() - began < 40
        assert parked(all_of[1]) == 0
