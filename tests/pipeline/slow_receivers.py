"""A made-up world with slow receivers: a queue, its senders and receivers, and the journals that they leave.

It has what makes receivers late: prefetched messages whose locks end, receivers that stop for hours, are killed and
start again, or handle a message in minutes; an outage whose messages come home by a syphon; clocks that differ; and
journals that reach the pipeline late. Nothing is lost unless the world deletes it.
"""

from __future__ import annotations

import random
from bisect import insort
from collections import deque
from dataclasses import dataclass, field
from typing import Final

from paired_servicebus.core.model import pairing_events as e

LOCK: Final = 300.0
"""Seconds of a lock; a message whose lock ends has its old place in the queue again."""
MAX_DELIVERIES: Final = 10
SKEW: Final = 120.0
"""Seconds by which two hosts' clocks differ at most."""
TICK: Final = 5.0


Queued = tuple[int, str]
"""A message's sequence number and its id."""


@dataclass
class Engine:
    """A host's engine: its clock, and the records of its boots."""

    name: str
    ahead: float
    records: list[e.Record] = field(default_factory=list)
    boot: int = 0
    seq: int = 0

    def start(self, now: float) -> None:
        before = (f"{self.name}-{self.boot}", self.seq) if self.boot else (None, None)
        self.boot += 1
        self.seq = 0
        self.write(
            e.EngineStarted(
                at=self.clock(now),
                pairing="orders",
                primary="p",
                secondary="s",
                backlog_queues=1,
                syphon=True,
                version="1",
                predecessor=before[0],
                predecessor_seq=before[1],
            )
        )

    def clock(self, now: float) -> float:
        return now + self.ahead

    def write(self, event: e.Event) -> None:
        self.seq += 1
        self.records.append(e.Record(engine=self.name, boot=f"{self.name}-{self.boot}", seq=self.seq, event=event))


@dataclass
class Receiver:
    """A consumer with prefetched messages and their locks."""

    engine: Engine
    prefetch: int
    every: float
    """Seconds that it takes for a message."""
    held: deque[tuple[Queued, float]] = field(default_factory=deque)
    busy_until: float = 0.0


@dataclass(frozen=True)
class Played:
    """The journals, the engines' last times by the world's clock, and the ids that it deleted or dead-lettered."""

    records: list[e.Record]
    written_at: list[float]
    """When each record was written, by the world's clock."""
    deleted: set[str]
    end: float


class SlowWorld:
    """One run; `seed` decides everything."""

    def __init__(self, seed: int, *, deletes: int = 0, healthy: bool = False) -> None:
        self._rng = random.Random(seed)
        self._now = 1_000_000.0
        self._queue: list[Queued] = []
        self._enqueued = 0
        self._backlog: deque[str] = deque()
        self._deletes = deletes
        self._healthy = healthy
        self.deleted: set[str] = set()
        self._deliveries: dict[str, int] = {}
        self._sent = self._removed = 0
        rng = self._rng
        self._senders = [Engine(f"orders@send-{one}", rng.uniform(-SKEW, SKEW)) for one in range(rng.randint(1, 3))]
        self._receivers = [self._receiver(one) for one in range(rng.randint(1, 3))]
        self._written: list[float] = []

    def _receiver(self, number: int) -> Receiver:
        rng = self._rng
        engine = Engine(f"orders@receive-{number}", rng.uniform(-SKEW, SKEW))
        return Receiver(
            engine,
            prefetch=50 if self._healthy else rng.choice([1, 5, 50]),
            every=0.0 if self._healthy else rng.choice([1.0, 20.0, 300.0]),
        )

    def play(self, hours: float) -> Played:
        """Send for a third of the time, with an outage in it; receive to the end."""
        rng, begin, end = self._rng, self._now, self._now + hours * 3600
        outage = begin + rng.uniform(0.05, 0.15) * hours * 3600
        home = outage + rng.uniform(60, 1800)
        for engine in self._engines:
            self._do(engine.start, engine)
        while self._now < end:
            is_out = outage <= self._now < home
            if self._now < begin + hours * 1200:
                self._send(is_out=is_out)
            if not is_out:
                self._move()
            if self._deletes > self._removed and self._queue and rng.random() < 0.05:
                self._delete()
            for one in self._receivers:
                self._serve(one)
            self._now += TICK * rng.choice([1, 1, 1, 10])
        for engine in self._engines:
            self._do(
                lambda _, engine=engine: engine.write(e.EngineStopped(at=engine.clock(self._now), reason="x")), engine
            )
        found = [(record, at) for engine in self._engines for record, at in self._of(engine)]
        return Played([record for record, _ in found], [at for _, at in found], self.deleted, self._now)

    @property
    def _engines(self) -> list[Engine]:
        return [*self._senders, *(one.engine for one in self._receivers)]

    def _do(self, act: object, engine: Engine) -> None:
        """Act, and note when its records were written."""
        before = len(engine.records)
        act(self._now)  # type: ignore[operator]
        self._times.setdefault(engine.name, []).extend([self._now] * (len(engine.records) - before))

    @property
    def _times(self) -> dict[str, list[float]]:
        return self.__dict__.setdefault("times", {})

    def _of(self, engine: Engine) -> list[tuple[e.Record, float]]:
        return list(zip(engine.records, self._times[engine.name], strict=True))

    def _write(self, engine: Engine, event: e.Event) -> None:
        self._do(lambda _: engine.write(event), engine)

    def _enqueue(self, name: str) -> None:
        self._enqueued += 1
        self._queue.append((self._enqueued, name))

    def _send(self, *, is_out: bool) -> None:
        for engine in self._senders:
            if self._rng.random() < 0.5:
                continue
            name = f"m{self._sent}"
            self._sent += 1
            at = engine.clock(self._now)
            if is_out:
                self._backlog.append(name)
                self._write(engine, e.Diverted(at=at, entity="orders", message_id=name, queue=0))
            else:
                self._enqueue(name)
                self._write(engine, e.Delivered(at=at, entity="orders", message_id=name))

    def _move(self) -> None:
        engine = self._senders[0]
        for _ in range(min(3, len(self._backlog))):
            name = self._backlog.popleft()
            self._enqueue(name)
            self._write(engine, e.Moved(at=engine.clock(self._now), entity="orders", message_id=name, queue=0))

    def _serve(self, one: Receiver) -> None:
        rng = self._rng
        while one.held and one.held[0][1] <= self._now:
            self._give_back(one.held.popleft()[0])
        if not self._healthy and rng.random() < 0.002:  # killed: its locks end with its link
            while one.held:
                self._give_back(one.held.popleft()[0])
            self._do(one.engine.start, one.engine)
        if not self._healthy and rng.random() < 0.001:
            one.busy_until = self._now + rng.uniform(600, 7200)
        while len(one.held) < one.prefetch and self._queue:
            one.held.append((self._queue.pop(0), self._now + LOCK))
        while one.held and one.busy_until <= self._now:
            (_, name), _ = one.held.popleft()
            again = self._deliveries.get(name, 0)
            at = one.engine.clock(self._now)
            self._write(one.engine, e.MessageReceived(at=at, entity="orders", message_id=name, delivery_count=again))
            one.busy_until = max(self._now, one.busy_until) + one.every
            if one.every >= TICK:
                break

    def _give_back(self, queued: Queued) -> None:
        """A lock has ended; after the last of them the message is dead-lettered."""
        name = queued[1]
        self._deliveries[name] = self._deliveries.get(name, 0) + 1
        if self._deliveries[name] < MAX_DELIVERIES:
            insort(self._queue, queued)
        else:
            self.deleted.add(name)

    def _delete(self) -> None:
        index = self._rng.randrange(len(self._queue))
        self.deleted.add(self._queue.pop(index)[1])
        self._removed += 1
