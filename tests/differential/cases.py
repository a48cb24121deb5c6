"""The faults that last a moment, and the phases of a program that they strike; each pair of them is a case."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from azure.servicebus import ServiceBusMessage

from paired_servicebus.core.model.entity_state import State
from servicebus_sandbox.faults import Operation

from .sides import QUEUE, SESSIONS, Outcome, Program, Side, parked, play, sides, state_of

WAIT: Final = 4.0
"""Seconds that a receiver waits for messages."""
LONG_WAIT: Final = 30.0
"""For one that waits while a token comes to its end."""
DUE: Final = 1.9
"""Seconds before the end of a token that lives 22: it is due, and the work after it has that long."""
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


async def refreshed(side: Side) -> None:
    """The token is due for renewal: the SDK renews it with its next work, within the last tenth of its life."""
    assert side.credential is not None
    await asyncio.sleep(max(0.0, side.credential.expires_on - DUE - time.time()))


async def lapsed(side: Side) -> None:
    """Nothing is done until the token's life has ended."""
    assert side.credential is not None
    await asyncio.sleep(max(0.0, side.credential.expires_on + A_MOMENT - time.time()) + 1.0)


async def busy(side: Side) -> None:
    """One answer is "server busy"."""
    side.fault(
        "busy", entity=QUEUE, count=1, operations=frozenset({Operation.SEND, Operation.SETTLE, Operation.MANAGE})
    )


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


async def sending(side: Side) -> AsyncIterator[Any]:
    """The fault comes while sends go on without a pause."""
    async with side.client.get_queue_sender(QUEUE) as sender:
        striking = asyncio.create_task(side.struck())
        count = 0
        while not striking.done():
            await sender.send_messages(ServiceBusMessage(str(count)))
            count += 1
            await asyncio.sleep(0.05)
        yield await striking
        await sender.send_messages([ServiceBusMessage("one"), ServiceBusMessage("two")])
        yield side.depth() - count


async def waiting(side: Side) -> AsyncIterator[Any]:
    """The fault comes while a receiver waits; a message comes afterwards."""
    async with side.client.get_queue_receiver(QUEUE) as receiver:
        receiving = asyncio.create_task(receiver.receive_messages(1, max_wait_time=LONG_WAIT))
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
    is_long = side.credential is not None  # a token's end is awaited for longer than a receiver waits for messages
    async with side.client.get_queue_receiver(QUEUE, max_wait_time=LONG_WAIT if is_long else WAIT) as receiver:
        async for message in receiver:
            yield str(message)
            await receiver.complete_message(message)
            if str(message) == "1":
                yield await side.struck()
            if str(message) == "3" and is_long:
                break
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
        await side.struck()
        await sender.cancel_scheduled_messages(number)
    yield side.depth()


SENDS: Final[dict[str, Program]] = {
    "before": before, "between": between, "sending": sending, "mid-send": mid_send, "scheduling": scheduling,
}  # fmt: skip
RECEIVES: Final[dict[str, Program]] = {
    "waiting": waiting, "iteration": iteration, "settlement": settlement, "session": session,
}  # fmt: skip
PHASES: Final = SENDS | RECEIVES
LINKS_LIVE: Final = tuple(phase for phase in PHASES if phase != "mid-send")
"""For faults that end no link: an answer that was lost never comes."""
FAULTS: Final[dict[str, tuple[Fault, tuple[str, ...]]]] = {
    "link detached": (detached, tuple(PHASES)),
    "connection cut": (cut, tuple(PHASES)),
    "namespace moved": (moved, tuple(PHASES)),
    "slow answers": (slow, LINKS_LIVE),
    "idle detach": (idle, ("before", "between", "waiting", "scheduling")),
    "lock lost": (lock_lost, ("settlement", "session")),
    "token refreshed": (refreshed, LINKS_LIVE),
    "token lapsed": (lapsed, LINKS_LIVE),
    "busy once": (busy, ("before", "between", "sending", "scheduling", "iteration", "settlement")),
}
CLOCK: Final = frozenset({"idle detach", "lock lost"})
"""Faults of the clock, which all sides share: the sides take turns."""
TOKENS: Final = {"token refreshed": 22.0, "token lapsed": 8.0}
"""Faults of short-lived tokens, and the seconds of their life.

The SDK renews in the last tenth, in whole seconds: for two seconds of 22 or 21, and never of fewer than ten.
"""
BUSY_WAIT: Final = 10.0
"""Seconds that a sender waits for a busy namespace inside the call, each time."""
REFUSALS: Final = {"before": 1, "between": 1, "sending": 1, "scheduling": 2}
"""Busy answers that a phase's senders meet."""


@dataclass(frozen=True)
class Case:
    """A fault in a phase. mode: "async" or "sync"."""

    fault: str
    phase: str
    mode: str

    def __str__(self) -> str:
        return f"{self.fault}, {self.phase}, {self.mode}"

    @property
    def is_other_side(self) -> bool:
        """Whether it is the synchronous side of another case, which drives the same pairing.

        The detached link is none.
        """
        return self.mode == "sync" and self.fault != "link detached"

    @property
    def is_slow(self) -> bool:
        """Whether it takes several seconds, or strikes what a detached link strikes, too."""
        is_waiting = self.fault == "busy once" and self.phase in REFUSALS
        is_token = self.fault in TOKENS and (self.fault, self.phase) != ("token lapsed", "between")
        is_sync = self.mode == "sync" and self.phase not in ("mid-send", "iteration")
        is_alike = self.fault in ("namespace moved", "slow answers")
        return is_waiting or is_token or is_sync or (is_alike and self.phase in ("before", "scheduling", "session"))

    def shortest(self) -> float:
        """Return the seconds that the pairing has to take."""
        return BUSY_WAIT * REFUSALS.get(self.phase, 0) if self.fault == "busy once" else 0.0

    def longest(self, sdk: Outcome) -> float:
        """Return the seconds that the pairing may take."""
        return max(2 * sdk.seconds, sdk.seconds + 1.0) + self.shortest()


CASES: Final = [
    Case(fault, phase, mode) for fault, (_, phases) in FAULTS.items() for phase in phases for mode in ("async", "sync")
]


@dataclass(frozen=True)
class Result:
    """The outcomes of the three sides, the states of our two, and the messages parked."""

    sdk: Outcome
    ours: dict[str, Outcome]
    states: dict[str, State]
    parked: int


async def run(case: Case) -> Result:
    """Run one case on all sides."""
    strike = FAULTS[case.fault][0]
    async with sides(case.mode, strike, token_life=TOKENS.get(case.fault)) as all_of:
        plays = [play(PHASES[case.phase], side) for side in all_of]
        sdk, *ours = [await one for one in plays] if case.fault in CLOCK else await asyncio.gather(*plays)
        names = [side.name for side in all_of[1:]]
        states = [await state_of(side) for side in all_of[1:]]
        return Result(
            sdk, dict(zip(names, ours, strict=True)), dict(zip(names, states, strict=True)), parked(all_of[1])
        )
