"""Rows of one entity's history as the pipeline hands them to episodes.py."""

from __future__ import annotations

from typing import Any

SECOND = 1_000_000
T0 = 1_790_000_000 * SECOND
Row = dict[str, Any]


class Told:
    """One engine's tale: each call is a row, `at` seconds after T0."""

    def __init__(self, engine: str = "e1", boot: str = "b1", entity: str = "orders") -> None:
        self._header = {"engine": engine, "boot": boot, "entity": entity, "key": entity.lower()}
        self._seq = 0

    def _row(self, kind: str, at: float, **more: Any) -> Row:
        self._seq += 1
        return {**self._header, "seq": self._seq, "ts": T0 + round(at * SECOND), "kind": kind, **more}

    def changed(self, at: float, was: str, now: str, why: str = "because") -> Row:
        return self._row("state-changed", at, was=was, now=now, why=why)

    def ping(self, at: float, end: str = "accepted") -> Row:
        return self._row(f"ping-{end}", at)

    def act(self, at: float, what: str, by: str = "ada", why: str = "maintenance") -> Row:
        return self._row(what, at, by=by, why=why)

    def tally(self, at: float, what: str, n: int) -> Row:
        return {**self._row("tally", at, what=what, n=n), "seq": 0, "boot": ""}

    def engine(self, at: float, what: str, boot: str = "b1") -> Row:
        return {**self._row(f"engine-{what}", at), "boot": boot}


def outage(told: Told | None = None) -> list[Row]:
    """Suspect at 0 s, failed over at 1 s, 30 parked, back at 20 s, the backlog empty at 40 s."""
    it = told or Told()
    return [
        it.changed(0, "healthy", "suspect", "timeout"),
        it.changed(1, "suspect", "failed over", 'no send accepted for 1 s after "timeout"'),
        it.tally(9, "diverted", 30),
        it.ping(10, "sent"),
        it.ping(12, "failed"),
        it.ping(19, "sent"),
        it.ping(20, "accepted"),
        it.changed(20, "failed over", "healthy", "a ping was accepted"),
        it.tally(29, "moved", 20),
        it.tally(39.5, "dead-lettered", 1),
        it.tally(40, "moved", 9),
    ]
