"""The values of a checked run beyond a rehearsal's: calls, pauses of a syphon, strangers and recreated queues."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from random import Random
from typing import NamedTuple

from paired_servicebus.simulation.run_plan import Plan, PlannedCall
from paired_servicebus.simulation.sim_namespaces import SimMessage


class PlannedPause(NamedTuple):
    """An operator's pause of one engine's syphon for a backlog queue, or for a destination."""

    at: float
    ends: float
    engine: int
    queue: int | None = None
    path: str = ""


class Stranger(NamedTuple):
    """A foreign message in a backlog queue: without a valid destination, or for a destination that never exists."""

    at: float
    queue: int
    malformed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class CampaignPlan(Plan):
    """One checked run."""

    calls: tuple[PlannedCall, ...]
    pauses: tuple[PlannedPause, ...] = ()
    strangers: tuple[Stranger, ...] = ()
    recreations: tuple[tuple[float, int], ...] = ()
    """Times at which a backlog queue is deleted and created again, with its index."""


def draw_message(random: Random, number: int, path: str, sessions: int, now: float) -> SimMessage:
    """Draw a new message of an application."""
    body = f"m{number}"
    session = f"s{int(random.random() * sessions)}" if sessions else None
    message = SimMessage(
        body, body, path, path.casefold() if session is None else f"{path.casefold()}/{session}", number
    )
    message.session_id = session
    draw = random.random()
    if draw < 0.25:
        _decorate(message, draw, now)
    return message


def _decorate(message: SimMessage, draw: float, now: float) -> None:
    if draw < 0.02:  # both: a time to live of seconds begins at the scheduled time
        message.time_to_live = timedelta(seconds=1 + int(draw * 6000))
        message.scheduled = datetime.fromtimestamp(now + 1 + int(draw * 25_000), UTC)
    elif draw < 0.10:
        message.time_to_live = timedelta(seconds=1 + int(draw * 6000))
    elif draw < 0.14:
        message.scheduled = datetime.fromtimestamp(now + 1 + int(draw * 500), UTC)
    elif draw < 0.145:
        message.poison = True
    else:
        message.properties = {"tenant": int(draw * 1000)}
