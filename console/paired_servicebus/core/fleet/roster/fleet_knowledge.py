"""Facts of the fleet for this engine's other rules: clean-up, the syphon's alarm, queue indices, readiness.

A silent engine may run: its queues stay in use, and its syphon is unknown, never absent.
"""

from __future__ import annotations

from typing import Final

from paired_servicebus.core.backlog.queue_usage import QueueUsage
from paired_servicebus.core.model.fleet_view import FleetEngine, FleetStatus, FleetView
from paired_servicebus.core.model.snapshot import Snapshot, SyphonStatus

CURRENT_SECONDS: Final = 300.0
"""Seconds since a reading of the reports within which an absence counts as known."""
_MOVING: Final = frozenset({SyphonStatus.IDLE, SyphonStatus.WAITING, SyphonStatus.RUNNING})
_BUSY: Final = frozenset({SyphonStatus.WAITING, SyphonStatus.RUNNING})


def usage_from(view: FleetView | None) -> QueueUsage | None:
    """Return the backlog queues that other engines of the fleet use; None: unknown, the board was never read.

    Queues of silent engines are used; whether their syphon moves messages is unknown, so it is not counted.
    """
    if view is None or view.read_at is None:
        return None
    others = _others(view)
    return QueueUsage(
        used=frozenset(index for one in others for index in one.queues),
        moved=_moved(others, _MOVING),
        busy=_moved(others, _BUSY),
    )


def syphons_elsewhere(view: FleetView | None) -> tuple[str, ...] | None:
    """Return the other reporting engines that run a syphon; None: unknown, the board was never read.

    An empty result proves the absence only while no engine of the view is silent and it has no trouble.
    """
    if view is None or view.read_at is None:
        return None
    return _names([one for one in _others(view) if one.status is FleetStatus.REPORTING])


def no_syphon_alarm(view: FleetView, own: Snapshot) -> str:
    """Return an alarm if messages are parked and the whole fleet is known to run no syphon; else empty.

    SPEC.md section 4.6: "an alarm once the fleet shows none". While an engine is silent or missing, or the boards are
    not read, that is unknown.
    """
    is_parked = own.parked is not None and own.parked.messages > 0
    if not is_parked or own.syphon.status is not SyphonStatus.OFF:
        return ""
    if view.read_at is None or own.at - view.read_at > CURRENT_SECONDS or view.trouble or view.missing:
        return ""
    if any(one.status is FleetStatus.SILENT for one in view.engines) or syphons_elsewhere(view):
        return ""
    return "messages are parked and no engine of the fleet runs a syphon: start one (enable_syphon = true)"


def _others(view: FleetView) -> list[FleetEngine]:
    me = (view.me.casefold(), view.my_boot)
    return [
        one for one in view.engines if one.status is not FleetStatus.ENDED and (one.engine.casefold(), one.boot) != me
    ]


def _moved(engines: list[FleetEngine], statuses: frozenset[SyphonStatus]) -> frozenset[int]:
    moving = (one for one in engines if one.status is FleetStatus.REPORTING and one.syphon in statuses)
    return frozenset(index for one in moving for index in one.queues)


def _names(engines: list[FleetEngine]) -> tuple[str, ...]:
    return tuple(sorted(one.engine for one in engines if one.syphon in _MOVING))
