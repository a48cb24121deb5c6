"""Experiments about entities: their states, limits and settings."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Final

from paired_servicebus.core.backlog.queue_settings import (
    LOCK,
    LONGEST,
    MAX_DELIVERIES,
    MAX_SIZE_MB,
    QueueFacts,
    QueueStatus,
)
from paired_servicebus.core.errors import WireError
from paired_servicebus.core.model.verdict import FailureKind, kind_of
from paired_servicebus.pairing.amqp_client import is_idle_detach
from paired_servicebus.pairing.amqp_client.client_connection import BATCH_SIZE, LINKS_PER_SESSION, MANAGEMENT
from paired_servicebus.pairing.amqp_client.reconnecting import peek
from paired_servicebus.pairing.runtime.deadlines import bounded
from paired_servicebus.trials.temporary_entities import MANAGING, NotPermittedError
from paired_servicebus.trials.trial import (
    Experiment,
    Observation,
    SkippedError,
    Trial,
    TrialReceiver,
    TrialSender,
    letter,
)
from servicebus_amqp.encoding.message_sections import BATCH_FORMAT, batch
from servicebus_amqp.encoding.performatives import RELEASED
from servicebus_amqp.nodes.request_ends import write_request
from servicebus_amqp.protocol.connection import Session

EFFECT_SECONDS: Final = 30.0
"""Seconds within which a changed status has to take effect."""
IDLE_SECONDS: Final = 720.0
"""The service detaches after 600."""
UNLINKED_SECONDS: Final = 400.0
"""The service closes after 300."""
MOST_MESSAGES: Final = 4500
"""Messages of a batch below the tier Premium."""
FILL_BYTES: Final = 250_000
FILL_CONCURRENCY: Final = 8
FILL_MB: Final = 1100
"""Megabytes after which a queue of 1 GB has to be full."""
FILL_SECONDS: Final = 840.0
MAX_TRIED_BYTES: Final = 4 * 1024 * 1024
"""The largest message that is sent; Premium may allow 100 MB."""
_MARGIN: Final = 4096
_POLL: Final = 0.25


async def refuse_disabled(trial: Trial) -> Observation:
    """Attach to a queue in each state that refuses senders or receivers."""
    path = await trial.queue()
    seen, holds = [], True
    for status, attach in (
        (QueueStatus.SEND_DISABLED, TrialSender.attach),
        (QueueStatus.RECEIVE_DISABLED, TrialReceiver.attach),
        (QueueStatus.DISABLED, TrialSender.attach),
    ):
        await bounded(trial.home.admin.set_status(path, status), MANAGING, "setting a status")
        error = await _refusal(trial, path, attach)
        holds &= error is not None and kind_of(error) is FailureKind.DISABLED
        seen.append(f"{status}: {error.condition if error is not None else 'links are still accepted'}")
        text = str(error)
    return Observation(holds, f"{'; '.join(seen)}; its text: {text}")


async def _refusal(trial: Trial, path: str, attach: object) -> WireError | None:
    """Attach until that is refused; None if it never is."""
    end = asyncio.get_running_loop().time() + EFFECT_SECONDS
    while asyncio.get_running_loop().time() < end:
        wire = trial.wire()
        try:
            link = await attach(wire, path)  # type: ignore[operator] # one of the two functions above
            refused = await link.offer(letter("1")) if isinstance(link, TrialSender) else None
            if refused is not None:
                return refused
        except WireError as error:
            return error
        finally:
            await wire.close()
        await asyncio.sleep(_POLL)
    return None


async def prove_closed(trial: Trial) -> Observation:
    """Close a queue with a message to senders; peek, and receive and release."""
    path = await trial.queue()
    await (await trial.sender(path)).send(letter("1"))
    await bounded(trial.home.admin.set_status(path, QueueStatus.SEND_DISABLED), MANAGING, "setting a status")
    await _refusal(trial, path, TrialSender.attach)
    seen, works = [], False
    for name, look in (("peek", _peeks), ("receive", _receives)):
        try:
            count = await look(trial, path)
        except (WireError, TimeoutError) as error:
            seen.append(f"a {name} is refused: {error}")
        else:
            works |= count == 1
            seen.append(f"a {name} found {count} of 1 messages")
    return Observation(works, f"closed to senders: {'; '.join(seen)}")


async def _peeks(trial: Trial, path: str) -> int:
    return len(await peek(trial.wire(), path, from_number=0, count=2))


async def _receives(trial: Trial, path: str) -> int:
    receiver = await trial.receiver(path)
    await receiver.settle(await receiver.one(), RELEASED)
    return 1


async def send_to_closed(trial: Trial) -> Observation:
    """Send to a queue that is closed to receivers."""
    path = await trial.queue()
    await bounded(trial.home.admin.set_status(path, QueueStatus.RECEIVE_DISABLED), MANAGING, "setting a status")
    await _refusal(trial, path, TrialReceiver.attach)
    try:
        refused = await (await trial.sender(path)).offer(letter("1"))
    except WireError as error:
        refused = error
    seen = "accepted" if refused is None else f"refused: {refused}"
    holds = refused is None or kind_of(refused) is FailureKind.DISABLED
    return Observation(holds, f"closed to receivers, a send: {seen}")


async def end_unlinked(trial: Trial) -> Observation:
    """Leave a connection without links until it is closed."""
    path, wire = await trial.queue(), trial.wire()
    await (await TrialSender.attach(wire, path)).link.detach()
    began, closed = asyncio.get_running_loop().time(), asyncio.Event()
    wire.after_read.append(lambda: None if wire.is_up else closed.set())
    with suppress(TimeoutError):
        await asyncio.wait_for(closed.wait(), UNLINKED_SECONDS)
    if wire.is_up or wire.failure is None:
        return Observation(True, f"a connection without links was still open after {UNLINKED_SECONDS:g} s")
    lived = asyncio.get_running_loop().time() - began
    return Observation(is_idle_detach(wire.failure), f"closed after {lived:.0f} s without links: {wire.failure}")


async def lose_deleted(trial: Trial) -> Observation:
    """Delete a queue under a sender and a receiver.

    For deletion, only "the links close" is known: the condition is the entity's absence, or a forced detach.
    """
    path = await trial.queue()
    return await _lose_links(trial, path, trial.remove(path), FailureKind.NOT_FOUND)


async def lose_disabled(trial: Trial) -> Observation:
    """Disable a queue under a sender and a receiver; forced detaches were seen at receivers alone."""
    path = await trial.queue()
    disabling = bounded(trial.home.admin.set_status(path, QueueStatus.DISABLED), MANAGING, "setting a status")
    return await _lose_links(trial, path, disabling, FailureKind.DISABLED)


async def _lose_links(trial: Trial, path: str, end: Awaitable[object], kind: FailureKind) -> Observation:
    """Close a queue under its links. kind: beside a forced detach, that of an expected end."""
    links = (await trial.sender(path), await trial.receiver(path))
    await links[1].receive(1, 0.0)  # with credit, as a pump
    await end
    await asyncio.wait([link.lost for link in links], timeout=EFFECT_SECONDS)
    errors = [link.lost.result() if link.lost.done() else None for link in links]
    holds = all(error is not None and kind_of(error) in (kind, FailureKind.DETACHED) for error in errors)
    seen = ", ".join(
        f"{name}: {error if error is not None else 'still attached'}"
        for name, error in zip(("sender", "receiver"), errors, strict=True)
    )
    return Observation(holds, seen)


async def refuse_full(trial: Trial) -> Observation:
    """Fill the smallest queue, 1 GB, until a message is refused."""
    path = await trial.queue()
    sender = await trial.sender(path)
    payload = letter("1", body=bytes(FILL_BYTES))
    accepted = 0
    while accepted * FILL_BYTES < FILL_MB * 1_000_000:
        outcomes = await asyncio.gather(*(sender.offer(payload) for _ in range(FILL_CONCURRENCY)))
        errors = [outcome for outcome in outcomes if outcome is not None]
        accepted += len(outcomes) - len(errors)
        if errors:
            size = accepted * FILL_BYTES / 1_000_000
            beside = await (await trial.sender(await trial.queue())).offer(letter("1"))
            holds = kind_of(errors[0]) is FailureKind.FULL and beside is None
            others = "another queue accepts" if beside is None else f"another queue refuses: {beside}"
            return Observation(holds, f"after {size:.0f} MB: {errors[0]}; {others}")
    return Observation(False, f"{FILL_MB} MB were accepted by a queue of 1 GB")


async def keep_longest_spans(trial: Trial) -> Observation:
    """Make a backlog queue, change its status there and back, and read its settings."""
    path = await trial.backlog_queue()
    admin = trial.home.admin
    seen, holds = [], True
    for moment in ("created", "changed"):
        if moment == "changed":
            for status in (QueueStatus.SEND_DISABLED, QueueStatus.ACTIVE):
                await bounded(admin.set_status(path, status), MANAGING, "setting a status")
        listed = await bounded(admin.queues(path), MANAGING, "reading a queue")
        facts = next((queue for queue in listed if queue.path.casefold() == path), None)
        if facts is None:
            return Observation(False, f"{moment}: the queue is not listed")
        holds &= _is_backlog(facts)
        seen.append(f"{moment}: time to live {_span(facts.ttl)}, idle {_span(facts.idle)}")
        seen.append(f"{facts.max_size_mb} MB, {facts.max_deliveries} deliveries, lock {facts.lock}")
    return Observation(holds, "; ".join(seen))


def _is_backlog(facts: QueueFacts) -> bool:
    spans = (facts.ttl, facts.idle)
    return all(span is not None and span >= LONGEST for span in spans) and (
        (facts.max_size_mb, facts.max_deliveries, facts.lock) == (MAX_SIZE_MB, MAX_DELIVERIES, LOCK)
        and facts.dead_letters_expired is True
    )


def _span(span: timedelta | None) -> str:
    return "unknown" if span is None else f"{span.days} days"


async def refuse_large(trial: Trial) -> Observation:
    """Send messages and batches just below and just above the limits of a link."""
    path = await trial.queue()
    link = (await trial.sender(path)).link
    largest, widest = int(link.max_message_size), int(link.max_batch_size)
    if max(largest, widest) > MAX_TRIED_BYTES:
        raise SkippedError(f"the limits are {largest} and {widest} bytes; more than {MAX_TRIED_BYTES} is not sent")
    single, many = await _limit(trial, path, largest, 0), await _limit(trial, path, widest, BATCH_FORMAT)
    seen = f"message {largest} bytes, above it {single[1]}; batch {widest} bytes, above it {many[1]}"
    return Observation(single[0] and many[0], seen)


async def _limit(trial: Trial, path: str, limit: int, message_format: int) -> tuple[bool, str]:
    """Return whether a limit is kept, and the answer to a message above it."""
    sender = await trial.sender(path)
    below = await sender.offer(_sized(limit - _MARGIN, message_format), message_format=message_format)
    if below is not None:
        return False, f"(and below it) {below}"
    sender = await trial.sender(path)
    above = await sender.offer(_sized(limit + _MARGIN, message_format), message_format=message_format)
    if above is None:
        return False, "accepted"
    how = "its link detached: " if sender.lost.done() else ""
    return kind_of(above) is FailureKind.TOO_LARGE, f"{how}{above.condition}"


async def read_limits(trial: Trial) -> Observation:
    """Read what the namespace announces, and send a batch of as many messages as a tier allows, and one more."""
    sender = await trial.sender(await trial.queue())
    remote, session = sender.link.link.remote, sender.link.link.session
    begun = session.remote if isinstance(session, Session) else None
    links = 0 if begun is None else begun.handle_max + 1
    size = ((remote.properties if remote is not None else None) or {}).get(BATCH_SIZE)
    below = await sender.offer(_many(MOST_MESSAGES), message_format=BATCH_FORMAT)
    above = await sender.offer(_many(MOST_MESSAGES + 1), message_format=BATCH_FORMAT)
    holds = links >= LINKS_PER_SESSION and below is None and (above is None or kind_of(above) is FailureKind.TOO_LARGE)
    told = f"{links} links a session; a size of batches is {'not announced' if size is None else f'announced, {size}'}"
    seen = f"a batch of {MOST_MESSAGES} messages: {below or 'accepted'}; of one more: {above or 'accepted'}"
    return Observation(holds, f"{told}; {seen}")


def _many(count: int) -> bytes:
    return batch([letter("1")] * count)


async def refuse_unanswerable(trial: Trial) -> Observation:
    """Send a request to `$management` whose reply has no link; that it is refused was seen, but not the condition."""
    path = await trial.queue()
    sender = await trial.sender(f"{path}{MANAGEMENT}")
    asked = write_request("1", "nowhere", {"operation": "com.microsoft:peek-message"}, {"from-sequence-number": 0})
    try:
        refused = await sender.offer(asked)
    except TimeoutError as error:
        return Observation(False, str(error))
    return Observation(refused is not None, f"refused: {refused}" if refused is not None else "accepted")


def _sized(size: int, message_format: int) -> bytes:
    if message_format != BATCH_FORMAT:
        return letter("1", body=bytes(size))
    share = size // 8
    return batch([letter(str(number), body=bytes(share - 64)) for number in range(8)])


async def end_idle_link(trial: Trial) -> Observation:
    """Leave a link alone until it is detached; without Manage, one to a backlog queue, to which nothing is sent."""
    try:
        path = await trial.queue()
    except NotPermittedError:
        if not trial.home.backlog:
            raise
        path = trial.home.backlog
    sender = await trial.sender(path)
    began = asyncio.get_running_loop().time()
    await asyncio.wait((sender.lost,), timeout=IDLE_SECONDS)
    if not sender.lost.done():
        return Observation(False, f"an idle link was still attached after {IDLE_SECONDS:g} s")
    error, lived = sender.lost.result(), asyncio.get_running_loop().time() - began
    return Observation(is_idle_detach(error), f"after {lived:.0f} s: {error}")


ENTITY_EXPERIMENTS: Final[Sequence[Experiment]] = (
    Experiment(
        name="disabled-entity",
        assumption="a disabled queue refuses links or messages with com.microsoft:entity-disabled",
        why="it counts towards failover, and a clean-up closes a queue to senders before it looks into it",
        run=refuse_disabled,
        deadline=120.0,
    ),
    Experiment(
        name="closed-to-senders",
        assumption="a queue that is closed to senders permits a peek, or a receive and release",
        why="a clean-up proves by either that a queue is empty before it deletes it",
        run=prove_closed,
        deadline=120.0,
    ),
    Experiment(
        name="closed-to-receivers",
        assumption="a queue that is closed to receivers accepts messages, or refuses them as disabled",
        why="either is right: an owner who closes an entity fails it over, or it fills up",
        run=send_to_closed,
        deadline=120.0,
    ),
    Experiment(
        name="deleted-entity",
        assumption="links of a deleted queue are detached with amqp:not-found or amqp:link:detach-forced",
        why="a pump makes its queue again then, and a sender takes another one",
        run=lose_deleted,
    ),
    Experiment(
        name="disabled-links",
        assumption="links of a queue that gets disabled are detached with amqp:link:detach-forced, or as disabled",
        why="a pump and a sender attach again then, and the refusal of that says that the queue is disabled",
        run=lose_disabled,
    ),
    Experiment(
        name="announced-limits",
        assumption="a session has 200 links or more; a batch of 4,500 messages is accepted, a larger one or not",
        why="our connections have 200 links a session; a gateway sends batches of up to 4,500 messages",
        run=read_limits,
    ),
    Experiment(
        name="reply-link",
        assumption="a request to $management whose reply-to names no link is refused",
        why="a gateway answers so, and a client must not wait for a reply that never comes",
        run=refuse_unanswerable,
    ),
    Experiment(
        name="full-entity",
        assumption="a full queue rejects a message with amqp:resource-limit-exceeded, and no other queue does",
        why="a full entity counts towards failover, and a full backlog queue leaves the rotation",
        run=refuse_full,
        deadline=FILL_SECONDS,
        is_slow=True,
    ),
    Experiment(
        name="timespan-max",
        assumption="a backlog queue keeps TimeSpan.MaxValue and its other settings, also after a change of status",
        why="parked messages must not expire, and an idle backlog queue must not be deleted",
        run=keep_longest_spans,
        needs_standard=True,
    ),
    Experiment(
        name="size-limits",
        assumption="messages and batches up to the link's limits are accepted, larger ones are too large",
        why="a message that fits the primary has to fit the backlog; batches are cut by these limits",
        run=refuse_large,
    ),
    Experiment(
        name="idle-detach",
        assumption="an idle link is detached with amqp:link:detach-forced after ten minutes, with a text about it",
        why="a pump of an empty queue expects this end, and reports no failure",
        run=end_idle_link,
        deadline=IDLE_SECONDS + 60,
        is_slow=True,
    ),
    Experiment(
        name="unlinked-connection",
        assumption="a connection without links stays, or is closed with amqp:connection:forced and a text about it",
        why="an idle pairing expects this end, and reports no failure",
        run=end_unlinked,
        deadline=UNLINKED_SECONDS + 60,
        is_slow=True,
    ),
)
