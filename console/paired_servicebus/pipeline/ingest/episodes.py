"""Episodes: from the first failure of an entity to its empty backlog. Pure: rows go in, episodes come out.

One entity's history, of all engines, is folded in order of time. An episode belongs to one engine, which fails over by
itself; parked messages belong to the entity, whichever syphon moves them. A late row (from a journal file found after
newer ones) is sorted in while it is at most HORIZON behind the newest row; a later one still counts in `late`.

    suspect ──▶ failed over ──▶ first ping accepted ──▶ failed back ──▶ backlog empty
        └──▶ recovered: it never failed over

`backlog_empty_ts` is the time when the moved and dead-lettered messages equal the parked ones, by this journal's
receipts, in steps of 10 s. Messages that other machines park or move are not counted.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, Final

from paired_servicebus.core.model.entity_state import DIVERTING, State

HORIZON: Final = 15 * 60 * 1_000_000
"""Microseconds that rows may be late and still find their place: as late as Service Bus itself may be."""
NEAR: Final = 2_000_000
"""An act that opens an episode may stand just before it."""

WITHDRAWN: Final = "withdrawn"
"""The outcome of a reported episode that a late row showed to be part of another one."""

Row = Mapping[str, Any]
Episode = dict[str, Any]
_STATES: Final = {state.value for state in State}
_DIVERTING: Final = {state.value for state in DIVERTING}
_ACTS: Final = ("forced", "pinned", "released")


class EpisodeHistory:
    """One entity's history so far. `episodes` are those that a row was added to, by id."""

    def __init__(self, text: str | None = None) -> None:
        kept = json.loads(text) if text else {}
        self._base: dict[str, Any] = kept.get("base") or _nothing()
        self._tail: list[dict[str, Any]] = kept.get("tail") or []
        self._rows: int = kept.get("rows", 0)
        self._told: dict[str, Episode] = kept.get("told") or {}
        self.episodes: dict[str, Episode] = {}

    def add(self, rows: Iterable[Row]) -> None:
        """More of it, in any order."""
        new = [{name: value for name, value in row.items() if value is not None} for row in rows]
        self._rows += len(new)
        self._tail = sorted(self._tail + new, key=_place)
        if not self._tail:
            return
        horizon = self._tail[-1]["ts"] - HORIZON
        settled = [row for row in self._tail if row["ts"] < horizon]
        self._tail = [row for row in self._tail if row["ts"] >= horizon]
        done = self._fold(self._base, settled)
        fresh = self._fold(json.loads(json.dumps(self._base)), self._tail)
        gone = {
            name: {**one, "outcome": WITHDRAWN, "version": self._rows}
            for name, one in self._told.items()
            if name not in done and name not in fresh
        }
        self.episodes = gone | done | fresh
        self._told = fresh

    def text(self) -> str:
        """Return the state that `EpisodeHistory` is restored from."""
        return json.dumps({"base": self._base, "tail": self._tail, "rows": self._rows, "told": self._told})

    def _fold(self, state: dict[str, Any], rows: Iterable[dict[str, Any]]) -> dict[str, Episode]:
        changed: dict[str, Episode] = {}
        for row in rows:
            if row["ts"] < state["ts"]:
                state["late"] += 1
            state["ts"] = max(state["ts"], row["ts"])
            for episode in _step(state, row):
                # Of two rows of one episode the one made from more of the history is the right one.
                changed[episode["id"]] = {**episode, "version": self._rows, "late": state["late"]}
        return changed


def _nothing() -> dict[str, Any]:
    return {"open": {}, "waiting": [], "acts": [], "balance": 0, "ts": 0, "late": 0}


def _place(row: Row) -> tuple[int, str, str, int, str]:
    """Return the sort key of rows of one time: by engine, sums last."""
    return row["ts"], row["engine"], row["boot"], row["seq"], row.get("what", "")


def _step(state: dict[str, Any], row: dict[str, Any]) -> list[Episode]:
    """Apply a row to `state` and return the changed episodes."""
    kind = row["kind"]
    if kind == "state-changed":
        return _changed(state, row)
    if kind == "tally":
        return _tallied(state, row)
    if kind in _ACTS:
        return _acted(state, row)
    if kind in ("engine-started", "engine-stopped"):
        return _engine(state, row)
    episode = state["open"].get(row["engine"])
    return _pinged(episode, row) if episode is not None else []


def _changed(state: dict[str, Any], row: dict[str, Any]) -> list[Episode]:
    now, engine, ts = row.get("now", ""), row["engine"], row["ts"]
    episode = state["open"].get(engine)
    if episode is None:
        if now != State.SUSPECT and now not in _DIVERTING:
            return []
        episode = state["open"][engine] = _begun(state, row)
    episode["last_ts"] = ts
    if now == State.SUSPECT:
        return [episode]
    if now in _DIVERTING:
        episode["forced"] = episode["forced"] or now == State.FORCED
        if episode["failed_over_ts"] is None:
            episode["failed_over_ts"], episode["cause"] = ts, row.get("why", "")
        return [episode]
    return [_closed(state, engine, ts, "pinned" if now == State.PINNED else "", row.get("why", ""))]


def _begun(state: dict[str, Any], row: dict[str, Any]) -> Episode:
    ts, engine = row["ts"], row["engine"]
    near = [act for act in state["acts"] if act["engine"] == engine and ts - act["ts"] <= NEAR]
    state["acts"] = []
    suspected = ts if row.get("now") == State.SUSPECT else None
    return {
        "id": f"{row['entity']}@{engine}@{ts}",
        "engine": engine,
        "boot": row["boot"],
        "entity": row["entity"],
        "suspected_ts": suspected,
        "failed_over_ts": None,
        "first_ping_ts": None,
        "failed_back_ts": None,
        "backlog_empty_ts": None,
        "last_ts": ts,
        "outcome": "open",
        "forced": False,
        "cause": row.get("why", ""),
        "why_back": "",
        "pings_sent": 0,
        "pings_accepted": 0,
        "pings_failed": 0,
        "parked": 0,
        "moved": 0,
        "dead_lettered": 0,
        "acts": [_told(act) for act in near],
    }


def _closed(state: dict[str, Any], engine: str, ts: int, outcome: str, why: str) -> Episode:
    episode: Episode = state["open"].pop(engine)
    diverted = episode["failed_over_ts"] is not None
    episode["outcome"] = outcome or ("failed back" if diverted else "recovered")
    episode["why_back"], episode["last_ts"] = why, ts
    if diverted:
        if episode["outcome"] != "engine ended":
            episode["failed_back_ts"] = ts
        if state["balance"] <= 0:
            episode["backlog_empty_ts"] = ts
    if not diverted or episode["backlog_empty_ts"] is None:
        state["waiting"] = [*state["waiting"], episode][-20:]
    return episode


def _pinged(episode: Episode, row: dict[str, Any]) -> list[Episode]:
    name = {"ping-sent": "pings_sent", "ping-accepted": "pings_accepted", "ping-failed": "pings_failed"}[row["kind"]]
    episode[name] += 1
    episode["last_ts"] = row["ts"]
    if name == "pings_accepted" and episode["first_ping_ts"] is None:
        episode["first_ping_ts"] = row["ts"]
    return [episode]


def _tallied(state: dict[str, Any], row: dict[str, Any]) -> list[Episode]:
    """Receipts, summed up: the newest episode that is not over yet has them."""
    parked, n, ts = row["what"] == "diverted", row["n"], row["ts"]
    state["balance"] = max(0, state["balance"] + (n if parked else -n))
    waiting = [one for one in state["waiting"] if one["failed_over_ts"] is not None]
    mine = state["open"].get(row["engine"])
    bearers = [one for one in (mine, *state["open"].values(), *reversed(waiting)) if one is not None]
    touched: list[Episode] = []
    if bearers:
        bearer = bearers[0] if parked or not waiting else waiting[0]
        bearer[{"diverted": "parked", "moved": "moved", "dead-lettered": "dead_lettered"}[row["what"]]] += n
        bearer["last_ts"] = max(bearer["last_ts"], ts)
        touched.append(bearer)
    if state["balance"] == 0 and not parked:
        for episode in waiting:
            episode["backlog_empty_ts"], episode["last_ts"] = ts, max(ts, episode["last_ts"])
            touched.append(episode)
        state["waiting"] = []
    return touched


def _acted(state: dict[str, Any], row: dict[str, Any]) -> list[Episode]:
    act = {
        "engine": row["engine"],
        "ts": row["ts"],
        "what": row["kind"],
        "by": row.get("by", ""),
        "why": row.get("why", ""),
    }
    episode = state["open"].get(row["engine"])
    if episode is None:
        closed = [one for one in state["waiting"] if one["engine"] == row["engine"]]
        if closed and row["ts"] - closed[-1]["last_ts"] <= NEAR and row["kind"] != "forced":
            episode = closed[-1]
    if episode is None:
        state["acts"] = [*state["acts"], act][-20:]
        return []
    episode["acts"].append(_told(act))
    episode["last_ts"] = max(episode["last_ts"], row["ts"])
    return [episode]


def _told(act: dict[str, Any]) -> dict[str, Any]:
    return {name: act[name] for name in ("ts", "what", "by", "why")}


def _engine(state: dict[str, Any], row: dict[str, Any]) -> list[Episode]:
    """End the open episodes of an engine that stopped or restarted."""
    episode = state["open"].get(row["engine"])
    if episode is None or (row["kind"] == "engine-started" and episode["boot"] == row["boot"]):
        return []
    why = row.get("why") or "the engine was killed, and started again"
    return [_closed(state, row["engine"], row["ts"], "engine ended", why)]


def as_row(episode: Episode, columns: Iterable[str]) -> dict[str, Any]:
    """Return an episode as a row of its table."""
    return {name: json.dumps(episode["acts"]) if name == "acts" else episode[name] for name in columns}
