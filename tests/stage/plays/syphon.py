"""The syphon: two of them on one backlog through an outage, and messages made to do harm among good ones."""

from __future__ import annotations

import random
import time
from collections import Counter
from dataclasses import dataclass, field
from statistics import median
from typing import Any, Final

from tests.pairing.backlogs import parked
from tests.stage.console import Console
from tests.stage.course import BACKLOG, PRIMARY, SECONDARY, Strike
from tests.stage.director import DRAINED, Director
from tests.stage.ledger import Answered, Attempted, now
from tests.stage.poison_kinds import damage, kinds
from tests.stage.processes import Actor

from paired_servicebus.core.accounting.ledger import SendOutcome
from paired_servicebus.core.model.entity_state import DIVERTING
from paired_servicebus.core.model.pairing_condition import condition_of
from paired_servicebus.core.model.pairing_events import Record, Warned
from paired_servicebus.core.model.snapshot import Snapshot, SyphonStatus
from paired_servicebus.core.operator.alarms import alarms
from servicebus_amqp.encoding.message_sections import Sections
from servicebus_sandbox import NamespaceSpec, QueueSpec
from servicebus_sandbox.amqp_server.message_codec import read_message
from servicebus_sandbox.broker.message import Message, StoredMessage
from servicebus_sandbox.specs import primary_and_secondary

ENTITY: Final = "orders"

# -- two syphons on one backlog ----------------------------------------------------------------------------------------

TWO_SPECS: Final = primary_and_secondary()
TWO: Final[dict[str, Any]] = {
    "backlog_queue_count": 3, "send_timeout": 5.0, "failover_interval": 5.0, "ping_primary_interval": 5.0,
}  # fmt: skip
FAULTS: Final = ("refused", "black-holed", "disabled")
"""By the seed: the first for seed 0, 3, …"""
CALM: Final = 10.0
"""Seconds that both are watched after everything has drained."""


@dataclass
class Heard:
    """What one engine said in snapshots and events."""

    statuses: Counter[SyphonStatus] = field(default_factory=Counter)
    stuck: list[str] = field(default_factory=list)
    latest: Snapshot | None = None

    def note(self, update: object) -> None:
        if isinstance(update, Snapshot):
            self.latest = update
            self.statuses[update.syphon.status] += 1
            self.stuck += [update.syphon.text] if update.syphon.status is SyphonStatus.STUCK else []
            self.stuck += [one.text for one in alarms(condition_of(update)) if one.name == "syphon_stuck"]
        elif isinstance(update, Record) and isinstance(update.event, Warned) and "stuck" in update.event.text:
            self.stuck.append(update.event.text)

    @property
    def diverts(self) -> bool:
        return self.latest is not None and any(one.state in DIVERTING for one in self.latest.entities)


async def two_engines(director: Director, minutes: float, _engines: int) -> None:
    """Move messages out of one backlog by two processes through an outage: neither cries wolf."""
    up = director.engine("up", entities=[ENTITY], **TWO)
    application = director.application(
        "application", entities=(ENTITY,), sizes=(1,), every=0.1, later=0.0, retries=False,
        options=TWO | {"enable_syphon": True},
    )  # fmt: skip
    await up.start()
    await director.start(application)
    heard = {actor.name: Heard() for actor in (up, application)}
    for actor in (up, application):
        await director.console(actor, note=heard[actor.name].note)
    await director.expect(lambda: all(one.latest for one in heard.values()) and director.ledger.accepted, "both work")
    fault = FAULTS[director.seed % len(FAULTS)]
    number = director.begin_episode(f"{ENTITY} is {fault}", opens=True)
    director.strike(Strike(namespace=PRIMARY, fault=fault, entities=(ENTITY,)))
    await director.until(lambda: False, minutes * 60)
    director.figures["parked"] = director.parked
    director.mend()
    began = time.monotonic()
    drained = await director.until(lambda: not (director.parked or heard["application"].diverts), DRAINED)
    director.figures["drained in, s"] = round(time.monotonic() - began, 1)
    if not drained:
        director.found("not drained")
    await director.until(lambda: False, CALM)
    director.end_episode(number)
    for name, one in heard.items():
        director.figures[name] = {str(status): count for status, count in one.statuses.most_common()}
        if one.stuck:
            director.found(f"{name}: {one.stuck[0]} ({len(one.stuck)} times)")
        if not one.statuses[SyphonStatus.WAITING]:
            director.found(f"{name} never waited")
    application.tell("stop")
    await director.until(lambda: "stopped" in director.ledger.marks[application.life])
    await director.collect(ENTITY)
    await director.drain()
    await director.end()


# -- poison ------------------------------------------------------------------------------------------------------------

POISON_SPECS: Final = (
    NamespaceSpec(PRIMARY, queues=(QueueSpec(ENTITY),)),
    NamespaceSpec(SECONDARY, queues=(QueueSpec(BACKLOG[0]),)),
)
GOOD: Final = 2000
DAMAGED: Final = 400
ROUNDS: Final = 7
LATE: Final = 0.1
"""Seconds of the processor that the loop may be busy without a pause."""
SLOWER: Final = 2.0
SETTLED: Final = 90.0
LOOK: Final = 0.01


@dataclass(frozen=True, slots=True, kw_only=True)
class Moved:
    """One backlog that was moved. seconds: until all good messages had arrived. busy: the loop's longest step, in
    seconds of the processor; late: by the clock."""

    strangers: int
    seconds: float
    busy: float
    late: float


class Poison:
    """An application with a syphon, whose backlog is filled as if messages had been sent, whatever a namespace would
    say of them."""

    def __init__(self, director: Director) -> None:
        self._director = director
        self._known = list(kinds().values())
        self._application: Actor
        self._console: Console
        self._rounds = 0
        self._first = 0
        """The least sequence number of the present round's arrivals."""

    async def start(self) -> None:
        options = {"backlog_queue_count": 1, "enable_syphon": True, "pump": "amqp", "undeliverable_after": 1.0}
        self._application = self._director.application("application", options=options)
        await self._director.start(self._application)
        self._console = await self._director.console(self._application)

    async def finish(self) -> None:
        await self._director.collect(ENTITY, prefix="good-")
        await self._director.end()

    async def move(self, good: int, strangers: list[Sections]) -> Moved:
        """Let the engine move these, and check what became of each."""
        self._rounds += 1
        await self._console.command("pause-syphon")
        self._fill(good, strangers)
        queue, dead = self._queue(SECONDARY, BACKLOG[0]), self._queue(SECONDARY, BACKLOG[0]).dead_letters
        dead.delete_waiting(now() + 1, 10**7)  # a fuzz of minutes would fill the queue
        before, first_dead = self._queue(PRIMARY, ENTITY).counts().active, len(dead)
        self._first = max((one.sequence_number for one in self._arrivals()), default=0) + 1
        number, director = self._rounds, self._director
        self._application.tell(f"beat {number}")
        began = time.monotonic()
        await self._console.command("resume-syphon")
        arrived = await director.until(lambda: self._good(number) == good, SETTLED, look=LOOK)
        seconds = time.monotonic() - began if arrived else float("inf")
        await director.until(lambda: not queue.counts().active, SETTLED)
        reasons = [str((one.added or {}).get("DeadLetterErrorDescription", "")) for one in dead.peek(0, 10**7)]
        delivered = self._queue(PRIMARY, ENTITY).counts().active - before
        self._check(good, len(strangers), delivered, reasons[first_dead:])
        marks = director.ledger.marks[self._application.life]
        busy, late = (marks[f"{text} {number}"].value for text in ("busy", "late"))
        return Moved(strangers=len(strangers), seconds=seconds, busy=busy, late=late)

    def known(self) -> list[Sections]:
        """Return each kind of poison once."""
        return self._known

    def damaged(self, seed: int) -> list[Sections]:
        """Return kinds that are damaged at random."""
        draw = random.Random(seed)
        return [damage(draw, self._known) for _ in range(DAMAGED)]

    def _fill(self, good: int, strangers: list[Sections]) -> None:
        every = max(1, good // (len(strangers) + 1))
        names = [f"good-{self._rounds}-{number}" for number in range(good)]
        node = self._director.sandbox[SECONDARY].node
        intake = node.namespace.send_target(BACKLOG[0]).intake
        self._director.facts.write(Attempted(at=now(), entity=ENTITY, ids=names))
        for number, name in enumerate(names):
            intake.send([read_message(parked(ENTITY, name))])
            if number % every == 0 and number // every < len(strangers):
                sections = strangers[number // every]
                intake.send([Message(sections, sections.size, message_id="poison")])
        self._director.facts.write(Answered(at=now(), ids=names, answer=SendOutcome.ACCEPTED))
        node.wake()

    def _queue(self, side: str, path: str) -> Any:
        return self._director.sandbox[side].node.namespace.queue(path)

    def _good(self, number: int) -> int:
        """Count the good messages of a round that have arrived."""
        ids = {str(one.message.message_id) for one in self._arrivals()}
        return sum(name.startswith(f"good-{number}-") for name in ids)

    def _arrivals(self) -> list[StoredMessage]:
        return list(self._queue(PRIMARY, ENTITY).messages.peek(self._first, 10**7))

    def _check(self, good: int, strangers: int, delivered: int, reasons: list[str]) -> None:
        found, waiting = self._director.found, self._queue(SECONDARY, BACKLOG[0]).counts().active
        if (arrived := self._good(self._rounds)) != good:
            found(f"{good - arrived} of {good} good messages have not arrived")
        if waiting:
            found(f"{waiting} messages still wait in the backlog queue")
        if delivered + len(reasons) != good + strangers:
            found(f"{delivered} delivered and {len(reasons)} dead-lettered are not {good + strangers}")
        if not all(reasons):
            found("a dead letter has no reason")
        if raw := [reason for reason in reasons if not reason.isprintable() or len(reason) > 1000]:
            found(f"{len(raw)} reasons hold foreign text, such as {raw[0][:80]!r}")


async def poison(director: Director, _minutes: float, _engines: int) -> None:
    """Move good messages alone, and with every kind of poison among them."""
    run, alone, mixed = Poison(director), [], []
    await run.start()
    for _ in range(ROUNDS):
        alone.append(await run.move(GOOD, []))
        mixed.append(await run.move(GOOD, run.known()))
    # Of several runs the least disturbed: each needs some tenths of a second, which other work may double.
    ratio = min(one.seconds for one in mixed) / min(one.seconds for one in alone)
    busy = min(one.busy for one in mixed)
    if ratio > SLOWER:
        director.found(f"{GOOD} messages needed {ratio:.2f} times as long as alone")
    if busy > LATE:
        director.found(f"the loop was busy for {busy * 1000:.0f} ms at a time")
    medians = median(one.seconds for one in mixed) / median(one.seconds for one in alone)
    director.figures |= {"strangers": mixed[0].strangers, "ratio of the shortest": round(ratio, 2)}
    director.figures |= {"ratio of the medians": round(medians, 2), "longest busy, ms": round(busy * 1000)}
    await run.finish()


async def poison_fuzz(director: Director, minutes: float, _engines: int) -> None:
    """Move good messages with kinds damaged at random among them, round by round."""
    run, busiest, rounds = Poison(director), 0.0, 0
    await run.start()
    end = now() + minutes * 60
    while not rounds or now() < end:
        one = await run.move(DAMAGED, run.damaged(director.seed + rounds))
        busiest, rounds = max(busiest, one.busy), rounds + 1
        if one.busy > LATE:
            director.found(f"round {rounds}: the loop was busy for {one.busy * 1000:.0f} ms at a time")
    director.figures |= {"rounds": rounds, "longest busy, ms": round(busiest * 1000)}
    await run.finish()
