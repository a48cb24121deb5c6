"""Outages as journals would have them, for reports: each scene is records and the episodes that belong to them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final

from paired_servicebus.core.model import pairing_events as e
from paired_servicebus.core.model.verdict import FailureKind
from tests.pipeline.report_tables import MemoryTables

START: Final = 1_764_064_800.0
"""2025-11-25 10:00:00 UTC."""


@dataclass(frozen=True)
class Outage:
    """The primary answers from `since` to `until` with timeouts; None: it does not return."""

    since: float
    until: float | None
    cause: str = "no send accepted for 10 s (timeout)"


@dataclass
class EngineScene:
    """What one engine writes: `seconds` of `rate` messages a second to each entity, through some outages."""

    name: str
    entities: Sequence[str]
    outages: Sequence[Outage]
    seconds: int = 600
    rate: int = 10
    move_rate: int = 60
    pairing: str = "shop"
    syphon: bool = True
    seed: int = 1
    stops: str = ""
    quiet: Sequence[str] = ()
    """Entities that the outages do not reach."""
    records: list[e.Record] = field(default_factory=list)
    episodes: list[dict[str, Any]] = field(default_factory=list)
    parked: list[tuple[float, str, str, int]] = field(default_factory=list)

    def add(self, event: e.Event) -> None:
        self.records.append(e.Record(engine=self.name, boot=f"b{self.seed}", seq=len(self.records) + 1, event=event))

    def play(self) -> EngineScene:
        random = Random(self.seed)
        events: list[e.Event] = [
            e.EngineStarted(at=START, pairing=self.pairing, primary="shop-weu.servicebus.windows.net",
                            secondary="shop-neu.servicebus.windows.net", backlog_queues=4, syphon=self.syphon,
                            version="1.0")
        ]  # fmt: skip
        for outage in self.outages:
            for entity in self.entities:
                if entity not in self.quiet:
                    events += self._failover(entity, outage, random)
        clock = START + random.random()
        for second in range(1, self.seconds):
            clock += 1 + random.uniform(-0.02, 0.02)
            events += self._second(clock, second, random)
        events += self._moves(clock)
        if self.stops:
            events.append(e.EngineStopped(at=clock + 1, reason=self.stops))
        for event in sorted(events, key=lambda one: one.at):
            self.add(event)
        return self

    def _failover(self, entity: str, outage: Outage, random: Random) -> list[e.Event]:
        suspected = START + outage.since + random.uniform(0.5, 1.5)
        over = suspected + 10
        back = None if outage.until is None else START + outage.until + random.uniform(1, 8)
        events: list[e.Event] = [
            e.StateChanged(at=suspected, entity=entity, was="healthy", now="suspect", why="timeout"),
            e.StateChanged(at=over, entity=entity, was="suspect", now="failed over", why=outage.cause),
        ]
        end = START + self.seconds if back is None else back
        pings = [over + 10 * number for number in range(1, int((end - over) / 10))]
        for number, at in enumerate(pings, 1):
            events += [e.PingSent(at=at, entity=entity, number=number),
                       e.PingFailed(at=at + 2, entity=entity, number=number, reason="timeout", took=2.0)]  # fmt: skip
        if back is not None:
            events += [
                e.PingAccepted(at=back - 0.1, entity=entity, number=len(pings) + 1, took=0.1),
                e.StateChanged(at=back, entity=entity, was="failed over", now="healthy", why="a ping was accepted"),
            ]
        self.episodes.append({
            "id": f"{entity}@{self.name}@{round(suspected * 1e6)}", "pairing": self.pairing, "engine": self.name,
            "boot": f"b{self.seed}", "entity": entity, "began_at": suspected, "suspected_at": suspected,
            "failed_over_at": over, "first_ping_at": back and back - 0.1, "failed_back_at": back,
            "last_at": back or START + self.seconds, "last_good_at": START + outage.since,
            "outcome": "failed back" if back else ("engine ended" if self.stops else "open"),
            "end_reason": self.stops if back is None else "a ping was accepted", "forced": False,
            "cause": outage.cause, "pings_sent": len(pings) + 1, "parked": 0, "moved": 0, "dead_lettered": 0,
        })  # fmt: skip
        return events

    def _second(self, clock: float, second: int, random: Random) -> list[e.Event]:
        events: list[e.Event] = []
        for entity in self.entities:
            mine = [one for one in self.episodes if one["entity"] == entity]
            away = any(one["failed_over_at"] <= clock < (one["failed_back_at"] or clock + 1) for one in mine)
            suspect = any(one["suspected_at"] <= clock < one["failed_over_at"] for one in mine)
            number = self.rate + random.randint(-1, 1)
            route, accepted, failed = "primary", number, 0
            if suspect:
                accepted, failed = 0, 2
                events.append(e.FailuresCounted(at=clock, entity=entity, route="primary",
                                                failure=FailureKind.TIMEOUT, count=2))  # fmt: skip
            elif away:
                queue = second % 4
                route = f"backlog/{queue}"
                for place in range(number):
                    at, name = clock - 1 + place / number, f"{entity[:3]}-{self.seed}-{second}-{place}"
                    events.append(e.Diverted(at=at, entity=entity, message_id=name, queue=queue))
                    self.parked.append((at, entity, name, queue))
            events.append(e.SendsCounted(at=clock, entity=entity, route=route, accepted=accepted, failed=failed,
                                         seconds=1.0))  # fmt: skip
        parked = sum(1 for one in events if isinstance(one, e.Diverted))
        events.append(e.OperationsCounted(at=clock, sends=len(self.entities) * self.rate, parked=parked,
                                          pings=1 if parked and second % 10 == 0 else 0,
                                          receives=1 if second % 20 == 0 else 0, moves=0, settlements=0,
                                          sent_bytes=len(self.entities) * self.rate * 1000, parked_bytes=parked * 1000,
                                          moved_bytes=0))  # fmt: skip
        return events

    def _moves(self, clock: float) -> list[e.Event]:
        """Move everything home once its entity is back."""
        events: list[e.Event] = []
        backs = {one["entity"]: one["failed_back_at"] for one in self.episodes}
        waiting = sorted(one for one in self.parked)
        depth = [0, 0, 0, 0]
        at = 0.0
        for _, entity, name, queue in waiting:
            home = max((one["failed_back_at"] for one in self.episodes
                        if one["entity"] == entity and one["failed_back_at"]), default=None)  # fmt: skip
            if home is None or backs[entity] is None:
                continue
            at = max(at, home + 0.5) + 1 / self.move_rate
            events.append(e.Moved(at=at, entity=entity, message_id=name, queue=queue))
            episode = [one for one in self.episodes if one["entity"] == entity][-1]
            episode["backlog_empty_at"] = episode["last_at"] = at
        for number in range(len(events) // self.move_rate + 1):
            moved = events[number * self.move_rate : (number + 1) * self.move_rate]
            if moved:
                events_at = moved[-1].at
                events.append(e.OperationsCounted(at=events_at, sends=0, parked=0, pings=0, receives=len(moved),
                                                  moves=len(moved), settlements=len(moved), sent_bytes=0,
                                                  parked_bytes=0, moved_bytes=len(moved) * 1100))  # fmt: skip
        changes = sorted([(one[0], one[3], 1) for one in self.parked]
                         + [(one.at, one.queue, -1) for one in events if isinstance(one, e.Moved)])  # fmt: skip
        read = 0.0
        for changed, queue, step in changes:
            depth[queue] += step
            if changed >= read + 5:
                read = changed
                events += [e.QueueRead(at=changed + place / 100, queue=place, depth=count, size_bytes=count * 1100,
                                       dead_lettered=0, scheduled=0) for place, count in enumerate(depth)]  # fmt: skip
        for episode in self.episodes:
            since, until = episode["failed_over_at"] - 1, episode["failed_back_at"] or clock
            mine = [one for one in self.parked if one[1] == episode["entity"] and since <= one[0] <= until]
            episode["parked"] = len(mine)
            episode["first_diverted_at"] = min((one[0] for one in mine), default=None)
        return events


def tables_of(*scenes: EngineScene, **rows: Sequence[Mapping[str, object]]) -> MemoryTables:
    """The tables of some engines."""
    played = [scene if scene.records else scene.play() for scene in scenes]
    records = [record for scene in played for record in scene.records]
    last = max(record.event.at for record in records)
    episodes = [episode for scene in played for episode in scene.episodes]
    return MemoryTables(records, rows={"episodes": episodes, **rows}, written_at=last + 60)


def outage_of_the_data_centre() -> MemoryTables:
    scene = EngineScene("shop@vm-1", ("orders", "payments", "invoices", "audit"), [Outage(120, 400)], seconds=700,
                        quiet=("audit",))  # fmt: skip
    scene.play()
    for at, entity, why in ((250, "", "to look first"), (390, "", "")):
        command = "pause-syphon" if at == 250 else "resume-syphon"
        scene.add(e.Commanded(at=START + at, command=command, target=entity, by="anna@desk", why=why))
        scene.add(e.CommandEnded(at=START + at + 0.2, command_seq=len(scene.records), outcome="done"))
    return tables_of(scene)


def flapping_primary() -> MemoryTables:
    outages = [Outage(60 + 75 * number, 95 + 75 * number) for number in range(12)]
    return tables_of(EngineScene("shop@vm-1", ("orders", "payments"), outages, seconds=1100))


def long_drain() -> MemoryTables:
    return tables_of(EngineScene("shop@vm-1", ("orders",), [Outage(30, 1830)], seconds=2200, move_rate=3, rate=6))


def fleet_of_three() -> MemoryTables:
    scenes = [EngineScene(f"shop@vm-{number}", ("orders", "payments"), [Outage(100, 300)], seed=number,
                          stops="SIGTERM" if number == 3 else "").play() for number in (1, 2, 3)]  # fmt: skip
    for scene in scenes:
        scene.add(e.Commanded(at=START + 200 + len(scene.name) / 10, command="pause-syphon", target="",
                              by="anna (fleet)", why="look at the primary first (order 7 of the fleet)"))  # fmt: skip
        scene.add(e.CommandEnded(at=START + 201, command_seq=len(scene.records), outcome="done"))
    gap = {"engine": "shop@vm-2", "boot": "b2", "first_seq": 40, "last_seq": 60, "missing": 21}
    return tables_of(*scenes, gaps=[gap])


def nothing_failed_over() -> MemoryTables:
    return tables_of(EngineScene("shop@vm-1", ("orders", "payments"), [], seconds=3600))


def lost_and_unknown() -> MemoryTables:
    """An outage whose backlog lost messages, and one engine's journal is missing."""
    tables = outage_of_the_data_centre()
    fates = (("missing", 0, 14), ("lost", 14, 3), ("unknown", 17, 40))
    for status, skipped, number in fates:
        tables.rows(
            "update made_audit set status = ? where message_id in (select message_id from audit where diverted > 0 "
            "order by message_id limit ? offset ?)",
            [status, number, skipped],
        )
    tables.rows("update made_audit set moved_at = null, moved = 0, dwell = null where status = 'missing'")
    tables.rows("update made_audit set reason = 'lost, or in the journal of shop@vm-9' where status = 'unknown'")
    tables.rows(
        "update made_audit set out_of_order = true where message_id in (select message_id from audit where "
        "diverted > 0 and status = 'delivered' order by message_id limit 276)"
    )
    tables.rows(
        "update made_verdicts set missing = 14, lost = 3, unknown = 40, out_of_order = 276, journals = 20, "
        "journals_complete = 18, rests_on = 'Receivers of orders record what they get. 18 of 20 journals are complete.'"
    )
    tables.rows("update made_engines set missing = 120, complete_to = make_timestamp(1764065100000000)")
    return tables


SCENES: Final = {
    "data-centre": outage_of_the_data_centre,
    "flapping": flapping_primary,
    "long-drain": long_drain,
    "fleet": fleet_of_three,
    "nothing": nothing_failed_over,
    "lost": lost_and_unknown,
}
