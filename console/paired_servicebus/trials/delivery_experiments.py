"""Experiments about delivery: release, expiry, deferral, duplicates, pings, sessions, deletion in batches."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import timedelta
from typing import Final

from azure.servicebus.aio import ServiceBusReceiver
from azure.servicebus.exceptions import ServiceBusError, SessionCannotBeLockedError, SessionLockLostError

from paired_servicebus.core.backlog.queue_settings import QueueWanted
from paired_servicebus.core.errors import WireRequestError
from paired_servicebus.core.model.envelope import PING_CONTENT_TYPE
from paired_servicebus.pairing.amqp_client import ReconnectingConnection
from paired_servicebus.pairing.amqp_client.reconnecting import peek, receive_deferred, update_disposition
from paired_servicebus.pairing.envelope_codec import broker_properties
from paired_servicebus.pairing.runtime.deadlines import bounded
from paired_servicebus.trials.trial import Experiment, Observation, SkippedError, Trial, id_of, letter
from servicebus_amqp.encoding.codec import Int, Timestamp
from servicebus_amqp.encoding.message_sections import (
    BATCH_FORMAT,
    Properties,
    Sections,
    batch,
    read_header,
    read_map,
    split,
    write_data,
    write_properties,
)
from servicebus_amqp.encoding.performatives import ACCEPTED, RELEASED, Modified, Rejected

LOCK: Final = timedelta(seconds=5)
"""The shortest lock of the service."""
SESSION_LOCK: Final = timedelta(seconds=10)
"""Long enough for a second receiver to attach meanwhile, also far from the namespace."""
LATE_SECONDS: Final = 15.0
"""Seconds within which something has to follow the end of a lock or a time to live."""
QUIET_SECONDS: Final = 3.0
"""Seconds in which an unwanted message would arrive."""
TTL_MS: Final = 1000
DUPLICATE_WINDOW: Final = timedelta(minutes=1)
PEEKED: Final = 300
"""More than one answer is expected to show, 250."""
_POLL: Final = 0.25
_DEAD_LETTERS: Final = "/$DeadLetterQueue"
_DEFERRED: Final = 1
_NOT_OFFERED: Final = frozenset({"amqp:not-implemented", "amqp:not-allowed"})


def _deliveries(payload: bytes) -> int:
    return int(read_header(split(payload).header).delivery_count or 0)


async def release_message(trial: Trial) -> Observation:
    """Release a message, then return it as failed, and compare its delivery counts."""
    path = await trial.queue()
    sender, receiver = await trial.sender(path), await trial.receiver(path)
    await sender.send(letter("1"))
    counts = []
    for state in (RELEASED, Modified(delivery_failed=True), None):
        delivery = await receiver.one()
        counts.append(_deliveries(delivery.payload))
        await (receiver.settle(delivery) if state is None else receiver.settle(delivery, state))
    first, released, failed = counts
    seen = f"delivery count {first} at first, {released} after a release, {failed} after a failed delivery"
    return Observation((first, released, failed) == (0, 0, 1), seen)


async def expire_message(trial: Trial) -> Observation:
    """Let a message expire before a receiver attaches; peek, receive, and look at the dead letters."""
    path = await trial.queue(QueueWanted(dead_letters_expired=True))
    sender, wire = await trial.sender(path), trial.wire()
    await sender.send(letter("brief", ttl_ms=TTL_MS), letter("lasting"))
    await asyncio.sleep(TTL_MS / 1000 + 1.0)
    peeked = [id_of(data) for data in await peek(wire, path, from_number=0, count=10)]
    receiver = await trial.receiver(path)
    received = [id_of(one.payload) for one in await receiver.receive(2, QUIET_SECONDS)]
    dead = await (await trial.receiver(path + _DEAD_LETTERS)).receive(1, LATE_SECONDS)
    reasons = [read_map(split(one.payload).application_properties).get("DeadLetterReason") for one in dead]
    shown = "still showed" if "brief" in peeked else "no longer showed"
    seen = f"a peek {shown} the expired message; received: {received}; dead letters: {reasons}"
    return Observation(received == ["lasting"] and reasons == ["TTLExpiredException"], seen)


async def peek_many(trial: Trial) -> Observation:
    """Peek at more messages than one answer may show."""
    path = await trial.queue()
    whole = batch([letter("1")] * PEEKED)
    refused = await (await trial.sender(path)).offer(whole, message_format=BATCH_FORMAT)
    if refused is not None:
        raise refused
    wire, number, pages = trial.wire(), 0, list[int]()
    while page := await peek(wire, path, from_number=number, count=PEEKED):
        pages.append(len(page))
        number = broker_properties(page[-1]).sequence_number + 1
    return Observation(sum(pages) == PEEKED, f"peeks of {PEEKED} messages showed {', '.join(map(str, pages))}")


async def delete_batch(trial: Trial) -> Observation:
    """Delete a batch of messages, older than a time, beside a locked one. The service promises best effort alone."""
    path = await trial.queue()
    sender, receiver, wire = await trial.sender(path), await trial.receiver(path), trial.wire()
    await sender.send(*(letter(str(number)) for number in range(4)))
    locked = await receiver.one()
    stored = [broker_properties(data) for data in await peek(wire, path, from_number=0, count=10)]
    before = max(one.enqueued_ms for one in stored) + 1000  # by the namespace's clock, not by ours
    body = {"message-count": Int(2), "enqueued-time-utc": Timestamp(before)}
    try:
        reply = await wire.request(path, "com.microsoft:batch-delete-messages", body)
    except WireRequestError as error:
        how = "not offered" if error.condition in _NOT_OFFERED else "refused"
        return Observation(False, f"{how}: {error}")
    count = reply.body.get("message-count") if isinstance(reply.body, dict) else None
    left = [id_of(data) for data in await peek(wire, path, from_number=0, count=10)]
    reported = int(count) if isinstance(count, int) else "no number"
    seen = f"best effort: asked for 2 of 3 with a fourth locked, {reported} reported, {len(left)} left"
    is_within = isinstance(count, int) and 2 <= len(left) <= len(stored)
    return Observation(is_within and id_of(locked.payload) in left, seen)


async def count_dead(trial: Trial) -> Observation:
    """Return a dead letter as failed, twice, and compare its delivery counts."""
    path = await trial.queue()
    sender, receiver = await trial.sender(path), await trial.receiver(path)
    await sender.send(letter("1"))
    await receiver.settle(await receiver.one(), Rejected())
    dead = await trial.receiver(path + _DEAD_LETTERS)
    counts: list[int] = []
    for state in (Modified(delivery_failed=True), Modified(delivery_failed=True), ACCEPTED):
        deliveries = await dead.receive(1, LATE_SECONDS)
        if not deliveries:
            return Observation(False, f"a dead letter did not come again; its delivery counts: {counts}")
        counts.append(_deliveries(deliveries[0].payload))
        await dead.settle(deliveries[0], state)
    rises = "rises" if counts[0] < counts[-1] else "does not rise"
    return Observation(True, f"a dead letter is kept; its delivery count {rises}: {', '.join(map(str, counts))}")


async def lock_deferred(trial: Trial) -> Observation:
    """Receive a deferred message by its number, twice during its lock and once after it."""
    path = await trial.queue(QueueWanted(lock=LOCK))
    sender, receiver, wire = await trial.sender(path), await trial.receiver(path), trial.wire()
    await sender.send(letter("1"))
    delivery = await receiver.one()
    number = broker_properties(delivery.payload).sequence_number
    await receiver.settle(delivery, Modified(undeliverable_here=True))
    states = [broker_properties(data).state for data in await peek(wire, path, from_number=0, count=1)]
    if states != [_DEFERRED]:
        return Observation(False, f"a peek showed the states {states}, not one deferred message")
    await receive_deferred(wire, path, [number])
    try:
        await receive_deferred(wire, path, [number])
    except WireRequestError as error:
        refused = str(error.condition)
    else:
        return Observation(False, "a locked deferred message was received twice")
    again = await _receive_after_lock(wire, path, number)
    seen = f"while locked: {refused}; after its lock: {'received again' if again else 'not received again'}"
    return Observation(
        again and refused in ("com.microsoft:message-not-found", "com.microsoft:message-lock-lost"), seen
    )


async def _receive_after_lock(wire: ReconnectingConnection, path: str, number: int) -> bool:
    end = asyncio.get_running_loop().time() + LOCK.total_seconds() + LATE_SECONDS
    while asyncio.get_running_loop().time() < end:
        await asyncio.sleep(_POLL)
        try:
            (state,) = await receive_deferred(wire, path, [number])
        except WireRequestError:
            continue
        await update_disposition(wire, path, [state.lock_token], "completed")
        return True
    return False


async def detect_duplicate(trial: Trial) -> Observation:
    """Send two messages of one id, and one of another."""
    path = await trial.queue(QueueWanted(duplicate_window=DUPLICATE_WINDOW))
    sender, receiver = await trial.sender(path), await trial.receiver(path)
    await sender.send(letter("1"), letter("1"), letter("2"))
    received = [id_of(one.payload) for one in await receiver.receive(3, QUIET_SECONDS)]
    return Observation(received == ["1", "2"], f"sent 1, 1, 2, all accepted; received {', '.join(received)}")


async def drop_ping(trial: Trial) -> Observation:
    """Send a ping to a waiting receiver."""
    path = await trial.queue()
    sender, receiver = await trial.sender(path), await trial.receiver(path)
    waiting = asyncio.create_task(receiver.receive(1, QUIET_SECONDS))
    await asyncio.sleep(0)  # its credit is granted before the ping leaves
    refused = await sender.offer(letter("ping", ttl_ms=TTL_MS, content_type=PING_CONTENT_TYPE, body=b""))
    received = await waiting
    if refused is not None:
        return Observation(False, f"a ping was refused: {refused}")
    return Observation(not received, f"a ping was accepted and {'delivered' if received else 'not delivered'}")


async def take_over_session(trial: Trial) -> Observation:
    """Lock a session while another receiver holds it, after the holder's end, and after its lock's end."""
    path = await trial.queue(QueueWanted(lock=SESSION_LOCK, sessions=True))
    sender = await trial.sender(path)
    properties = write_properties(Properties(message_id="1", group_id="s"))
    await sender.send(Sections(properties=properties, body=write_data(b"x")).join())
    holder = await _accept(trial, path)
    began = asyncio.get_running_loop().time()
    await holder.receive_messages(1, max_wait_time=LATE_SECONDS)
    try:
        await _accept(trial, path)
    except SessionCannotBeLockedError:
        pass
    else:
        if asyncio.get_running_loop().time() - began >= SESSION_LOCK.total_seconds():
            raise SkippedError("a second receiver needed longer to attach than the lock of the first lasts")
        return Observation(False, "a second receiver locked a session that another one holds")
    await holder.close()
    second = await _accept_within(trial, path, LATE_SECONDS)
    if second is None:
        return Observation(False, f"{LATE_SECONDS:g} s after its holder closed, the session could not be locked")
    (message,) = await second.receive_messages(1, max_wait_time=LATE_SECONDS)
    third = await _accept_within(trial, path, SESSION_LOCK.total_seconds() + LATE_SECONDS)
    if third is None:
        return Observation(False, f"{LATE_SECONDS:g} s after the end of its lock, the session could not be locked")
    return await _judge_late_holder(second, message)


async def _judge_late_holder(holder: ServiceBusReceiver, message: object) -> Observation:
    taken = "refused while held, free after its holder closed and after its lock ended"
    try:
        await holder.complete_message(message)  # type: ignore[arg-type] # as received
    except SessionLockLostError:
        return Observation(True, f"{taken}; the late holder's completion is refused as session-lock-lost")
    except ServiceBusError as error:
        return Observation(False, f"{taken}; the late holder's completion fails as {type(error).__name__}: {error}")
    return Observation(False, f"{taken}; the late holder's completion is accepted")


async def _accept(trial: Trial, path: str) -> ServiceBusReceiver:
    """Lock the session. Raises SessionCannotBeLockedError, and the SDK's other errors."""
    receiver = trial.home.client.get_queue_receiver(path, session_id="s")
    trial.close_later(receiver.close)
    await bounded(receiver.__aenter__(), LATE_SECONDS, "accepting a session")
    return receiver


async def _accept_within(trial: Trial, path: str, seconds: float) -> ServiceBusReceiver | None:
    end = asyncio.get_running_loop().time() + seconds
    while asyncio.get_running_loop().time() < end:
        try:
            return await _accept(trial, path)
        except SessionCannotBeLockedError:
            await asyncio.sleep(_POLL)
    return None


DELIVERY_EXPERIMENTS: Final[Sequence[Experiment]] = (
    Experiment(
        name="release-and-count",
        assumption="a released message keeps its delivery count; a failed delivery adds one",
        why="a pump that pauses or closes releases its messages, and a queue may allow few deliveries",
        run=release_message,
    ),
    Experiment(
        name="expired-messages",
        assumption="an expired message is not delivered, but dead-lettered as expired; a peek may still show it",
        why="backlog queues dead-letter expired messages; ages, depths and searches come from peeks",
        run=expire_message,
    ),
    Experiment(
        name="peek-size",
        assumption="peeks one after the other show every message once, however few an answer shows",
        why="ages, depths and searches come from peeks",
        run=peek_many,
    ),
    Experiment(
        name="batch-delete",
        assumption="com.microsoft:batch-delete-messages deletes up to the requested number, and no locked message",
        why="a gateway passes it on; the sandbox has to answer as the service does",
        run=delete_batch,
    ),
    Experiment(
        name="dead-letter-count",
        assumption="a dead letter that is returned as failed stays, whether its delivery count rises or not",
        why="a re-drive gives back what it does not move, and no dead letter may be lost by that",
        run=count_dead,
    ),
    Experiment(
        name="deferred-locks",
        assumption="a deferred message received by number is locked, and can be received again after its lock",
        why="several syphons share a backlog queue; a crashed one's deferred messages have to come back",
        run=lock_deferred,
    ),
    Experiment(
        name="duplicate-detection",
        assumption="a second message of one id is accepted and not stored",
        why="a send that timed out may have arrived; it is repeated with the same id",
        run=detect_duplicate,
        needs_standard=True,
    ),
    Experiment(
        name="pings",
        assumption="a ping is accepted and never delivered",
        why="pings go to the entities of applications, whose receivers do not expect them",
        run=drop_ping,
    ),
    Experiment(
        name="session-take-over",
        assumption="a session has one holder, and is free when its holder closes or its lock ends",
        why="a receiver that dies must not keep a session from the next one",
        run=take_over_session,
        needs_standard=True,
    ),
)
