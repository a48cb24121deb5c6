"""The asyncio side of the core's machine: it passes events in, performs the effects and wakes waiting tasks.

`tell` is synchronous and costs a healthy send next to nothing. Counters for the screen are kept here. Receipts are the
truth about messages; they go to `on_event` before anything that depends on them.

`EventLog` writes one line for each fact about a failover that an operator needs (SPEC.md section 12), to the logger
`paired_servicebus.pairing`. It reports changes of an entity's state, backlog queues that leave or rejoin the rotation,
the beginning and end of refused calls, and warnings. No line is written per message or per call. The rate is bounded. A
subject gets MAX_LINES a minute; further lines are counted, and the last of them is written with their number after the
minute. Warnings of one kind are collected for a second, then for a minute.

The SDK warns of each connection that a namespace ends, for every link on it. The pairing receives the same failures,
judges them and logs the consequences, so a filter drops these records. Records at INFO and below, of an application's
receivers, and of its senders outside the pairing are unchanged.
"""

from __future__ import annotations

import asyncio
import logging
import random
import traceback
from collections import Counter, deque
from collections.abc import Callable, Collection, Coroutine, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, Final, TypeVar
from weakref import WeakSet, WeakValueDictionary

from azure.servicebus.aio import ServiceBusClient

from paired_servicebus.core.accounting.refused_calls import (
    CallEpisode,
    Refusals,
    RefusedCredentials,
    ThrottledCalls,
    closed_reason,
)
from paired_servicebus.core.accounting.send_times import Buckets, SendTimes
from paired_servicebus.core.errors import PairingClosedError, PairingError
from paired_servicebus.core.failover.pairing_machine import (
    Announce,
    Effect,
    PairingMachine,
    ProbeEntity,
    ProbeQueue,
    SendPing,
)
from paired_servicebus.core.failover.send_router import Route
from paired_servicebus.core.model import pairing_events as e
from paired_servicebus.core.model.entity_state import DIVERTING, WELL, State
from paired_servicebus.core.model.pairing_events import Event, QueuePulled, QueueRestored, StateChanged, Warned
from paired_servicebus.core.model.policy import Policy
from paired_servicebus.core.model.snapshot import Meter
from paired_servicebus.core.model.verdict import CREDENTIALS, FailureKind, Judge, Judgement
from paired_servicebus.core.operator.alarms import ALARM, OVER, Severity
from paired_servicebus.core.text.masking import masked
from paired_servicebus.core.text.number_format import plural
from paired_servicebus.core.text.untrusted_text import one_line
from paired_servicebus.pairing import sdk_internals
from paired_servicebus.pairing.runtime.deadlines import Clock, InFlight, TaskOwner

MAX_LINES: Final = 6
"""Lines of one subject in FOLD_SECONDS: two failovers, each with its beginning and its end."""
FOLD_SECONDS: Final = 60.0
COLLECT_SECONDS: Final = 1.0
MAX_CHARACTERS: Final = 500
"""Characters of a line."""
MAX_REASONS: Final = 3
"""Reasons in the line about the end of refused calls."""

log = logging.getLogger(__name__)
event_log = logging.getLogger("paired_servicebus.pairing")


@dataclass(slots=True)
class _Subject:
    """One subject's written and pending lines."""

    due: float
    """When the pending lines are written; without any, when the count starts again."""
    left: int
    """Lines that may still be written immediately."""
    waiting: int = 0
    level: int = logging.INFO
    text: str = ""
    """The first pending warning, else the latest line."""


class EventLog:
    """The log of one pairing.

    Args:
        policy: the options in force, for predictions in lines.
    """

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._subjects: dict[tuple[str, str], _Subject] = {}
        self.writers: dict[type[Event], Callable[[Any], None]] = {
            StateChanged: self._state_changed,
            QueuePulled: lambda event: self._write_queue(event, logging.WARNING, f"left the rotation: {event.reason}"),
            QueueRestored: lambda event: self._write_queue(event, logging.INFO, "is in the rotation again"),
            Warned: self._warned,
        }

    def refused(self, entity: str, reason: str, at: float) -> None:
        """Write that calls begin to be refused."""
        self._write(("calls", entity), logging.WARNING, f"sends to {entity} are refused at their callers: {reason}", at)

    def refused_no_longer(self, entity: str, episode: CallEpisode) -> None:
        """Write the totals of refused calls."""
        reasons = ", ".join(f"{reason} {count}" for reason, count in episode.reasons.most_common(MAX_REASONS))
        messages = plural(episode.number, "message")
        text = (
            f"sends to {entity} are refused no longer: {messages} in "
            f"{max(episode.latest - episode.began, 0.1):.1f} s ({reasons})"
        )
        self._write(("calls", entity), logging.INFO, text, episode.latest)

    def tick(self, at: float) -> None:
        """Write the pending lines that are due."""
        for key, subject in tuple(self._subjects.items()):
            if subject.due > at:
                continue
            if not subject.waiting:
                del self._subjects[key]
                continue
            self._write_waiting(subject)
            subject.due = at + FOLD_SECONDS

    def close(self) -> None:
        """Write the pending lines."""
        for subject in self._subjects.values():
            if subject.waiting:
                self._write_waiting(subject)
        self._subjects.clear()

    # -- events -----------------------------------------------------------------------------------------------

    def _state_changed(self, event: StateChanged) -> None:
        level, text = self._change(event)
        if text:
            self._write(("entity", event.entity), level, f"{event.entity} {text}", event.at)

    def _change(self, event: StateChanged) -> tuple[int, str]:
        was, now = event.was, event.now
        if now == State.SUSPECT:
            waits = f"; fails over in {self._policy.failover_interval:g} s unless a send succeeds"
            return logging.WARNING, f"is suspect: {event.why}{waits if self._policy.failover_interval else ''}"
        if now in DIVERTING and was not in DIVERTING:
            left = "was failed over by hand" if now == State.FORCED else "failed over"
            is_unknown = FailureKind.NOT_FOUND in event.why  # a misspelt name: its sends succeed from now on
            advice = "; check the name, the primary namespace has no such entity" if is_unknown else ""
            return logging.WARNING, f"{left}, sends go to the backlog: {event.why}{advice}"
        if was in DIVERTING and now not in DIVERTING:
            return logging.INFO, f"failed back, sends go to the primary: {event.why}"
        if was == State.SUSPECT and now == State.HEALTHY:
            return logging.INFO, f"is healthy again: {event.why}"
        return logging.INFO, f"is {now}: {event.why}" if event.by else ""

    def _write_queue(self, event: QueuePulled | QueueRestored, level: int, text: str) -> None:
        self._write(("queue", str(event.queue)), level, f"backlog queue {event.queue} {text}", event.at)

    def _warned(self, event: Warned) -> None:
        if event.about == ALARM:  # a line for each that begins or ends
            name = event.text.removeprefix(OVER).partition(": ")[0]
            is_mild = event.text.startswith(OVER) or name.startswith(Severity.NOTICE)
            self._write(("alarm", name), logging.INFO if is_mild else logging.WARNING, f"alarm: {event.text}", event.at)
            return
        key = ("warning", event.about)
        subject = self._subjects.get(key)
        if subject is None:
            subject = self._subjects[key] = _Subject(due=event.at + COLLECT_SECONDS, left=0)
        if not subject.waiting:
            subject.level, subject.text = logging.WARNING, f"{event.about}: {event.text}"
        subject.waiting += 1

    # -- lines ------------------------------------------------------------------------------------------------

    def _write(self, key: tuple[str, str], level: int, text: str, at: float) -> None:
        subject = self._subjects.get(key)
        if subject is None or (subject.due <= at and not subject.waiting):
            subject = self._subjects[key] = _Subject(due=at + FOLD_SECONDS, left=MAX_LINES)
        if subject.left:
            subject.left -= 1
            _say(level, text)
        else:
            subject.waiting += 1
            subject.level, subject.text = level, text

    @staticmethod
    def _write_waiting(subject: _Subject) -> None:
        more = subject.waiting - 1
        _say(subject.level, f"{subject.text} (and {more} more like it)" if more else subject.text)
        subject.waiting = 0


def _say(level: int, text: str) -> None:
    """Write a line; an application's log handler that raises stops no send."""
    try:
        event_log.log(level, "%s", one_line(masked(text), most=MAX_CHARACTERS))
    except Exception:  # noqa: BLE001 - a foreign handler may raise anything
        if logging.raiseExceptions:  # as logging itself does for its own handlers
            traceback.print_exc()


_links: Final[WeakValueDictionary[str, Any]] = WeakValueDictionary()
_clients: Final[WeakSet[ServiceBusClient]] = WeakSet()

Link = TypeVar("Link")


def register_link(link: Link) -> Link:
    """Register an SDK sender or receiver whose failures the pairing judges; return it."""
    name = getattr(link, "client_identifier", None)
    if isinstance(name, str):
        _links[name] = link
    return link


def register_client(client: ServiceBusClient) -> None:
    """Register a client whose links all belong to the pairing."""
    _clients.add(client)


class _Unjudged(logging.Filter):
    """A filter that drops warnings about the pairing's connections."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether the record is logged."""
        name = sdk_internals.connection_name(record)
        if record.levelno < logging.WARNING or name is None:
            return True
        return name not in _links and not any(name in sdk_internals.link_names(client) for client in tuple(_clients))


_UNJUDGED: Final = _Unjudged()
for _name in sdk_internals.LOGGERS:
    logging.getLogger(_name).addFilter(_UNJUDGED)  # a logger's children do not inherit its filters


OnEvent = Callable[[e.Event], object]
Together = Callable[[], AbstractContextManager[None]]
RECENT_PINGS: Final = 20
"""The number of latest pings per entity whose outcomes are kept."""
REFUSAL_SECONDS: Final = 30.0
"""Seconds that a ping and a send may be late before a refused credential is no alarm any more."""
OPERATIONS_SECONDS: Final = 10.0
"""Minimum seconds between two entries of billed operations."""


@dataclass(slots=True)
class Sends:
    """One entity's messages over one route: since the start, and since the last count."""

    accepted: int = 0
    failed: int = 0
    new_accepted: int = 0
    new_failed: int = 0


@dataclass(slots=True)
class Tally:
    """One entity's counters."""

    routes: dict[Route, Sends] = field(default_factory=dict)
    new_failures: Counter[tuple[Route, FailureKind]] = field(default_factory=Counter)
    """Messages that failed since the last count."""
    last_route: Route = field(default_factory=Route)
    recent: deque[tuple[float, int]] = field(default_factory=lambda: deque(maxlen=10))
    """Messages accepted in each of the last counted spans: seconds, messages."""
    pings_sent: int = 0
    pings_accepted: int = 0
    recent_pings: deque[float | None] = field(default_factory=lambda: deque(maxlen=RECENT_PINGS))
    """Seconds that the latest pings took; None: not accepted."""
    sent: Sends | None = None
    """The counters of sends to the primary, also in `routes`; None: there was no send."""
    too_large: int = 0
    """Messages the primary accepted that would not survive a failover (SPEC.md section 7.4)."""
    refusals: Refusals = field(default_factory=Refusals)
    times: SendTimes = field(default_factory=SendTimes)
    """How long calls took."""

    @property
    def accepted(self) -> int:
        """Messages accepted on any route."""
        return sum(sends.accepted for sends in self.routes.values())

    def count_ping(self, took: float | None) -> None:
        """Count a ping that was accepted after `took` seconds; None: it was not."""
        self.pings_accepted += took is not None
        self.recent_pings.append(took if took is None else round(took, 4))

    def on(self, route: Route) -> Sends:
        """Return the counters of a route."""
        found = self.routes.get(route)
        if found is None:
            found = self.routes[route] = Sends()
            if route.queue is None:
                self.sent = found
        return found


_COUNTED: Final = frozenset(each.name for each in fields(e.OperationsCounted))
"""The meter's counts that the journal keeps."""


def _count_of(entity: str, route: Route, sends: Sends, at: float, seconds: float) -> e.SendsCounted:
    return e.SendsCounted(
        at=at, entity=entity, route=str(route), accepted=sends.new_accepted, failed=sends.new_failed, seconds=seconds
    )


Perform = Callable[[SendPing | ProbeEntity | ProbeQueue], Coroutine[Any, Any, None]]
"""Makes a ping or a probe, and reports its outcome."""


class PairingRuntime:
    """One pairing's machine at work.

    Args:
        machine: the rules and the state.
        tasks: owns pings, probes and the count.
        judge: the verdict on exceptions (SPEC.md section 5).
        on_event: called with every journalled event, in order and synchronously.
        clock: seconds since the epoch; None: a clock that never jumps. Timers run on the event loop's clock: after this
            clock was set forward, call `look`.
    """

    def __init__(
        self,
        machine: PairingMachine,
        tasks: TaskOwner,
        judge: Judge,
        on_event: OnEvent | None,
        *,
        clock: Callable[[], float] | None = None,
    ) -> None:
        self.machine = machine
        self.tasks = tasks
        self.judge = judge
        self.clock: Callable[[], float] = clock or Clock()
        self.refused_credentials = RefusedCredentials(2 * (machine.policy.ping_primary_interval + REFUSAL_SECONDS))
        self.throttled_calls = ThrottledCalls()
        self.meter = Meter()
        self._metered = Meter()
        self._operations_at = 0.0
        self.tallies: dict[str, Tally] = {}
        self._refusing: dict[str, Refusals] = {}
        """The entities with an unfinished episode of refused calls, by path."""
        self.event_log = EventLog(machine.policy)
        self.perform: Perform | None = None
        self.turn: Callable[[str, bool], object] = lambda entity, diverts: None
        """Called when an entity's sends go to the backlog from now on (True), or to the primary again."""
        self.together: Together = nullcontext
        """A context around consecutive announcements, so that a listener may write them together at its exit."""
        self._on_event = on_event
        self._change: asyncio.Future[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._armed: float | None = None
        self._ended: PairingError | None = None
        self.in_flight = InFlight()
        self.settled: Collection[str] = frozenset() if machine.policy.journal == "all" else machine.settled
        """Paths without case of the entities whose accepted sends are only counted, without events or receipts."""

    @property
    def policy(self) -> Policy:
        return self.machine.policy

    def draw(self) -> float:
        """Return a random number in [0, 1) for the machine's choices."""
        return random.random()

    def tally(self, entity: str) -> Tally:
        key = entity.casefold()
        found = self.tallies.get(key)
        if found is None:
            found = self.tallies[key] = Tally()
        return found

    def take_send_times(self) -> dict[str, Buckets]:
        """Return how long calls took since this was asked last, by entity; those without calls are missing."""
        taken = {entity.path: self.tally(entity.path).times.take() for entity in self.machine.entities()}
        return {path: counts for path, counts in taken.items() if counts}

    # -- events -------------------------------------------------------------------------------------------------

    def tell(self, event: e.Event) -> None:
        """Step the machine and perform its effects."""
        kind = event.__class__
        if kind is e.SendAccepted or kind is e.SendFailed:
            self._count(event)  # type: ignore[arg-type] # by its class
        effects = self.machine.step(event)
        if kind is e.SendAccepted and not effects:
            return  # the healthy path: no deadline has moved
        for effect in effects:
            self._perform(effect)
        if self.machine.next_deadline != self._armed:
            self._arm()

    def probe(self, entity: str) -> None:
        """Probe the entity from now on while it has no sends."""
        self.machine.probe(entity, at=self.clock())
        self._arm()

    def queue_answered(self, queue: int) -> None:
        """Restore a backlog queue whose link could be opened, while all queues are out of the rotation."""
        if self.machine.rotation.is_all_out:
            self.tell(e.QueueProbed(at=self.clock(), queue=queue, accepted=True))

    def announce(self, event: e.Event) -> None:
        """Log and publish an event that moves no state."""
        write = self.event_log.writers.get(event.__class__)
        if write is not None:
            write(event)
        if self._on_event is None:
            return
        try:
            self._on_event(event)
        except Exception:
            log.exception("a listener failed on %s", type(event).__name__)

    def publish(self, events: Sequence[e.Event]) -> None:
        """Announce a pump's events together: receipts precede the settlements that need them (SPEC.md section 11)."""
        with self.together():
            for event in events:
                self.announce(event)
        if e.DestinationHealed in map(type, events):
            self.changed()

    def warn(self, about: str, text: str) -> None:
        """Announce a remark for the operator."""
        self.announce(e.Warned(at=self.clock(), about=about, text=text))

    def refuse(self, entity: str, messages: int, reason: str) -> None:
        """Count a call that ends in an error, by the messages that the caller still owns."""
        at, tally = self.clock(), self.tally(entity)
        if tally.refusals.add(messages, reason, at=at, accepted=tally.accepted):
            self._refusing[entity] = tally.refusals
            self.event_log.refused(entity, reason, at)

    def refuse_credential(self, side: str, what: str, judgement: Judgement) -> None:
        """Note a failure at the "primary" or "secondary"; warn, once a minute, if it refused our credential."""
        if judgement.kind not in CREDENTIALS:
            return
        text = self.refused_credentials.refuse(side, what, judgement.reason, at=self.clock())
        if text:
            self.warn(side, text)

    def _count(self, event: e.SendAccepted | e.SendFailed) -> None:
        tally = self.tally(event.entity)
        if tally.last_route.queue != event.queue:
            tally.last_route = Route(event.queue)
        sends = tally.on(tally.last_route)
        if isinstance(event, e.SendAccepted):
            self.refused_credentials.accept("secondary" if event.queue is not None else "primary", event.entity)
            sends.accepted += event.messages
            sends.new_accepted += event.messages
        else:
            sends.failed += event.messages
            sends.new_failed += event.messages
            tally.new_failures[tally.last_route, event.failure] += event.messages
        if event.queue is None:
            self.meter.sends += event.messages
        else:
            self.meter.parked += event.messages

    def _perform(self, effect: Effect) -> None:
        if isinstance(effect, Announce):
            self.announce(effect.event)
            self._see_to_links(effect.event)
            self.changed()
        elif self.perform is None:
            raise RuntimeError(f"{effect} came before the pairing was open")
        else:
            if not isinstance(effect, ProbeQueue):
                self.tally(effect.entity).pings_sent += 1
                self.meter.pings += 1
            self.tasks.start(self.perform(effect), name=str(effect))

    def _see_to_links(self, event: e.Event) -> None:
        """Update links for a state change, before waiting tasks wake."""
        if not isinstance(event, e.StateChanged):
            return
        if event.was in WELL and event.now not in WELL:
            self.tally(event.entity).refusals.begin_outage()
        diverted, diverts = event.was in DIVERTING, event.now in DIVERTING
        if diverts is not diverted:
            self.tally(event.entity).refusals.turn(event.at)
            self.turn(event.entity, diverts)

    # -- waiting ----------------------------------------------------------------------------------------------

    def changed(self) -> None:
        """Wake all tasks that wait for a change."""
        change, self._change = self._change, None
        if change is not None and not change.done():
            change.set_result(None)

    async def change(self, until: float) -> None:
        """Wait for the next change, at most until the time `until`."""
        if self._change is None:
            self._change = asyncio.get_running_loop().create_future()
        await asyncio.wait([self._change], timeout=max(0.0, until - self.clock()))

    def _arm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._armed = self.machine.next_deadline
        if self._armed is not None and self._ended is None:
            delay = max(0.0, self._armed - self.clock())
            self._timer = asyncio.get_running_loop().call_later(delay, self._tick)

    def look(self) -> None:
        """Handle overdue timers after the clock was set forward, and wake waiting tasks."""
        if self.machine.next_deadline is not None and self.machine.next_deadline <= self.clock():
            self._tick()
        self.changed()

    def _tick(self) -> None:
        self._armed = None
        now = self.clock()
        quiet = self.machine.quiet.next()
        if quiet is not None and quiet <= now:
            self._report_counts(now)
        self.tell(e.Ticked(at=now))
        if self._armed is None:
            self._arm()

    # -- once a second ----------------------------------------------------------------------------------------

    async def count_once(self, after: float = 1.0) -> None:
        """Sleep, then sum up the sends of that time."""
        began = self.clock()
        await asyncio.sleep(after)
        now = self.clock()
        self._sum_up(now, now - began)

    def _report_counts(self, at: float) -> None:
        """Report the sends since the last count, before an entity counts as quiet."""
        for entity in self.machine.entities():
            sent = self.tally(entity.path).sent
            if sent is not None and sent.new_accepted:
                self.tell(_count_of(entity.path, Route(), sent, at, 0.0))

    def _sum_up(self, at: float, seconds: float) -> None:
        for entity in self.machine.entities():
            tally = self.tally(entity.path)
            accepted = 0
            for route, sends in tally.routes.items():
                if sends.new_accepted or sends.new_failed:
                    accepted += sends.new_accepted
                    count = _count_of(entity.path, route, sends, at, round(seconds, 3))
                    self.announce(count)
                    if route.queue is None:
                        self.tell(count)
                    sends.new_accepted = sends.new_failed = 0
            tally.recent.append((seconds, accepted))
            tally.times.count()
            self._count_failures(at, entity.path, tally)
        self._count_operations(at)
        self._settle_refusals(at)
        self.event_log.tick(at)

    def _settle_refusals(self, at: float) -> None:
        for entity, refusals in tuple(self._refusing.items()):
            episode = refusals.over(at)
            if episode is not None:
                del self._refusing[entity]
                self.event_log.refused_no_longer(entity, episode)

    def _count_failures(self, at: float, entity: str, tally: Tally) -> None:
        if not tally.new_failures:
            return
        failures, tally.new_failures = tally.new_failures, Counter()
        for (route, kind), count in failures.items():
            if count:  # a link that could not be opened counts no message
                self.announce(e.FailuresCounted(at=at, entity=entity, route=str(route), failure=kind, count=count))

    def _count_operations(self, at: float) -> None:
        """Announce billed operations, at most every OPERATIONS_SECONDS seconds."""
        if at < self._operations_at or self.meter == self._metered:
            return
        self._operations_at = at + OPERATIONS_SECONDS
        now, before = asdict(self.meter), asdict(self._metered)
        self._metered = replace(self.meter)
        self.announce(
            e.OperationsCounted(at=at, **{name: now[name] - before[name] for name in now if name in _COUNTED})
        )

    # -- the end ----------------------------------------------------------------------------------------------

    def write_rest(self) -> None:
        """Write the log's pending lines and the totals of refused calls."""
        for entity, refusals in self._refusing.items():
            if refusals.episode is not None:
                self.event_log.refused_no_longer(entity, refusals.episode)
        self._refusing.clear()
        self.event_log.close()

    @property
    def ended(self) -> PairingError | None:
        """Why nothing can be sent any more; None: sends are possible."""
        return self._ended

    def end(self, reason: PairingError) -> None:
        """Refuse new sends and stop the timers; waiting tasks wake and raise."""
        self._ended = self._ended or reason
        if self._timer is not None:
            self._timer.cancel()
        self.settled = frozenset()
        self.in_flight.close()
        self.changed()

    def refuse_when_ended(self, *, in_doubt: bool = False) -> None:
        """Raise the reason why nothing can be sent any more: PairedClientError or PairingClosedError.

        Raises ForeignLoopError in another event loop than the pairing's. `in_doubt`: a part of the call may have
        arrived.
        """
        self.tasks.refuse_elsewhere()
        if self._ended is not None:
            error = type(self._ended)(str(self._ended))
            if isinstance(error, PairingClosedError):
                error.in_doubt = in_doubt
            raise error from self._ended.__cause__

    def enter_call(self, entity: str = "", messages: int = 0) -> InFlight:
        """Return the context of a call that sends `messages` to `entity`; raises as `refuse_when_ended`."""
        if self._ended is not None and messages:
            self.refuse(entity, messages, closed_reason(self._ended))
        self.refuse_when_ended()
        return self.in_flight

    async def await_in_flight(self, within: float) -> None:
        """Wait for the calls under way, at most `within` seconds; after `end`."""
        with suppress(TimeoutError):  # the links are cut next, and they raise
            async with asyncio.timeout(within):
                await self.in_flight.empty.wait()
