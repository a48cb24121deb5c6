"""Events to a timeline: one sentence each; repeats without news are merged with their number."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from paired_servicebus.pipeline.report.incident import TimelineAct, TimelineEntry

Row = dict[str, Any]
LONGEST: Final = 160
"""Characters of a reason."""


def timeline_of(rows: Sequence[Row]) -> tuple[TimelineEntry, ...]:
    """Return the moments of event rows, which are in the order of time."""
    moments: list[TimelineEntry] = []
    repeats: dict[str, int] = {}
    latest: dict[str, int] = {}
    for row in rows:
        tell = _TELLS.get(row["kind"])
        text = tell(row) if tell is not None else None
        if text is None:
            continue
        about = _about(row)
        key = f"{about}\0{text}" if row["kind"] in _REPEATING else ""
        if key and latest.get(about) is not None and moments[latest[about]].text.split(" (again")[0] == text:
            repeats[key] = repeats.get(key, 1) + 1
            index = latest[about]
            told = moments[index]
            moments[index] = TimelineEntry(at=told.at, about=about, text=f"{text} (again, {repeats[key]} times in all)")
            continue
        repeats.pop(key, None)
        latest[about] = len(moments)
        moments.append(TimelineEntry(at=row["ts"] / 1e6, about=about, text=text))
    return tuple(moments)


def acts_of(rows: Sequence[Row]) -> tuple[TimelineAct, ...]:
    """Return the operators' actions and their outcomes."""
    return tuple(
        TimelineAct(
            at=row["ts"] / 1e6,
            by=row["by"] or "",
            what=row["command"] or "",
            target=row["target"] or "",
            why=row["why"] or "",
            outcome=row["outcome"] or "not known: the engine ended first",
        )
        for row in rows
    )


def _about(row: Row) -> str:
    if row.get("entity"):
        return str(row["entity"])
    return f"backlog/{row['queue']}" if row.get("queue") is not None else ""


def _short(text: object) -> str:
    said = " ".join(str(text or "").split())
    return said if len(said) <= LONGEST else f"{said[: LONGEST - 1]}…"


def _state(row: Row) -> str:
    by = f" (by {row['by']})" if row["by"] else ""
    return f"{row['was']} → {row['now']}: {_short(row['why'])}{by}"


def _hand(what: str) -> Callable[[Row], str]:
    def tell(row: Row) -> str:
        why = f': "{_short(row["why"])}"' if row["why"] else ""
        return f"{what} by {row['by']}{why}"

    return tell


def _ping_accepted(row: Row) -> str:
    return "a ping was accepted"


def _ping_failed(row: Row) -> str:
    return f"a ping was {'throttled' if row['throttled'] else 'not accepted'}: {_short(row['reason'])}"


def _dead_lettered(row: Row) -> str:
    return f"dead-lettered: {_short(row['reason'])}"


_TELLS: Final[dict[str, Callable[[Row], str | None]]] = {
    "engine-started": lambda row: f"the engine started with {row['backlog_queues']} backlog queues",
    "engine-stopped": lambda row: f"the engine stopped: {_short(row['reason'])}",
    "state-changed": _state,
    "ping-accepted": _ping_accepted,
    "ping-failed": _ping_failed,
    "queue-pulled": lambda row: f"left the rotation: {_short(row['reason'])}",
    "queue-restored": lambda row: "is in the rotation again",
    "dead-lettered": _dead_lettered,
    "destination-failed": lambda row: f"the syphon could not deliver: {_short(row['reason'])}",
    "destination-healed": lambda row: "the syphon delivers again",
    "pump-stopped": lambda row: f"its pump stopped: {_short(row['reason'])}",
    "forced": _hand("forced"),
    "pinned": _hand("pinned"),
    "released": _hand("released"),
    "syphon-paused": _hand("the syphon was paused"),
    "syphon-resumed": _hand("the syphon was resumed"),
    "warned": lambda row: f"warning about {row['about']}: {_short(row['text'])}",
}
_REPEATING: Final = frozenset({"ping-accepted", "ping-failed", "dead-lettered", "destination-failed", "pump-stopped"})
