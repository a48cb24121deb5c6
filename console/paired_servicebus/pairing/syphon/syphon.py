"""The syphon: one pump for each backlog queue, their results, and an operator's commands (SPEC.md section 8).

Two kinds of pump follow the same rules. The pump on our own AMQP is many times faster and preserves every AMQP type;
the other needs only the SDK. `pump = "auto"` selects the first, and the second if the namespaces reject the first or
the clients' settings are unreadable: for all queues, once, with the reason.

Commands re-drive dead letters, and move stranded messages of an unused queue. Each ends when nothing more comes, or
with the pairing, and returns one sentence. The sentence reports the moved messages and the wait, never an empty queue.
The guard decides who may run a command, and audits it.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Collection, Mapping, Set
from functools import partial
from typing import Any, Final
from uuid import UUID

from azure.core.exceptions import AzureError
from azure.servicebus import ServiceBusMessageState, ServiceBusReceivedMessage, ServiceBusSubQueue
from azure.servicebus.aio import ServiceBusClient
from azure.servicebus.exceptions import ServiceBusError

from paired_servicebus.core.backlog.backlog_totals import DepthRead
from paired_servicebus.core.backlog.queue_settings import queue_index
from paired_servicebus.core.errors import (
    EnvelopeError,
    IllegalEventError,
    RedriveError,
    WireError,
    WireTimeoutError,
    WireUnavailableError,
)
from paired_servicebus.core.model.message_view import MAX_LETTERS_BEFORE
from paired_servicebus.core.model.pairing_events import Warned
from paired_servicebus.core.model.verdict import FailureKind
from paired_servicebus.core.pump.pump_machine import NOT_STARTED, PumpProgress
from paired_servicebus.core.text.number_format import format_indices
from paired_servicebus.pairing.amqp_client import Endpoint, ReconnectingConnection, WireReceiver, WireSender, failure_of
from paired_servicebus.pairing.amqp_client.endpoint import SERVER_BUSY
from paired_servicebus.pairing.amqp_client.reconnecting import peek, update_disposition
from paired_servicebus.pairing.envelope_codec import broker_properties, strip_dead_letter
from paired_servicebus.pairing.management.backlog_queues import QueueRecreator
from paired_servicebus.pairing.runtime.deadlines import CLOSING, bounded
from paired_servicebus.pairing.runtime.pairing_runtime import PairingRuntime
from paired_servicebus.pairing.sending.sdk_messages import as_parked
from paired_servicebus.pairing.sending.sender_link import SdkSenderLink, close_link
from paired_servicebus.pairing.syphon.amqp_delivery import AmqpDelivery
from paired_servicebus.pairing.syphon.amqp_pump import RECENT, AmqpPump, Pump
from paired_servicebus.pairing.syphon.sdk_pump import SdkDelivery, SdkPump
from servicebus_amqp.encoding.performatives import ACCEPTED, RELEASED
from servicebus_amqp.protocol.links import DeliveryReceived, DispositionReceived

DEAD_LETTERS: Final = "/$DeadLetterQueue"
QUIET: Final = 3.0
"""Seconds without progress after which a command is done."""
PATIENCE: Final = 30.0
"""Seconds for each step of a namespace."""
PORTION: Final = 250
MAX_IN_DOUBT: Final = 50
"""Copies without an answer at once: a connection that breaks leaves no more of them in doubt."""
MAX_BUSY_TRIES: Final = 6
"""Tries in turn that a throttled queue refuses until a re-drive ends."""
BATCH: Final = 100
NONE: Final[frozenset[int]] = frozenset()
_DEFERRED: Final = 1
"""The state of a deferred message."""

log = logging.getLogger(__name__)


class AmqpRedriver:
    """A redriver on our own AMQP: a dead letter returns unchanged, bit for bit.

    rest: seconds without a try after the queue answered "server busy".
    """

    def __init__(self, wire: ReconnectingConnection, *, rest: float) -> None:
        self._wire = wire
        self._rest = rest

    async def redrive(self, path: str, numbers: frozenset[int] = NONE) -> str:
        """Move dead letters of this queue back; return a sentence with their number.

        Args:
            numbers: their sequence numbers; none: every present dead letter.

        Raises:
            IllegalEventError: more than MAX_LETTERS_BEFORE others are before the last of them; nothing was moved.
            RedriveError: the namespace failed on the way; it has the number of those moved.
            WireError: the namespace failed before anything was moved.
        """
        present = await self._numbers(path + DEAD_LETTERS, to=max(numbers, default=0))
        wanted = numbers & present.keys() if numbers else frozenset(present)
        gone = f"; no longer there: {format_indices(numbers - wanted)}" if numbers - wanted else ""
        if not wanted:
            return f"{path} has no such dead letter{gone}" if numbers else f"{path} has no dead letters"
        if sum(number <= max(wanted) for number in present) - len(wanted) > MAX_LETTERS_BEFORE:
            raise IllegalEventError(
                f"more than {MAX_LETTERS_BEFORE:,} dead letters are before these, and a queue is received from its "
                "start: re-drive older ones first, or all"
            )
        moved, reasons = await self._move(path, wanted, set(present))
        left = f"; {len(wanted) - len(moved)} stay: {', '.join(reasons)}" if len(moved) < len(wanted) else ""
        chosen = "selected " if numbers else ""
        return f"{len(moved)} of {len(wanted)} {chosen}dead letters of {path} were put back to work{left}{gone}"

    async def _move(self, path: str, wanted: Set[int], present: set[int]) -> tuple[set[int], list[str]]:
        """Move them, with a rest after each "server busy"; return what was moved, and why the others stay."""
        moved: set[int] = set()
        kept: dict[int, str] = {}
        tries = MAX_BUSY_TRIES
        while True:
            open_ones = wanted - moved - kept.keys()
            run = _RedriveRun(open_ones, sum(number <= max(open_ones) for number in present))
            try:
                await run.carry_out(self._wire, path)
            except WireError as error:
                copied = await self._complete_copied(path, run)
                raise _ended_early(path, len(moved | copied), run.in_doubt(copied), error) from error
            moved |= run.moved
            present -= run.moved
            kept |= run.kept
            tries = MAX_BUSY_TRIES if run.moved else tries - 1
            if not run.is_busy or not tries:
                break
            await asyncio.sleep(self._rest)
        reasons = list(dict.fromkeys(kept.values()))
        if run.is_busy:
            reasons.append(f"{path} is busy, after {MAX_BUSY_TRIES} tries")
        elif absent := wanted - moved - kept.keys():
            reasons += await self._why_absent(path + DEAD_LETTERS, absent)
        return moved, reasons

    async def _complete_copied(self, path: str, run: _RedriveRun) -> set[int]:
        """Complete the dead letters whose copies were accepted before the connection broke; return what was moved.

        Their locks outlive the link. Without this, a later re-drive would move the same letters again.
        """
        tokens = [UUID(bytes_le=tag) for tag in run.copied]
        try:
            if tokens:
                await update_disposition(self._wire, path + DEAD_LETTERS, tokens, "completed", timeout=PATIENCE)
        except WireError as error:
            log.warning("%s dead letters of %s were copied, and are not completed: %s", len(tokens), path, error)
            return run.moved
        return run.moved | set(run.copied.values())

    async def _why_absent(self, path: str, absent: Set[int]) -> list[str]:
        """Return why these dead letters were not handed out."""
        states = await self._numbers(path, to=max(absent))
        found = {number: states[number] for number in absent if number in states}
        counts = {
            "were moved by somebody else": len(absent) - len(found),
            "are deferred": sum(state == _DEFERRED for state in found.values()),
            "are locked by another receiver": sum(state != _DEFERRED for state in found.values()),
        }
        return [f"{count} {what}" for what, count in counts.items() if count]

    async def _numbers(self, path: str, *, to: int) -> dict[int, int]:
        """Return the present numbers with their states, at least up to `to` (0: all); later ones are no part of it."""
        found: dict[int, int] = {}
        number = 1
        while peeked := await peek(self._wire, path, from_number=number, count=PORTION, timeout=PATIENCE):
            read = map(broker_properties, peeked)
            found |= {one.sequence_number: one.state for one in read}
            if max(found) < number:  # without numbers the same would be peeked again
                break
            number = max(found) + 1
            if to and (number > to or len(found) > MAX_LETTERS_BEFORE + PORTION):
                break
        found.pop(0, None)
        return found


def _ended_early(path: str, moved: int, in_doubt: Set[int], error: Exception) -> RedriveError:
    doubt = f"in doubt, since they may be in it already: {format_indices(in_doubt)}; " if in_doubt else ""
    return RedriveError(
        f"the re-drive of {path} ended early, after {moved} dead letters were put back to work: {error}; "
        f"{doubt}the others stay: re-drive them again",
        moved=moved,
        in_doubt=tuple(sorted(in_doubt)),
    )


class _RedriveRun:
    """One pass over two links. A dead letter is completed after the queue has accepted its copy.

    Sends begin with one, and each acceptance allows one more at a time, so that a throttled queue gets few tries. After
    "server busy" nothing more is sent, and the pass ends with the answers that are due.

    Args:
        numbers: the dead letters to move.
        to_come: the deliveries until the last of them arrives.

    moved: the numbers of those completed. kept: why others stay. copied: by their lock tokens, those in the queue
    and not completed.
    """

    def __init__(self, numbers: Set[int], to_come: int) -> None:
        self.moved: set[int] = set()
        self.kept: dict[int, str] = {}
        self.copied: dict[bytes, int] = {}
        self.is_busy = False
        self._wanted = set(numbers)
        self._to_come = to_come
        self._most = 1
        self._ready: deque[tuple[DeliveryReceived, int]] = deque()
        self._sent: dict[bytes, tuple[int, int]] = {}
        """The delivery ids and numbers of copies without an answer, by lock token."""
        self._others: list[int] = []
        self._links: list[WireSender | WireReceiver] = []
        self._last = asyncio.get_running_loop().time()
        self._end: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def in_doubt(self, completed: Set[int]) -> set[int]:
        """Return the numbers of those that may be in the queue and are not completed."""
        return ({number for _, number in self._sent.values()} | set(self.copied.values())) - completed

    async def carry_out(self, wire: ReconnectingConnection, path: str) -> None:
        """Move them until nothing more comes. Raises WireError."""
        try:
            await self._open(wire, path)
            await self._wait(path)
        finally:
            await self._close()

    async def _open(self, wire: ReconnectingConnection, path: str) -> None:
        self._sender = await wire.sender(path, on_outcome=self._on_outcome, on_lost=self._on_lost, timeout=PATIENCE)
        self._links.append(self._sender)
        self._receiver = await wire.receiver(
            path + DEAD_LETTERS,
            on_delivery=self._on_delivery,
            on_settled=self._on_settled,
            on_lost=self._on_lost,
            timeout=PATIENCE,
        )
        self._links.append(self._receiver)
        self._receiver.grant(min(PORTION, self._to_come))

    async def _wait(self, path: str) -> None:
        """Wait until every message is settled, or until a pause without progress. Raises WireError."""
        loop = asyncio.get_running_loop()
        while not self._end.done():
            await asyncio.wait((self._end,), timeout=QUIET)
            is_owed = bool(self._sent or self.copied)
            if not self._end.done() and loop.time() - self._last >= (PATIENCE if is_owed else QUIET):
                if is_owed:
                    raise WireTimeoutError(f"{path} did not answer for {PATIENCE:g} s")
                return
        self._end.result()

    async def _close(self) -> None:
        """Release the other messages, and detach."""
        if not self._end.done():
            self._end.set_result(None)
        for delivery_id in (*self._others, *(event.delivery_id for event, _ in self._ready)):
            self._receiver.settle(delivery_id, RELEASED)
        for link in reversed(self._links):
            await link.detach()

    def _on_delivery(self, event: DeliveryReceived) -> None:
        if self._end.done():  # in flight while this ends: it would be locked for minutes
            self._receiver.settle(event.delivery_id, RELEASED)
            return
        self._last = asyncio.get_running_loop().time()
        self._to_come -= 1
        if self._receiver.credit < min(PORTION, self._to_come) // 2:
            self._receiver.grant(min(PORTION, self._to_come))
        number = broker_properties(event.payload).sequence_number
        if number not in self._wanted:
            self._others.append(event.delivery_id)  # released at the end: earlier, it would come again
            return
        self._ready.append((event, number))
        self._send_more()

    def _send_more(self) -> None:
        while self._ready and len(self._sent) < self._most and not self.is_busy and self._sender.is_up:
            event, number = self._ready.popleft()
            try:
                payload = strip_dead_letter(event.payload)
            except EnvelopeError as error:
                self._keep(event.delivery_id, number, str(error))
                continue
            self._sent[event.tag] = event.delivery_id, number
            self._sender.send(payload, event.tag)
        self._end_if_done()

    def _on_outcome(self, event: DispositionReceived) -> None:
        delivery_id, number = self._sent.pop(event.tag, (None, 0))
        if delivery_id is None:
            return
        self._last = asyncio.get_running_loop().time()
        failure = failure_of(event.state, self._sender.path)
        if failure is None:
            self._most = min(self._most + 1, MAX_IN_DOUBT)
            self.copied[event.tag] = number
            self._receiver.settle(delivery_id, ACCEPTED, settled=False)
        elif failure.condition == SERVER_BUSY:
            self.is_busy = True
            self._others.append(delivery_id)
        else:
            self._keep(delivery_id, number, str(failure))
        self._send_more()

    def _on_settled(self, event: DispositionReceived) -> None:
        number = self.copied.pop(event.tag, 0)
        self._last = asyncio.get_running_loop().time()
        if number:
            failure = failure_of(event.state, self._receiver.path)
            if failure is None:
                self.moved.add(number)
                self._wanted.discard(number)
            else:
                self._keep(None, number, f"copied, and not completed: {failure}")
        self._end_if_done()

    def _keep(self, delivery_id: int | None, number: int, reason: str) -> None:
        self.kept[number] = reason
        self._wanted.discard(number)
        if delivery_id is not None:
            self._others.append(delivery_id)

    def _end_if_done(self) -> None:
        if (self.is_busy or not self._wanted) and not self._sent and not self.copied and not self._end.done():
            self._end.set_result(None)

    def _on_lost(self, error: WireError) -> None:
        if not self._end.done():
            self._end.set_exception(error)


async def redrive_by_sdk(
    steering: PairingRuntime, client: ServiceBusClient, path: str, numbers: frozenset[int] = NONE
) -> str:
    """Move dead letters back as `AmqpRedriver.redrive`, with the SDK's usual loss of some property types.

    Raises RedriveError.
    """
    began, left = steering.clock(), set(numbers)
    moved = before = 0
    link = SdkSenderLink(client, path, steering.tasks)
    receiver = client.get_queue_receiver(path, sub_queue=ServiceBusSubQueue.DEAD_LETTER)
    hand: ServiceBusReceivedMessage | None = None
    try:
        await bounded(receiver.__aenter__(), PATIENCE, "opening")
        while received := await bounded(receiver.receive_messages(BATCH, max_wait_time=QUIET), PATIENCE, "receiving"):
            ours = [one for one in received if _was_there(one, began) and (not numbers or one.sequence_number in left)]
            left -= {message.sequence_number for message in ours}
            before += len(received) - len(ours)
            for hand in ours:
                await _send_copy(steering, link, hand)
                await bounded(receiver.complete_message(hand), PATIENCE, "completing a dead letter")
                moved, hand = moved + 1, None
            if (numbers and not left) or before > MAX_LETTERS_BEFORE or not (ours or numbers):
                break
    except (ServiceBusError, AzureError, OSError) as error:  # TimeoutError too
        doubt = set() if hand is None else {hand.sequence_number or 0}
        raise _ended_early(path, moved, doubt, error) from error
    finally:
        await link.close()
        await close_link(receiver)
    chosen = "selected " if numbers else ""
    missing = f"; not found: {format_indices(left)}" if left else ""
    return f"{moved} {chosen}dead letters of {path} were put back to work{missing}"


async def _send_copy(steering: PairingRuntime, link: SdkSenderLink, message: ServiceBusReceivedMessage) -> None:
    """Send a dead letter's copy; after "server busy" again, with a rest before each try."""
    for more in reversed(range(MAX_BUSY_TRIES)):
        try:
            await link.send([as_parked(message.raw_amqp_message)], steering.policy.send_timeout)
            return
        except ServiceBusError as error:
            if not more or steering.judge(error).kind is not FailureKind.BUSY:
                raise
        await asyncio.sleep(steering.policy.throttle_wait)


def _was_there(message: ServiceBusReceivedMessage, began: float) -> bool:
    """Return whether it was there before the command; messages that return from it are not part of the command."""
    enqueued = message.enqueued_time_utc
    return enqueued is None or enqueued.timestamp() < began


def unused_index(path: str, queues: Mapping[int, str]) -> int:
    """Return the index of a backlog queue that this pairing does not use.

    Args:
        queues: the paths of those in use by index, which may have gaps.

    Raises:
        IllegalEventError: it is in use, or is not a backlog queue of this pairing.
    """
    prefix = next(iter(queues.values())).rpartition("/")[0]
    index = queue_index(path)
    if index is None or path.rpartition("/")[0].casefold() != prefix.casefold():
        raise IllegalEventError(
            f"{path} is not a backlog queue of this pairing; their names are {prefix}/0, {prefix}/1, …"
        )
    if index in queues:
        raise IllegalEventError(f"{path} is in use: its pump moves its messages")
    return index


async def empty_queue(steering: PairingRuntime, worker: Pump[Any], client: ServiceBusClient) -> str:
    """Run a pump on a queue of the client until nothing more comes; return a sentence about its work and the rest."""
    progress = worker.progress
    task = steering.tasks.start(worker.run(), name=f"move stranded messages of {worker.path}")
    if task is None:
        return "the pairing is being closed"
    try:
        seen, since = (-1, -1, -1), steering.clock()
        while steering.clock() - since < QUIET and not task.done():
            now = (progress.moved, progress.dead_lettered, progress.set_aside)
            if now != seen or progress.text == NOT_STARTED:
                seen, since = now, steering.clock()
            await asyncio.sleep(0.1)
    finally:
        is_idle = worker.is_idle
        task.cancel()
        await asyncio.wait((task,), timeout=CLOSING)
        await worker.close()
    parts = [f"{progress.moved} messages of {worker.path} were moved"]
    if progress.dead_lettered:
        parts.append(f"{progress.dead_lettered} dead-lettered")
    if progress.set_aside:
        parts.append(f"{progress.set_aside} wait in it: {progress.text}")
    if progress.failing_since is not None:
        parts.append(progress.text)
    why = "locked by another receiver" if is_idle else "locked by another receiver, or released at the end"
    active = await _count_active(client, worker.path)
    if active is None:
        parts.append(f"and an unknown number stays, {why}")
    elif active:
        parts.append(f"and {active} stay, {why}")
    return ", ".join(parts) + f"; then none came for {QUIET:g} s"


async def _count_active(client: ServiceBusClient, path: str) -> int | None:
    """Return the number of messages that a queue would deliver, or has locked; None: unknown."""
    receiver = client.get_queue_receiver(path)
    active, number = 0, 1
    try:
        async with asyncio.timeout(PATIENCE):
            while peeked := await receiver.peek_messages(PORTION, sequence_number=number):
                active += sum(message.state is ServiceBusMessageState.ACTIVE for message in peeked)
                number = 1 + max(message.sequence_number or 0 for message in peeked)
    except (ServiceBusError, AzureError, OSError):  # TimeoutError too
        return None
    finally:
        await close_link(receiver)
    return active


HISTORY: Final = 60
TICK: Final = 1.0
RETRY_SECONDS: Final = 30.0
"""Seconds between tries of pumps that cannot work and may not be replaced."""


class ConnectionPair:
    """Both namespaces' connections of our own, and the delivery on them."""

    def __init__(self, steering: PairingRuntime, primary: ServiceBusClient, secondary: ServiceBusClient) -> None:
        self.primary = ReconnectingConnection(Endpoint.of(primary), name="syphon")
        self.secondary = ReconnectingConnection(Endpoint.of(secondary), name="syphon")
        self.courier = AmqpDelivery(steering, self.primary)

    async def close(self) -> None:
        """Close both connections cleanly, within seconds."""
        self.courier.close()
        await asyncio.gather(self.primary.close(), self.secondary.close())


class Syphon:
    """All pumps of one engine.

    Args:
        primary, secondary: the namespaces' clients; the destinations are in the primary.
        queues: the backlog queues' paths by index.
        remaker: makes a missing queue in use again; None: it stays missing.
    """

    def __init__(
        self,
        steering: PairingRuntime,
        primary: ServiceBusClient,
        secondary: ServiceBusClient,
        queues: Mapping[int, str],
        remaker: QueueRecreator | None = None,
    ) -> None:
        self._remaker = remaker
        self._steering = steering
        self._primary = primary
        self._secondary = secondary
        self._queues = queues
        self._courier = SdkDelivery(steering, primary)
        self._wires: ConnectionPair | None = None
        self._unusable: WireUnavailableError | None = None
        """The reason why requested pumps on our own AMQP are unavailable, or None."""
        self.pumps = {index: self._pump(index, path, PumpProgress()) for index, path in queues.items()}
        if steering.policy.pump != "sdk":
            self._use_amqp()
        self.history: deque[float] = deque(maxlen=HISTORY)
        """Messages a second, in each of the latest counted seconds."""
        self._counted = 0
        self._counted_at = 0.0
        self._read_at: dict[int, float] = {}
        """Times of the readings that the pumps got, by queue."""

    def _pump(self, index: int, path: str, progress: PumpProgress, wires: ConnectionPair | None = None) -> Pump[Any]:
        """Return a queue's pump: on these connections of our own; None: on the SDK."""
        is_in_use = self._queues.get(index) == path  # a missing stranded queue has nothing left to move
        remake = partial(self._remaker.remake, index) if self._remaker is not None and is_in_use else None
        kept: dict[str, Any] = {"index": index, "path": path, "progress": progress, "remake": remake}
        if wires is None:
            return SdkPump(self._steering, self._secondary, self._courier, **kept)
        return AmqpPump(self._steering, wires.secondary, wires.courier, **kept)

    def _use_amqp(self) -> None:
        """Replace the pumps by pumps on our own AMQP, or store the reason why not."""
        try:
            if self._wires is None:
                self._wires = ConnectionPair(self._steering, self._primary, self._secondary)
        except WireUnavailableError as error:
            self._unusable = error
            return
        self._unusable = self._wires.courier.unusable = None
        wires = self._wires
        for index, pump in self.pumps.items():
            self.pumps[index] = self._pump(index, pump.path, pump.progress, wires)

    def start(self) -> None:
        """Start the pumps as tasks of the pairing."""
        self._counted_at = self._steering.clock()
        for index, pump in self.pumps.items():
            self._steering.tasks.start(self._work(index), name=f"pump of {pump.path}")
        self._steering.tasks.start(self._watch(), name="the watch over destinations")

    async def _work(self, index: int) -> None:
        """Run one queue's pump, and one of the other kind if the first cannot work here."""
        while True:
            if self._unusable is None:
                try:
                    await self.pumps[index].run()
                except WireUnavailableError as error:
                    self._unusable = error
            elif self._steering.policy.pump == "auto":
                await self._replace(index, self._unusable)
                await self.pumps[index].run()
            else:
                self.pumps[index].report_failure(str(self._unusable), retry_in=RETRY_SECONDS)
                await asyncio.sleep(RETRY_SECONDS)
                if self._unusable is not None:
                    self._use_amqp()

    async def _replace(self, index: int, error: WireUnavailableError) -> None:
        steering, before = self._steering, self.pumps[index]
        if not any(pump.progress.note for pump in self.pumps.values()):
            text = f"the syphon moves messages through the SDK, more slowly: {error}"
            steering.announce(Warned(at=steering.clock(), about="syphon", text=text))
        before.progress.note = f"through the SDK: {error}"
        await before.close()
        self.pumps[index] = self._pump(index, before.path, before.progress)

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(TICK)
            if self._wires is not None:
                self._wires.courier.watch(self._steering.clock())

    async def close(self) -> None:
        """Settle messages in flight, for a moment, and close all links. The pumps have ended with the tasks."""
        await asyncio.gather(*(pump.close() for pump in self.pumps.values()))
        if self._wires is not None:
            await self._wires.close()
        await self._courier.close()

    # -- commands -----------------------------------------------------------------------------------------------------

    async def redrive(self, queue: int, numbers: Collection[int] = ()) -> str:
        """Move dead letters of a backlog queue back into it; return a sentence about the result.

        Args:
            numbers: their sequence numbers; default: all that are there.

        Raises:
            IllegalEventError: there is no such backlog queue, or too many dead letters are before those.
            RedriveError: the namespace failed on the way; it has the number of those moved.
            WireError: the namespace failed before anything was moved.
        """
        if queue not in self._queues:
            raise IllegalEventError(
                f"this pairing uses no backlog queue {queue}; it uses {format_indices(self._queues)}"
            )
        path, chosen = self._queues[queue], frozenset(numbers)
        if self._wires is None or self._unusable is not None:
            return await redrive_by_sdk(self._steering, self._secondary, path, chosen)
        redriver = AmqpRedriver(self._wires.secondary, rest=self._steering.policy.throttle_wait)
        return await redriver.redrive(path, chosen)

    async def move_stranded(self, path: str) -> str:
        """Move the messages of an unused backlog queue to their destinations; return a sentence about it.

        Raises:
            IllegalEventError: the queue is in use, or is not a backlog queue of this pairing.
        """
        wires = self._wires if self._unusable is None else None
        pump = self._pump(unused_index(path, self._queues), path, PumpProgress(), wires)
        return await empty_queue(self._steering, pump, self._secondary)

    # -- status -------------------------------------------------------------------------------------------------------

    def count(self) -> None:
        """Add the rate since the last call to the history."""
        now, moved = self._steering.clock(), self.moved
        seconds = max(now - self._counted_at, 0.001)
        self.history.append((moved - self._counted) / seconds)
        self._counted, self._counted_at = moved, now

    def know(self, found: Mapping[int, DepthRead | None]) -> None:
        """Pass each pump a new reading of its queue that was made while it moved nothing."""
        for index, pump in self.pumps.items():
            sounding = found.get(index)
            if sounding is None or sounding.at <= self._read_at.get(index, 0.0):
                continue
            self._read_at[index] = sounding.at
            if sounding.at - (pump.progress.last_moved_at or 0.0) > RECENT:
                pump.holds(sounding.depth.messages - sounding.depth.scheduled)

    @property
    def moved(self) -> int:
        """Messages moved since the engine started."""
        return sum(pump.progress.moved for pump in self.pumps.values())

    @property
    def aside(self) -> int:
        """Messages deferred until their destinations accept them."""
        return sum(pump.progress.set_aside for pump in self.pumps.values())

    @property
    def per_second(self) -> float:
        """Messages moved in the latest counted second."""
        return self.history[-1] if self.history else 0.0

    @property
    def moves_now(self) -> bool:
        """Whether it moved messages in the latest counted second, or since."""
        return self.per_second > 0 or self.moved != self._counted
