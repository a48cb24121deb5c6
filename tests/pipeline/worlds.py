"""Worlds of messages whose truth is known, and the journals that their engines leave.

A world sends messages at a steady pace through some senders; receivers get them in order, some of them record it. What
befalls messages, clocks and journals is said by its fields. `truth` names the messages that are lost; `journals` are
the records that a judge gets.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any, Final

from paired_servicebus.core.model import pairing_events as e

T0: Final = 1_790_000_000.0
BEATS: Final = 300.0
"""Seconds between two remarks of an idle engine."""
Some = frozenset[int]
NONE: Final[Some] = frozenset()


def some(*numbers: int | range) -> Some:
    """Numbers of messages."""
    return frozenset(n for one in numbers for n in ((one,) if isinstance(one, int) else one))


@dataclass(frozen=True, kw_only=True)
class Kill:
    """An engine is killed before a message, and starts again.

    named: whether its next boot knows its last number. cut: records of the killed boot that never arrive.
    """

    before: int
    named: bool = True
    cut: int = 0


@dataclass(frozen=True, kw_only=True)
class World:
    """One world. Sets hold numbers of messages, names are those of engines: `send0`, `receive0`, `job`, …"""

    messages: int = 60
    every: float = 60.0
    after: int = 40
    """Messages behind those, to which nothing happens: receivers get past the others."""
    senders: int = 1
    receivers: int = 1
    silent_receivers: int = 0
    """Receivers that record nothing, and get their share of the messages."""
    records_received: bool = True
    journal_all: bool = True
    slow: float = 0.5
    """Seconds from a message's acceptance to its delivery."""
    down: tuple[int, int] | None = None
    """The receivers get nothing between these two messages, and catch up then."""
    lost: Some = NONE
    """Destroyed in the entity."""
    ttl: Mapping[int, float] = field(default_factory=dict)
    diverted: Some = NONE
    parked: Some = NONE
    """Diverted, and not moved."""
    dead: Some = NONE
    """Diverted, and dead-lettered by the syphon."""
    destroyed: Some = NONE
    """Diverted, and destroyed in the backlog, which is read empty."""
    in_doubt: Some = NONE
    refused: Some = NONE
    twice: Some = NONE
    """Accepted twice with one id; received once."""
    both: Some = NONE
    """Accepted twice, and received twice."""
    again: Some = NONE
    """Received twice: a lock ended."""
    scheduled: Some = NONE
    strangers: int = 0
    """Messages that an engine without a journal sent."""
    subscriptions: Mapping[str, Some] = field(default_factory=dict)
    """What each misses; empty: a queue."""
    has_sessions: bool = False
    kills: Mapping[str, Kill] = field(default_factory=dict)
    skew: Mapping[str, float] = field(default_factory=dict)
    absent: frozenset[str] = frozenset()
    """Engines whose journal is not here."""
    late: Mapping[str, int] = field(default_factory=dict)
    """Records that have not arrived yet of engines that go on."""
    gaps: Mapping[str, range] = field(default_factory=dict)
    """Places in an engine's journal that were destroyed."""
    gone: Mapping[str, int] = field(default_factory=dict)
    """Engines that end for good before a message, without a word: another does their work."""
    retired: frozenset[str] = frozenset()
    running: bool = False
    """Whether the engines still run at the journals' end."""
    job: int = 0
    """Messages of an engine that starts at the end, sends them, and stops; not received yet."""

    @property
    def truth(self) -> set[str]:
        """The lost messages."""
        return {f"m{one}" for one in self.lost | self.destroyed}

    @property
    def is_whole(self) -> bool:
        """Whether every record of every engine is here, all clocks agree, and every receiver records."""
        damage = (self.absent, self.late, self.gaps, self.gone, self.skew, self.silent_receivers, self.strangers)
        named = all(one.named and not one.cut for one in self.kills.values())
        return not any(damage) and named and self.records_received and self.journal_all

    def journals(self, pairing: str = "orders") -> list[e.Record]:
        """The records of the journals that are here, as those of a pairing of its own."""
        return _Play(self, pairing).play()


class _Play:
    def __init__(self, world: World, pairing: str) -> None:
        self._world = world
        self._pairing = pairing
        self._events: dict[str, list[tuple[float, int, e.Event]]] = {}
        self._end = T0 + 10 + (world.messages + world.after) * world.every + 60
        self._names = [f"send{n}" for n in range(world.senders)] + [f"receive{n}" for n in range(world.receivers)]
        for name in self._names:
            self._beat(name, T0, self._end)

    def play(self) -> list[e.Record]:
        world = self._world
        for number in range(world.messages + world.after):
            self._message(number, T0 + 10 + number * world.every)
        for number in range(world.strangers):
            self._receive(f"stranger{number}", T0 + 30 + number * world.every, number)
        if world.destroyed:
            read = {"depth": len(world.parked), "size_bytes": 0, "dead_lettered": 0, "scheduled": 0}
            self._note("send0", e.QueueRead(at=self._at(world.messages) + 1000, queue=0, **read))
        if world.job:
            self._beat("job", self._end - 20, self._end - 8)
            for number in range(world.job):
                self._note("job", self._sent(e.Delivered, f"j{number}", self._end - 10 + number / 10))
        return [record for name in self._events if name not in world.absent for record in self._records(name)]

    def _at(self, number: int) -> float:
        return T0 + 10 + number * self._world.every

    def _note(self, engine: str, event: e.Event) -> None:
        events = self._events.setdefault(engine, [])
        events.append((event.at, len(events), event))

    def _beat(self, name: str, since: float, until: float) -> None:
        at = since + BEATS
        while at < until - BEATS:
            self._note(name, e.Warned(at=at, about="engine", text="it goes on"))
            at += BEATS

    def _sent(self, kind: type[e.Event], name: str, at: float, **more: Any) -> e.Event:
        return kind(**{"at": at, "entity": "orders", "message_id": name, **more})

    def _message(self, number: int, at: float) -> None:
        world, name = self._world, f"m{number}"
        sender = f"send{number % world.senders}"
        if world.gone.get(sender, number + 1) <= number:
            sender = f"send{(number + 1) % world.senders}"
        if number in world.refused:
            self._note(sender, self._sent(e.Refused, name, at, reason="too large"))
            return
        if number in world.in_doubt:
            self._note(sender, self._sent(e.InDoubt, name, at, route="primary", reason="timeout"))
            at += 5
        reached = self._accept(number, name, sender, at)
        if number in world.twice | world.both:
            reached = self._accept(number, name, sender, at + world.every * world.messages / 4)
        if reached is not None and number not in world.lost:
            self._deliver(number, name, reached)

    def _accept(self, number: int, name: str, sender: str, at: float) -> float | None:
        """Return when the entity has it."""
        world = self._world
        more: dict[str, Any] = {"time_to_live": world.ttl.get(number)}
        if number in world.scheduled:
            more["is_scheduled"] = True
        if number not in world.diverted | world.parked | world.dead | world.destroyed:
            if world.journal_all:
                self._note(sender, self._sent(e.Delivered, name, at, **more))
            return at
        self._note(sender, self._sent(e.Diverted, name, at, queue=0, **more))
        if number in world.dead:
            self._note("send0", self._sent(e.DeadLettered, name, at + 400, queue=0, reason="poison"))
        if number not in world.diverted:
            return None
        self._note("send0", self._sent(e.Moved, name, at + 300, queue=0))
        return at + 300

    def _deliver(self, number: int, name: str, reached: float) -> None:
        world, got = self._world, reached + self._world.slow
        if number in world.scheduled:
            got += 1800
        if world.down and world.down[0] <= number < world.down[1]:
            got = self._at(world.down[1]) + number / 1000
        life = world.ttl.get(number)
        if life is not None and reached + life < got:
            return
        for copy in range(2 if number in world.both | world.again else 1):
            self._receive(name, got + copy, number, copy=copy if number in world.again else 0)

    def _receive(self, name: str, at: float, number: int, *, copy: int = 0) -> None:
        world = self._world
        place = (number * 7 // 3) % (world.receivers + world.silent_receivers)
        if place >= world.receivers or not world.records_received:
            return
        more: dict[str, Any] = {"delivery_count": copy}
        if world.has_sessions:
            more["session"] = more["stream"] = f"s{number % 3}"
        if not world.subscriptions:
            self._note(f"receive{place}", self._sent(e.MessageReceived, name, at, **more))
        for subscription, missed in world.subscriptions.items():
            if number not in missed:
                more["subscription"] = subscription
                self._note(f"receive{place}", self._sent(e.MessageReceived, name, at, **more))

    # -- journals ----------------------------------------------------------------------------------------------------

    def _records(self, name: str) -> list[e.Record]:
        world = self._world
        events = [event for *_, event in sorted(self._events[name], key=lambda one: one[:2])]
        last = self._at(world.gone[name]) if name in world.gone else None
        if last is not None:
            events = [event for event in events if event.at < last]
        kill = world.kills.get(name)
        if kill is None:
            found = self._boot(name, "b1", events, ends=last is None)
        else:
            at = self._at(kill.before) - world.every / 2
            first = self._boot(name, "b1", [one for one in events if one.at < at], ends=False)
            known = ("b1", len(first)) if kill.named else (None, None)
            rest = self._boot(name, "b2", [one for one in events if one.at >= at], ends=True, began=at, known=known)
            found = [*first[: len(first) - kill.cut], *rest]
        found = found[: len(found) - world.late.get(name, 0)]
        found = [one for place, one in enumerate(found) if place not in world.gaps.get(name, ())]
        if name in world.retired:
            gone = e.EngineRetired(at=self._end + world.skew.get(name, 0.0), by="kim", why="its host was scrapped")
            found.append(e.Record(engine=f"{self._pairing}@{name}", boot="retired-1", seq=1, event=gone))
        return found

    def _boot(
        self,
        name: str,
        boot: str,
        events: list[e.Event],
        *,
        ends: bool,
        began: float = T0,
        known: tuple[str | None, int | None] = (None, None),
    ) -> list[e.Record]:
        start = e.EngineStarted(
            at=min(began, *(one.at for one in events), self._end) if events else began,
            pairing=self._pairing, primary="p", secondary=f"s-{self._pairing}", backlog_queues=1,
            syphon=name == "send0", version="1",
            predecessor=known[0], predecessor_seq=known[1],
        )  # fmt: skip
        whole: list[e.Event] = [start, *events]
        if ends and not self._world.running:
            whole.append(e.EngineStopped(at=max(self._end, whole[-1].at), reason="done"))
        skew = self._world.skew.get(name, 0.0)
        return [
            e.Record(
                engine=f"{self._pairing}@{name}",
                boot=boot,
                seq=seq,
                event=replace(event, at=event.at + skew + seq / 1e5),
            )
            for seq, event in enumerate(whole, 1)
        ]


def random_world(rng: Random) -> World:
    """A world of a few misfortunes at once."""
    n = rng.randint(40, 120)
    senders, receivers = rng.randint(1, 3), rng.randint(1, 3)
    engines = [f"send{one}" for one in range(senders)] + [f"receive{one}" for one in range(receivers)]
    free = set(range(2, n - 1))

    def block(most: int) -> Some:
        start, size = rng.randrange(2, n - 2), rng.randint(1, most)
        found = some(range(start, min(start + size, n - 1))) & free
        free.difference_update(found)
        return found

    def few(most: int) -> Some:
        found = some(*rng.sample(sorted(free), min(len(free), rng.randint(1, most))))
        free.difference_update(found)
        return found

    misfortunes: dict[str, Callable[[], dict[str, Any]]] = {
        "lost": lambda: {"lost": block(20)},
        "one lost": lambda: {"lost": few(1)},
        "diverted": lambda: {"diverted": block(20)},
        "parked": lambda: {"parked": block(10)},
        "dead": lambda: {"dead": block(10)},
        "destroyed": lambda: {"destroyed": block(10)},
        "in doubt": lambda: {"in_doubt": few(4)},
        "refused": lambda: {"refused": few(4)},
        "again": lambda: {"again": few(4)},
        "both": lambda: {"both": few(3)},
        "twice": lambda: {"twice": few(3)},
        "strangers": lambda: {"strangers": rng.randint(1, 6)},
        "expired": lambda: _expired(rng, block(20)),
        "kill": lambda: {"kills": {rng.choice(engines): Kill(before=rng.randrange(3, n))}},
        "kill and loss": lambda: {
            "kills": {
                rng.choice(engines): Kill(before=rng.randrange(8, n), named=rng.random() < 0.5, cut=rng.randint(1, 15))
            }
        },
        "shared": lambda: {"silent_receivers": rng.randint(1, 2)},
        "late": lambda: {"late": {rng.choice(engines): rng.randint(1, 60)}, "running": True},
        "gap": lambda: {"gaps": {rng.choice(engines): range(rng.randint(2, 10), rng.randint(11, 30))}},
        "absent": lambda: {"absent": frozenset({rng.choice(engines)})},
        "skew": lambda: {"skew": {rng.choice(engines): rng.choice([-7200, -3600, -600, -60, 60, 600, 3600, 7200])}},
        "job": lambda: {"job": rng.randint(1, 10), "skew": {"job": rng.choice([0, -3600, 3600])}},
        "running": lambda: {"running": True},
        "slow": lambda: {"slow": rng.choice([5.0, 120.0, 1200.0])},
        "mute": lambda: {"records_received": False},
        "diverted only": lambda: {"journal_all": False},
        "sessions": lambda: {"has_sessions": True},
    }
    chosen = rng.choices([*misfortunes], k=rng.choice([0, 1, 1, 2, 2, 3, 4]))
    more: dict[str, Any] = {}
    for name in chosen:
        more |= misfortunes[name]()
    return World(messages=n, every=rng.choice([1.0, 10.0, 60.0]) if "late" not in chosen else 60.0,
                 after=rng.choice([40, 120]), senders=senders, receivers=receivers, **more)  # fmt: skip


def _expired(rng: Random, block: Some) -> dict[str, Any]:
    first, last = min(block, default=2), max(block, default=2)
    return {"ttl": dict.fromkeys(block, rng.choice([5.0, 30.0, 3600.0])), "down": (first, last + 1)}
