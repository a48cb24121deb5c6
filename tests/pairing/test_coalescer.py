"""Callers who share a link to a backlog queue: batches, outcomes of their own, and nobody's end is another's."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage, ServiceBusMessageBatch
from azure.servicebus.amqp import AmqpAnnotatedMessage
from azure.servicebus.exceptions import (
    MessageSizeExceededError,
    ServiceBusConnectionError,
    ServiceBusError,
    ServiceBusServerBusyError,
)

from paired_servicebus.core.errors import PairingClosedError
from paired_servicebus.pairing.runtime.deadlines import TaskOwner
from paired_servicebus.pairing.sending.coalescer import Coalescer, PendingSend
from paired_servicebus.pairing.sending.sdk_messages import EncodedBatch, Sendable, batch_key, id_of

from .conftest import until

SOON = 60.0


class Link:
    """A link that takes what it is given once it is let; `judge` may refuse it."""

    def __init__(self) -> None:
        self.path = "backlog/0"
        self.limit = 256 * 1024
        self.sent: list[list[str]] = []
        self.open = asyncio.Event()
        self.open.set()
        self.judge: Callable[[list[str]], BaseException | None] = lambda ids: None
        self.timeouts: list[float] = []

    def batch(self) -> EncodedBatch:
        return EncodedBatch(self.limit)

    async def send(self, messages: Any, timeout: float) -> None:
        singles = messages._messages if isinstance(messages, ServiceBusMessageBatch) else messages
        ids = [id_of(single) for single in singles]
        self.timeouts.append(timeout)
        self.sent.append(ids)
        await self.open.wait()
        refusal = self.judge(ids)
        if refusal is not None:
            raise refusal

    @property
    def batches(self) -> list[int]:
        return [len(ids) for ids in self.sent]


class Shared:
    """A coalescer over such a link."""

    def __init__(self) -> None:
        self.link = Link()
        self.tasks = TaskOwner()
        self.said: list[str] = []
        self.accepted: list[str] = []
        self.coalescer = Coalescer(self.link, self.tasks, self.said.append)  # type: ignore[arg-type]

    def caller(self, *ids: str, timeout: float = SOON, body: bytes = b"x") -> asyncio.Task[int]:
        messages = [ServiceBusMessage(body, message_id=name) for name in ids]
        return asyncio.create_task(self.send(messages, timeout))

    async def send(self, messages: list[Any], timeout: float = SOON) -> int:
        parcel = PendingSend(messages, self._on_accepted)
        try:
            await self.coalescer.send(parcel, timeout)
        except BaseException as error:
            error.add_note(f"accepted {parcel.accepted}")
            raise
        return parcel.accepted

    def _on_accepted(self, messages: Any) -> None:
        self.accepted += [id_of(message) for message in messages]

    async def in_the_way(self) -> asyncio.Task[int]:
        """A first send that is under way until the link is opened."""
        self.link.open.clear()
        first = self.caller("first")
        await until(lambda: self.link.sent)
        return first


@pytest.fixture
async def shared() -> AsyncIterator[Shared]:
    one = Shared()
    await one.tasks.open()
    yield one
    await one.tasks.close()


def outcomes(results: list[Any]) -> list[str]:
    return [type(result).__name__ if isinstance(result, BaseException) else "ok" for result in results]


async def test_what_waits_while_a_send_is_under_way_goes_together_in_the_next_one(shared: Shared) -> None:
    """One send in flight per SDK sender."""
    first = await shared.in_the_way()
    others = [shared.caller(f"{caller}") for caller in range(16)]
    await asyncio.sleep(0)
    shared.link.open.set()
    await asyncio.gather(first, *others)
    assert shared.link.batches == [1, 16]


async def test_a_lone_message_goes_as_it_is_and_not_as_a_batch(shared: Shared) -> None:
    await shared.caller("a")
    await shared.caller("b")
    assert shared.link.batches == [1, 1]


async def test_a_callers_messages_keep_their_order_over_as_many_batches_as_it_takes(shared: Shared) -> None:
    shared.link.limit = 1000
    names = [str(number) for number in range(50)]
    assert await shared.caller(*names, body=b"x" * 100) == 50
    assert [name for batch in shared.link.sent for name in batch] == names
    assert max(shared.link.batches) < 10
    assert shared.accepted == names


async def test_a_message_larger_than_a_batch_may_be_goes_alone(shared: Shared) -> None:
    shared.link.limit = 1000
    first = await shared.in_the_way()
    large, small = shared.caller("large", body=b"x" * 2000), shared.caller("small")
    await asyncio.sleep(0)
    shared.link.open.set()
    await asyncio.gather(first, large, small)
    assert shared.link.sent == [["first"], ["large"], ["small"]]


async def test_one_callers_cancellation_never_cancels_the_others(shared: Shared) -> None:
    first = await shared.in_the_way()
    leaves, stays = shared.caller("leaves"), shared.caller("stays")
    await asyncio.sleep(0)
    first.cancel()
    leaves.cancel()
    await asyncio.gather(first, leaves, return_exceptions=True)
    shared.link.open.set()
    assert await stays == 1
    assert shared.link.sent == [["first"], ["stays"]]
    assert shared.accepted == ["first", "stays"]  # the receipt of what was under way is written all the same


async def test_one_callers_timeout_never_ends_the_others_send(shared: Shared) -> None:
    first = await shared.in_the_way()
    shared.link.judge = lambda ids: None
    short, long = shared.caller("short", timeout=0.01), shared.caller("long", timeout=60)
    await asyncio.sleep(0)
    shared.link.open.set()
    await asyncio.gather(first, short, long)
    assert shared.link.sent[1] == ["short", "long"]
    assert shared.link.timeouts[1] > 50


async def test_a_refused_batch_is_sent_one_by_one_and_only_the_culprit_fails(shared: Shared) -> None:
    shared.link.judge = lambda ids: ValueError("bad") if "bad" in ids else None
    first = await shared.in_the_way()
    callers = [shared.caller(name) for name in ("a", "bad", "b")]
    await asyncio.sleep(0)
    shared.link.open.set()
    found = await asyncio.gather(first, *callers, return_exceptions=True)
    assert outcomes(found) == ["ok", "ok", "ValueError", "ok"]
    assert shared.link.sent[1:] == [["a", "bad", "b"], ["a"], ["bad"], ["b"]]
    assert not shared.coalescer.one_by_one
    assert shared.said == []


async def test_what_comes_after_the_culprit_in_the_same_call_is_not_sent(shared: Shared) -> None:
    """The caller still owns the message."""
    shared.link.judge = lambda ids: ValueError("bad") if "bad" in ids else None
    with pytest.raises(ValueError, match="bad") as refused:
        await shared.caller("a", "bad", "c")
    assert refused.value.__notes__ == ["accepted 1"]
    assert shared.accepted == ["a"]


async def test_a_batch_that_is_too_large_for_the_queue_is_halved_and_only_the_culprit_fails(shared: Shared) -> None:
    def judge(ids: list[str]) -> BaseException | None:
        return MessageSizeExceededError() if len(ids) > 4 or "large" in ids else None

    shared.link.judge = judge
    first = await shared.in_the_way()
    callers = [shared.caller(str(number)) for number in range(9)] + [shared.caller("large")]
    await asyncio.sleep(0)
    shared.link.open.set()
    found = await asyncio.gather(first, *callers, return_exceptions=True)
    assert outcomes(found) == ["ok"] * 10 + ["MessageSizeExceededError"]
    assert sorted(shared.accepted) == sorted(["first", *(str(number) for number in range(9))])


async def test_a_queue_that_refuses_mixed_batches_gets_singles_from_then_on_and_it_is_said_once(shared: Shared) -> None:
    """Partitioned entities refuse batches that mix session or partition keys, duplicate-detecting ones message ids."""
    refusal = ServiceBusError("Service Bus has encountered an error. Error condition: amqp:not-allowed.")
    shared.link.judge = lambda ids: refusal if len(ids) > 1 else None
    for _ in range(2):
        first = await shared.in_the_way()
        callers = [shared.caller(name) for name in ("a", "b", "c")]
        await asyncio.sleep(0)
        shared.link.open.set()
        assert await asyncio.gather(first, *callers) == [1, 1, 1, 1]
    assert [size for size in shared.link.batches if size > 1] == [3]
    assert shared.said == ["backlog/0 refuses batches of unlike messages (bad argument): it gets them one by one"]


@pytest.mark.parametrize("error", [ServiceBusConnectionError(), ServiceBusServerBusyError(), TimeoutError()])
async def test_a_failure_of_the_queue_is_the_outcome_of_all_who_were_in_it(shared: Shared, error: Exception) -> None:
    first = await shared.in_the_way()
    callers = [shared.caller("a"), shared.caller("b")]
    await asyncio.sleep(0)
    shared.link.judge = lambda ids: error if "a" in ids else None
    shared.link.open.set()
    found = await asyncio.gather(first, *callers, return_exceptions=True)
    assert outcomes(found) == ["ok", type(error).__name__, type(error).__name__]
    assert shared.link.batches == [1, 2]


async def test_a_message_that_cannot_be_encoded_fails_alone(shared: Shared) -> None:
    first = await shared.in_the_way()
    odd: Sendable = AmqpAnnotatedMessage(data_body=b"", application_properties={"n": object()})
    wrong = asyncio.create_task(shared.send([odd]))
    right = shared.caller("right")
    await asyncio.sleep(0)
    shared.link.open.set()
    found = await asyncio.gather(first, wrong, right, return_exceptions=True)
    assert (outcomes(found)[0], outcomes(found)[2]) == ("ok", "ok")
    assert isinstance(found[1], Exception)


async def test_who_waits_when_the_pairing_ends_is_told_and_what_was_under_way_is_in_doubt(shared: Shared) -> None:
    """Sends in hand finish or raise."""
    first = await shared.in_the_way()
    waiting = shared.caller("waiting")
    await asyncio.sleep(0)
    await shared.tasks.close()
    found = await asyncio.gather(first, waiting, return_exceptions=True)
    assert [(type(error), error.in_doubt) for error in found if isinstance(error, PairingClosedError)] == [
        (PairingClosedError, True),
        (PairingClosedError, False),
    ]
    with pytest.raises(PairingClosedError):
        await shared.caller("late")


async def test_only_messages_of_one_session_and_partition_key_travel_together(shared: Shared) -> None:
    shared.coalescer = Coalescer(shared.link, shared.tasks, shared.said.append, batch_key=batch_key)  # type: ignore[arg-type]
    first = await shared.in_the_way()
    sessions = [
        ServiceBusMessage(b"x", message_id=f"{session}{number}", session_id=session)
        for number in range(2)
        for session in "ab"
    ]
    keys = [
        ServiceBusMessage(b"x", message_id=f"{key}{number}", partition_key=key) for number in range(2) for key in "cd"
    ]
    sends = [asyncio.create_task(shared.send([message])) for message in (*sessions, *keys)]
    await asyncio.sleep(0)
    shared.link.open.set()
    await asyncio.gather(first, *sends)
    assert shared.link.sent == [["first"], ["a0", "a1"], ["b0", "b1"], ["c0", "c1"], ["d0", "d1"]]


async def test_callers_who_are_answered_together_go_together_again(shared: Shared) -> None:
    async def caller(name: str) -> None:
        for number in range(3):
            await shared.send([ServiceBusMessage(b"x", message_id=f"{name}{number}")])

    first = await shared.in_the_way()
    callers = [asyncio.create_task(caller(name)) for name in "abcd"]
    await asyncio.sleep(0)
    shared.link.open.set()
    await asyncio.gather(first, *callers)
    assert shared.link.batches == [1, 4, 4, 4]
    assert not shared.coalescer.is_busy


async def test_a_caller_is_told_how_far_its_messages_came_before_one_that_cannot_be_encoded(shared: Shared) -> None:
    """Nothing is delivered that its caller was told is refused."""
    first = await shared.in_the_way()
    good = ServiceBusMessage(b"x", message_id="good")
    bad = AmqpAnnotatedMessage(data_body=b"", application_properties={"n": object()})
    sending = asyncio.create_task(shared.send([good, bad]))
    right = [shared.caller("right"), shared.caller("also")]
    await asyncio.sleep(0)
    shared.link.open.set()
    found = await asyncio.gather(first, sending, *right, return_exceptions=True)
    assert isinstance(found[1], Exception)
    assert found[1].__notes__ == ["accepted 1"]
    assert shared.accepted == ["first", "good", "right", "also"]
