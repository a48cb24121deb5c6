"""The state of a pairing as the core's frozen values, for the engine's snapshot.

`SyphonReport` has this engine's evidence about its syphon, for paired_servicebus.core.backlog.syphon_status_rules.
Parked messages that no known syphon moves are a warning, and an alarm when their number stalls. Known syphons are this
engine's and those of the same user's engines on this machine (SPEC.md section 4.6).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Final

from azure.servicebus.aio import ServiceBusClient

from paired_servicebus.core.backlog.depth_readings import DepthGrowth, PollReason, QueueUsage, growth, reading_now
from paired_servicebus.core.backlog.queue_settings import BacklogQueues
from paired_servicebus.core.backlog.syphon_status_rules import (
    StallDetector,
    Standstill,
    SyphonEvidence,
    UnavailableDestinations,
    are_healthy,
    judge,
)
from paired_servicebus.core.failover.pairing_machine import PairingMachine
from paired_servicebus.core.failover.send_router import Route
from paired_servicebus.core.model.entity_state import FACTS, WELL, Entity, State
from paired_servicebus.core.model.snapshot import (
    NOWHERE,
    EntityView,
    QueueView,
    RouteView,
    SyphonStatus,
    SyphonView,
    Trouble,
    TroubleKind,
)
from paired_servicebus.core.operator.targets import STILL_MOVED, held_back, unseen
from paired_servicebus.core.operator.why_line import why
from paired_servicebus.core.pump.destination_circuits import MAX_BACKOFF_SECONDS, Circuit
from paired_servicebus.core.pump.pump_machine import most_parked
from paired_servicebus.core.text.number_format import format_indices
from paired_servicebus.core.text.time_format import clock
from paired_servicebus.pairing import sdk_internals
from paired_servicebus.pairing.monitoring.backlog_inspection import DepthPoller, ParkedFigures, UnusedQueues
from paired_servicebus.pairing.monitoring.message_looks import MAX_REASONS, Peeks
from paired_servicebus.pairing.runtime.pairing_runtime import PairingRuntime
from paired_servicebus.pairing.syphon.amqp_pump import RECENT
from paired_servicebus.pairing.syphon.syphon import Syphon

STUCK_SECONDS: Final = 30.0
"""Seconds of a pump's failure, or of unexplained messages, after which the syphon counts as stuck."""


class SyphonReport:
    """The syphon's status by its moved messages; updated once a second."""

    def __init__(self, steering: PairingRuntime, poller: DepthPoller, figures: ParkedFigures) -> None:
        self._steering = steering
        self._poller = poller
        self._figures = figures
        self._pumps = figures.pumps
        figures.is_held_up = lambda: self.is_held_up
        self._standstill = Standstill()
        self._unexplained: dict[int, int] = {}
        """Unexplained messages by queue, where there are any."""

    @property
    def is_held_up(self) -> bool:
        """Whether messages are known to wait for a destination or an operator."""
        return bool(self._away()) or bool(self._paused_queues())

    def follow(self) -> None:
        """Compare moved and waiting messages; after the figures were updated."""
        unexplained = {index: self._unexplained_in(index) for index in self._pumps}
        self._unexplained = {index: messages for index, messages in unexplained.items() if messages}
        view = self._figures.view
        is_empty = view is not None and not view.messages and view.known == view.queues
        self._standstill.look(
            self._steering.clock(),
            unexplained=sum(unexplained.values()),
            empty_at=(view.read_at or 0.0) if view is not None and is_empty else 0.0,
            read_at=self._read_at(self._unexplained),
            moved_at=max(self._last_moved(), self._others_at()),
            away=bool(self._away()),
        )

    def status(self, moves_now: bool, usage: QueueUsage, syphons: Collection[str]) -> tuple[SyphonStatus, str]:
        """Judge the evidence.

        Args:
            moves_now: whether messages were moved in the last second.
            usage, syphons: of other engines.
        """
        now, last, away = self._steering.clock(), self._last_moved(), self._away()
        view, order, paused = self._figures.view, self._steering.machine.pauses.whole, ""
        if order is not None:
            why = f' "{order.why}"' if order.why else ""
            paused = f"paused here by {order.by} {clock(order.at)}{why}: {STILL_MOVED}"
        is_proven = self._standstill.is_proven(STUCK_SECONDS + self._steering.policy.send_timeout)
        return judge(
            SyphonEvidence(
                paused=paused,
                failing=self._failing(now),
                moves_now=moves_now,
                moved_lately=now - last <= RECENT,
                pace=self._steering.machine.pace.why(now),
                parked=view.messages if view is not None else None,
                is_whole=view is not None and view.known == view.queues,
                away=away,
                paused_queues=self._paused_queues(),
                lies_still=sum(self._unexplained.values()) if is_proven else 0,
                takes=last > away.since + self._steering.policy.send_timeout,
                others=bool(usage.moved or syphons or self._others_at()),
                others_busy=bool(self._unexplained.keys() & usage.busy),
                last_moved_at=last,
            )
        )

    def _failing(self, now: float) -> str:
        for pump in self._pumps.values():
            since = pump.progress.failing_since
            if since is not None and now - since >= STUCK_SECONDS:
                return f"backlog queue {pump.index}: {pump.progress.text}"
        return ""

    def _read_at(self, queues: Collection[int]) -> float | None:
        """Return the oldest reading of these queues; None: one has no reading."""
        reads = [self._poller.found[index] for index in queues]
        return None if None in reads else min((one.at for one in reads if one is not None), default=None)

    def _unexplained_in(self, index: int) -> int:
        if not self._steering.machine.may_pump(index):
            return 0
        sample = self._poller.found[index]
        later = sample.depth.scheduled or 0 if sample is not None else 0
        messages = self._figures.queues[index].messages
        return max(0, messages - self._pumps[index].progress.set_aside - later)

    def _last_moved(self) -> float:
        return max((pump.progress.last_moved_at or 0.0 for pump in self._pumps.values()), default=0.0)

    def _others_at(self) -> float:
        return max((figure.others_at or 0.0 for figure in self._figures.queues.values()), default=0.0)

    def _paused_queues(self) -> str:
        paused = [index for index in sorted(self._steering.machine.pauses.queues) if self._figures.parked(index)]
        return f"backlog {'queue' if len(paused) == 1 else 'queues'} {format_indices(paused)}" if paused else ""

    # -- destinations -------------------------------------------------------------------------------------------------

    def _away(self) -> UnavailableDestinations:
        machine = self._steering.machine
        diverting = [entity for entity in machine.entities() if entity.diverting]
        paused, circuits = machine.pauses.destinations, self._circuits()
        since = [circuit.since for circuit in circuits] + [entity.left_primary_at or 0.0 for entity in diverting]
        return UnavailableDestinations(
            outage=tuple(entity.path for entity in diverting if entity.state is State.FAILED_OVER),
            refused=tuple((circuit.path, circuit.reason) for circuit in circuits),
            forced=tuple(entity.path for entity in diverting if entity.state is State.FORCED),
            paused=tuple(paused.values()),
            since=max(since, default=0.0),
        )

    def _circuits(self) -> list[Circuit]:
        """Return the open circuits of destinations without another reason, if their last answer is still current."""
        machine = self._steering.machine
        circuits = machine.destinations.open
        if not circuits:
            return []  # the usual case, before a scan of many entities
        entities = {entity.path.casefold(): entity for entity in machine.entities()}
        paused = machine.pauses.destinations
        return [one for key, one in circuits.items() if key not in paused and self._speaks(one, entities.get(key))]

    def _speaks(self, circuit: Circuit, entity: Entity | None) -> bool:
        """Return whether a destination's last answer is still current.

        It is not if it is older than all parked messages, or if the entity is healthy since and no message is left to
        try it with.
        """
        if entity is not None and entity.diverting:
            return False  # listed as an outage or an order
        if circuit.failed_at < self._standstill.empty_at:
            return False
        healthy = entity is not None and entity.state is State.HEALTHY
        return not healthy or self._steering.clock() < circuit.retry_at + MAX_BACKOFF_SECONDS


class UnmovedMessages:
    """The messages in queues without a known syphon.

    Args:
        has_syphon: whether this engine runs one, which moves messages out of all queues in use.
    """

    def __init__(
        self, steering: PairingRuntime, poller: DepthPoller, unused: UnusedQueues, *, has_syphon: bool
    ) -> None:
        self.syphons: tuple[str, ...] = ()
        """The other engines known to run a syphon for the same namespaces."""
        self._steering = steering
        self._poller = poller
        self._unused = unused
        self._has_syphon = has_syphon
        self._stalled = StallDetector()

    def reasons(self, *, aside: int) -> frozenset[PollReason]:
        """Return the rules' reasons for reading the depths. `aside`: messages that a syphon here holds."""
        found, queues = self._poller.reasons(aside=aside), self._queues()
        if self._has_syphon:
            return found | {PollReason.SYPHON}
        unmoved = queues and (self._parked(queues)[0] or self._poller.parked_since)
        return found | {PollReason.UNMOVED} if unmoved else found

    def follow(self) -> None:
        """Compare the newest reading with the one before."""
        messages, read_at = self._parked(self._queues())
        healthy = are_healthy(self._steering.machine.entities())
        self._stalled.read(messages, at=read_at, healthy=healthy)

    def troubles(self) -> Iterator[Trouble]:
        """Yield a stalled backlog, and parked messages of which no syphon is known."""
        stalled = self._stalled.trouble
        if stalled is not None:
            yield stalled
        queues = self._queues()
        messages, _ = self._parked(queues)
        if not messages:
            return
        said = "1 message is" if messages == 1 else f"{messages} messages are"
        where, end = "", f"{said} parked, and no syphon is known here; one of another host or user may run"
        if len(queues) < len(self._poller.found):
            where = f"backlog queues {format_indices(queues)}"
            end = f"{said} parked there; set the same backlog_queue_count where the syphon runs"
        yield Trouble(kind=TroubleKind.SYPHON_UNKNOWN, what=where, reason=end)

    def _queues(self) -> frozenset[int]:
        if self._has_syphon:
            return frozenset()
        queues, moved = frozenset(self._poller.found), self._unused.usage.moved
        if not self.syphons:
            return queues
        return queues - moved if moved else frozenset()

    def _parked(self, queues: Collection[int]) -> tuple[int, float]:
        """Return the messages in these queues when last read, and the time of the oldest reading."""
        read = [one for index, one in self._poller.found.items() if one is not None and index in queues]
        return sum(one.depth.messages for one in read), min((one.at for one in read), default=0.0)


SILENT_SECONDS: Final = 5.0
"""Seconds without a token after which a credential is said to hang; less where `send_timeout` is."""
UNANSWERED_SECONDS: Final = 5.0
"""Seconds without an answer after which a call waits (SPEC.md section 12)."""
SLOW_SHARE: Final = 0.1
"""The share of `send_timeout` beyond which the entity's calls are slow (SPEC.md section 8)."""


def entities(
    steering: PairingRuntime, carried: Collection[str], unanswered: Callable[[str], float] = lambda _: 0.0
) -> tuple[EntityView, ...]:
    """Return every entity, in the order of first sight.

    carried: paths without case of this process's senders. unanswered: returns the seconds of an entity's oldest call
    without an answer, 0 for none.
    """
    now, parks = steering.clock(), any(not place.pulled for place in steering.machine.rotation.places)
    return tuple(
        _entity(steering, one, now, unanswered(one.path), parks=parks, carried=one.path.casefold() in carried)
        for one in steering.machine.entities()
    )


def _entity(
    steering: PairingRuntime, entity: Entity, now: float, unanswered: float, *, parks: bool, carried: bool
) -> EntityView:
    """Return one entity's view. parks: whether a backlog queue is in the rotation."""
    tally, throttled = steering.tally(entity.path), steering.throttled_calls.waiting(entity.path, now)
    p99 = tally.times.p99
    is_slow = p99 is not None and p99 > SLOW_SHARE * steering.policy.send_timeout
    slow = f"slow: 99 of 100 calls take up to {p99:.1f} s" if is_slow else ""
    remarks = (why(entity), "" if carried else unseen(entity.state), slow)
    route = "backlog" if tally.last_route.queue is None else str(tally.last_route)
    by_route = sorted(tally.routes.items(), key=lambda pair: -1 if pair[0].queue is None else pair[0].queue)
    primary = tally.routes.get(Route())
    backlog = [sends for route, sends in tally.routes.items() if route.queue is not None]
    seconds = sum(span for span, _ in tally.recent)
    running = now - entity.left_primary_at if entity.left_primary_at is not None else 0.0
    return EntityView(
        **{name: getattr(entity, name) for name in FACTS}
        | {"seconds_failed_over": entity.seconds_failed_over + running},
        why="; ".join(part for part in remarks if part),
        route="primary" if not entity.diverting else route if parks else NOWHERE,
        sends_per_second=sum(count for _, count in tally.recent) / seconds if seconds else 0.0,
        accepted=primary.accepted if primary is not None else 0,
        diverted=sum(sends.accepted for sends in backlog),
        failed=sum(sends.failed for sends in tally.routes.values()),
        next_ping_at=entity.ping_due,
        pings_sent=tally.pings_sent,
        pings_accepted=tally.pings_accepted,
        too_large=tally.too_large,
        recent_pings=tuple(tally.recent_pings),
        sends=tuple(RouteView(route=str(used), accepted=it.accepted, failed=it.failed) for used, it in by_route),
        refused=tally.refusals.total,
        refused_per_second=round(tally.refusals.per_second(now), 2),
        refused_since=tally.refusals.since(tally.accepted),
        refusals=tuple(tally.refusals.reasons.most_common()),
        first_failure_kind=entity.first_failure_kind or "",
        refused_in_outage=0 if entity.state in WELL else tally.refusals.in_outage,
        refused_at=tally.refusals.latest_at,
        carried=carried,
        p99=None if p99 is None else round(p99, 4),
        is_slow=is_slow,
        throttled=throttled[0],
        throttled_since=throttled[1],
        unanswered_since=now - unanswered if unanswered >= UNANSWERED_SECONDS else None,
    )


def queues(
    steering: PairingRuntime,
    found: BacklogQueues,
    poller: DepthPoller,
    peeks: Peeks,
    syphon_: Syphon | None,
    figures: ParkedFigures,
) -> tuple[QueueView, ...]:
    """Return every backlog queue in use, by index."""
    views: list[QueueView] = []
    for place, path in zip(steering.machine.rotation.places, found.paths.values(), strict=True):
        sample = poller.found.get(place.index)
        parked = figures.parked(place.index)
        grown = _growth(poller, place.index, parked, steering.clock())
        progress = syphon_.pumps[place.index].progress if syphon_ is not None else None
        views.append(
            QueueView(
                index=place.index,
                path=path,
                in_rotation=not place.pulled,
                pulled_since=place.since if place.pulled else None,
                pulled_reason=place.reason,
                is_unsafe=place.withheld,
                depth=sample.depth.messages if sample is not None else None,
                dead_lettered=sample.depth.dead_lettered if sample is not None else None,
                size_bytes=sample.depth.size_bytes if sample is not None else None,
                read_at=sample.at if sample is not None else None,
                read_every=poller.every,
                moved=progress.moved if progress is not None else 0,
                pump_text=progress.line if progress is not None else "",
                scheduled=sample.depth.scheduled if sample is not None else None,
                set_aside=progress.set_aside if progress is not None else 0,
                growth=round(grown.messages, 2) if grown is not None else None,
                bytes_growth=round(grown.size_bytes, 1) if grown is not None else None,
                limit_bytes=found.limit(place.index),
                parked=parked,
                differences=found.differences(place.index),
                dead_reasons=tuple(progress.dead_reasons.most_common(MAX_REASONS)) if progress is not None else (),
                dead_letters=peeks.dead[place.index],
                oldest=peeks.oldest[place.index],
            )
        )
    return tuple(views)


def _growth(poller: DepthPoller, index: int, parked: int | None, now: float) -> DepthGrowth | None:
    """Return a queue's growth by its readings and the present figure; None: unknown."""
    readings = tuple(poller.readings[index])
    if readings and parked is not None:
        readings = (*readings, reading_now(readings[-1], parked, now))
    return growth(readings)


def without_syphon(unmoved: UnmovedMessages) -> SyphonView:
    """Return the view of an engine without a syphon, with the messages that none is known to move."""
    unknown = (f"syphon unknown: {one.reason}" for one in unmoved.troubles() if one.kind is TroubleKind.SYPHON_UNKNOWN)
    text = "; ".join(("this engine runs no syphon", *unknown))
    return SyphonView(status=SyphonStatus.OFF, text=text, elsewhere=unmoved.syphons)


def syphon(
    running: Syphon, machine: PairingMachine, status: SyphonStatus, text: str, elsewhere: tuple[str, ...]
) -> SyphonView:
    """Return the syphon's counts, with its status and sentence, and the entities that an operator holds back."""
    held = held_back([entity.path for entity in machine.entities() if entity.state is State.FORCED])
    progress = [pump.progress for pump in running.pumps.values()]
    return SyphonView(
        status=status,
        text=f"{text}; {held}" if held else text,
        per_second=running.per_second,
        history=tuple(running.history),
        moved=running.moved,
        dead_lettered=sum(one.dead_lettered for one in progress),
        paused_queues=tuple(sorted(machine.pauses.queues)),
        paused_destinations=tuple(machine.pauses.destinations.values()),
        destinations=most_parked(progress),
        elsewhere=elsewhere,
    )


def silent_credentials(clients: Mapping[str, ServiceBusClient], send_timeout: float) -> Iterator[Trouble]:
    """Yield each client whose credential has given no token for long. clients: by name."""
    for name, client in clients.items():
        credential = sdk_internals.client_credential(client)
        silence = getattr(credential, "silence", 0.0)
        if silence >= min(SILENT_SECONDS, send_timeout):
            reason = f"{credential!r}, has given no token for {silence:.0f} s"
            yield Trouble(kind=TroubleKind.CREDENTIAL_SILENT, what=name, reason=reason)
