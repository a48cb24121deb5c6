"""The state of a pairing as the core's frozen values, for the engine's snapshot."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import asdict, replace
from typing import Final

from azure.servicebus.aio import ServiceBusClient

from paired_servicebus.core.accounting.billing import Meter
from paired_servicebus.core.backlog.depth_readings import DepthGrowth, growth, reading_now
from paired_servicebus.core.failover.pairing_machine import PairingMachine
from paired_servicebus.core.failover.send_router import Route
from paired_servicebus.core.model.entity_state import Entity, State
from paired_servicebus.core.model.snapshot import (
    NOWHERE,
    BilledView,
    EntityView,
    QueueView,
    RouteView,
    SyphonStatus,
    SyphonView,
    Trouble,
    TroubleKind,
)
from paired_servicebus.core.operator.targets import held_back, unseen
from paired_servicebus.core.operator.why_line import why
from paired_servicebus.pairing import sdk_internals
from paired_servicebus.pairing.management.backlog_queues import BacklogQueues
from paired_servicebus.pairing.monitoring.depth_poller import DepthPoller, ParkedFigures
from paired_servicebus.pairing.monitoring.message_looks import Peeks
from paired_servicebus.pairing.runtime.pairing_runtime import PairingRuntime, Tally
from paired_servicebus.pairing.syphon.syphon import Syphon

MAX_REASONS: Final = 5
"""Reasons for dead-lettering in a snapshot, for each queue."""

SILENT_SECONDS: Final = 5.0
"""Seconds without a token after which a credential is said to hang; less where `send_timeout` is."""
SLOW_SHARE: Final = 0.1
"""The share of `send_timeout` beyond which the entity's calls are slow (SPEC.md section 8)."""


def entities(steering: PairingRuntime, carried: Collection[str]) -> tuple[EntityView, ...]:
    """Return every entity, in the order of first sight. `carried`: paths without case of this process's senders."""
    now, parks = steering.clock(), any(not place.pulled for place in steering.machine.rotation.places)
    return tuple(
        _entity(
            entity,
            steering.tally(entity.path),
            now,
            parks=parks,
            throttled=steering.throttled_calls.waiting(entity.path),
            carried=entity.path.casefold() in carried,
            slow_beyond=SLOW_SHARE * steering.policy.send_timeout,
        )
        for entity in steering.machine.entities()
    )


def _entity(
    entity: Entity,
    tally: Tally,
    now: float,
    *,
    parks: bool,
    throttled: tuple[int, float | None],
    carried: bool,
    slow_beyond: float,
) -> EntityView:
    """Return one entity's view.

    parks: whether a backlog queue is in the rotation. throttled: its waiting calls. slow_beyond: seconds of a call.
    """
    p99 = tally.times.p99
    is_slow = p99 is not None and p99 > slow_beyond
    primary = tally.routes.get(Route())
    backlog = [sends for route, sends in tally.routes.items() if route.queue is not None]
    seconds = sum(span for span, _ in tally.recent)
    running = now - entity.left_primary_at if entity.left_primary_at is not None else 0.0
    return EntityView(
        path=entity.path,
        state=entity.state,
        since=entity.since,
        why=_why(entity, carried=carried) + (f"; slow: 99 of 100 calls take up to {p99:.1f} s" if is_slow else ""),
        route=_route(entity, tally) if parks or not entity.diverting else NOWHERE,
        sends_per_second=sum(count for _, count in tally.recent) / seconds if seconds else 0.0,
        accepted=primary.accepted if primary is not None else 0,
        diverted=sum(sends.accepted for sends in backlog),
        failed=sum(sends.failed for sends in tally.routes.values()),
        last_ping_at=entity.last_ping_at,
        last_ping_good=entity.last_ping_good,
        last_ping_text=entity.last_ping_text,
        missing_since=entity.missing_since,
        next_ping_at=entity.ping_due,
        pings=entity.pings,
        pings_sent=tally.pings_sent,
        pings_accepted=tally.pings_accepted,
        too_large=tally.too_large,
        failovers=entity.failovers,
        failbacks=entity.failbacks,
        seconds_failed_over=entity.seconds_failed_over + running,
        fails_over_at=entity.fails_over_at,
        pings_in_a_row=entity.pings_in_a_row,
        recent_pings=tuple(tally.recent_pings),
        sends=_sends(tally),
        refused=tally.refusals.total,
        refused_per_second=round(tally.refusals.per_second(now), 2),
        refused_since=tally.refusals.since(tally.accepted),
        refusals=tuple(tally.refusals.reasons.most_common()),
        first_failure_at=entity.first_failure_at,
        carried=carried,
        p99=None if p99 is None else round(p99, 4),
        is_slow=is_slow,
        throttled=throttled[0],
        throttled_since=throttled[1],
    )


def _why(entity: Entity, *, carried: bool) -> str:
    unseen_ = "" if carried else unseen(entity.state)
    return f"{why(entity)}; {unseen_}" if unseen_ else why(entity)


def _sends(tally: Tally) -> tuple[RouteView, ...]:
    used = sorted(tally.routes.items(), key=lambda pair: -1 if pair[0].queue is None else pair[0].queue)
    return tuple(RouteView(route=str(route), accepted=it.accepted, failed=it.failed) for route, it in used)


def _route(entity: Entity, tally: Tally) -> str:
    if not entity.diverting:
        return "primary"
    return str(tally.last_route) if tally.last_route.queue is not None else "backlog"


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
                read_at=sample.read_at if sample is not None else None,
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


def without_syphon(unmoved: Iterable[Trouble]) -> SyphonView:
    """Return the view of an engine without a syphon, with the messages that none is known to move."""
    unknown = (f"syphon unknown: {one.reason}" for one in unmoved if one.kind is TroubleKind.SYPHON_UNKNOWN)
    return SyphonView(status=SyphonStatus.OFF, text="; ".join(("this engine runs no syphon", *unknown)))


def syphon(view: SyphonView, machine: PairingMachine) -> SyphonView:
    """Return the syphon's view with the entities that an operator holds back."""
    held = held_back([entity.path for entity in machine.entities() if entity.state is State.FORCED])
    return replace(view, text=f"{view.text}; {held}") if held else view


def billed(meter: Meter) -> BilledView:
    return BilledView(**asdict(meter))


def silent_credentials(clients: Mapping[str, ServiceBusClient], send_timeout: float) -> Iterator[Trouble]:
    """Yield each client whose credential has given no token for long. clients: by name."""
    for name, client in clients.items():
        credential = sdk_internals.client_credential(client)
        silence = getattr(credential, "silence", 0.0)
        if silence >= min(SILENT_SECONDS, send_timeout):
            reason = f"{credential!r}, has given no token for {silence:.0f} s"
            yield Trouble(kind=TroubleKind.CREDENTIAL_SILENT, what=name, reason=reason)
