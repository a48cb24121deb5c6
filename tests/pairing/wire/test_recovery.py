"""A link that stays, the pauses in between, and that nobody spins."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress

import pytest

from console.amqp import ACCEPTED
from console.core.errors import WireConnectionError, WireError, WireLinkError
from console.pairing.wire import Backoff, Wire, WireReceiver, is_idle_detach, keep
from tests.pairing.wire.conftest import Told, World, message, until

FORCED = "amqp:link:detach-forced"
IDLE = (
    "The link 'G5:1:sender-link' is force detached. Code: publisher(link3006875). Details: "
    "AmqpMessagePublisher.IdleTimerExpired: Idle timeout: 00:10:00."
)
INACTIVE = "The connection was inactive for more than the allowed 240000 milliseconds and is closed by container 'x'."


def test_pauses_double_to_the_most_and_begin_anew() -> None:
    backoff = Backoff(lambda: 0.0, first=1.0, most=5.0)
    assert [backoff.next() for _ in range(5)] == [1, 2, 4, 5, 5]
    backoff.reset()
    assert backoff.next() == 1


def test_chance_shortens_a_pause_by_a_half_at_most() -> None:
    assert Backoff(lambda: 0.999_999, first=10.0).next() == pytest.approx(5.0, abs=0.001)


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (WireLinkError(IDLE, FORCED), True),
        (WireConnectionError(INACTIVE, "amqp:connection:forced"), True),
        (WireLinkError("the entity has moved", FORCED), False),
        (WireLinkError("idle talk", "amqp:internal-error"), False),
        (WireLinkError("idle"), False),
        (WireError(IDLE, FORCED), False),
    ],
)
def test_an_idle_end_is_known_by_condition_and_words(error: WireError, expected: bool) -> None:
    assert is_idle_detach(error) is expected


class Kept:
    """A receiver that is kept, and what was said of it."""

    def __init__(self, wire: Wire) -> None:
        self.told = Told()
        self.failures: list[tuple[WireError, float]] = []
        self.attached: list[WireReceiver] = []
        self._wire = wire
        self.task = asyncio.create_task(
            keep(
                self.attach,
                backoff=Backoff(lambda: 0.0, first=0.02, most=0.2),
                on_failure=lambda error, pause: self.failures.append((error, pause)),
            )
        )

    async def attach(self) -> WireReceiver:
        receiver = await self.told.receiver(self._wire)
        receiver.grant(10)
        self.attached.append(receiver)
        return receiver

    async def end(self) -> None:
        self.task.cancel()
        with suppress(asyncio.CancelledError):
            await self.task


async def receives_again(world: World, kept: Kept) -> None:
    """A message that comes now is delivered."""
    before = len(kept.told.deliveries)
    told = Told()
    sender = await told.sender(world.wire())
    sender.send(message(), b"1")
    await until(lambda: len(kept.told.deliveries) > before)
    kept.attached[-1].settle(kept.told.deliveries[-1].delivery_id, ACCEPTED)


async def test_a_kept_link_comes_back_after_a_detach_and_says_so_once(world: World) -> None:
    kept = Kept(world.wire())
    await until(lambda: kept.attached)
    world.fault("detached", entity="orders")
    await until(lambda: len(kept.attached) == 2)
    assert len(kept.failures) == 1
    await receives_again(world, kept)
    await kept.end()


async def test_an_idle_detach_is_silent(world: World) -> None:
    kept = Kept(world.wire())
    await until(lambda: kept.attached)
    world.jump(660)
    await until(lambda: len(kept.attached) == 2)
    assert kept.failures == []
    await receives_again(world, kept)
    await kept.end()


async def test_a_kept_link_comes_back_after_the_connection_was_lost(world: World) -> None:
    wire = world.wire()
    wire._backoff = Backoff(lambda: 0.0, first=0.02, most=0.2)
    kept = Kept(wire)
    await until(lambda: kept.attached)
    over = world.fault("refused")
    await until(lambda: len(kept.failures) > 3)
    over()
    await until(lambda: len(kept.attached) == 2)
    assert wire.connections == 2
    await receives_again(world, kept)
    await kept.end()


async def test_the_end_of_keeping_detaches_in_order(world: World) -> None:
    kept = Kept(world.wire())
    await until(lambda: kept.attached)
    await kept.end()
    assert not kept.attached[0].is_up
    assert kept.told.lost == []


async def test_what_is_no_failure_of_the_wire_is_not_swallowed() -> None:
    async def attach() -> WireReceiver:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await keep(attach, backoff=Backoff(lambda: 0.0), on_failure=lambda *_: None)


async def test_however_many_ask_one_connection_is_tried_and_then_none_for_a_while(world: World) -> None:
    world.fault("reset")
    wire = world.wire()
    tries = 0
    connect: Callable[[], object] = wire._connect

    def counted() -> object:
        nonlocal tries
        tries += 1
        return connect()

    wire._connect = counted  # type: ignore[method-assign,assignment]
    found = await asyncio.gather(*(Told().sender(wire) for _ in range(20)), return_exceptions=True)
    found += await asyncio.gather(*(Told().sender(wire) for _ in range(20)), return_exceptions=True)
    assert all(isinstance(error, WireConnectionError) for error in found)
    assert tries == 1


async def test_an_asker_who_gives_up_does_not_end_the_connecting_for_others(world: World) -> None:
    wire = world.wire()
    first = asyncio.create_task(Told().sender(wire))
    second = asyncio.create_task(Told().sender(wire))
    await asyncio.sleep(0)
    first.cancel()
    assert (await second).is_up
    assert wire.connections == 1
