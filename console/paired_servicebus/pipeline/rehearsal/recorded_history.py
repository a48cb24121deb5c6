"""The recorded facts about a period of a pairing: load, outages, operator actions and crashes.

Times are seconds since the history's beginning. A record shows the primary only at each request. So an outage began
between the last good answer and the first bad one, and `TimeBounds` holds both. While an entity is failed over, only
its pings reach the primary: the state between two of them is unknown.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from math import ceil, inf
from pathlib import Path
from statistics import median
from typing import Final, NamedTuple

from paired_servicebus.core.errors import ConfigurationError, PipelineError
from paired_servicebus.core.model import pairing_events
from paired_servicebus.core.model.entity_state import State
from paired_servicebus.core.model.policy import Policy
from paired_servicebus.core.model.verdict import FailureKind
from paired_servicebus.engine.journal.reader import read_files
from paired_servicebus.pipeline.ingest.journal_files import find_journal_files
from paired_servicebus.simulation.run_plan import Crash, InjectedCondition, OperatorAct, Verb

Target = str | int
"""An entity's path, or a backlog queue's index."""


class TimeBounds(NamedTuple):
    """A time that is known to lie between two others, both included."""

    earliest: float
    latest: float

    @property
    def width(self) -> float:
        """Seconds that are not known."""
        return self.latest - self.earliest


class Outage(NamedTuple):
    """Requests to `target` met `failure`, each with the probability `share`."""

    target: Target
    failure: FailureKind
    began: TimeBounds
    ended: TimeBounds
    share: float = 1.0


class RateStep(NamedTuple):
    """From `at` on, `rate` messages a second are sent."""

    at: float
    rate: float


@dataclass(frozen=True, slots=True, kw_only=True)
class OfferedLoad:
    """One caller of an entity; `steps` by time."""

    path: str
    steps: tuple[RateStep, ...]
    waits: bool = False
    """Whether a caller waits for each answer before its next message."""

    def rate_at(self, at: float) -> float:
        """Messages a second at a time."""
        rate = 0.0
        for step in self.steps:
            if step.at > at:
                break
            rate = step.rate
        return rate

    def spans(self, until: float) -> Iterator[tuple[float, float, float]]:
        """From, to and rate of each step up to `until`."""
        ends = [step.at for step in self.steps[1:]] + [until]
        for step, end in zip(self.steps, ends, strict=True):
            if min(end, until) > step.at and step.rate > 0.0:
                yield step.at, min(end, until), step.rate


def calls_before(at: float, rate: float, phase: float) -> int:
    """How many calls of a step fall into its first `at` seconds; call k is due at (k + phase) / rate."""
    return max(0, ceil(at * rate - phase))


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedHistory:
    """The input of a rehearsal."""

    source: str
    """Where it is from, for a person."""
    began_at: float | None = None
    """When it began, seconds since the epoch; None: never."""
    seconds: float
    entities: tuple[str, ...]
    queues: int
    loads: tuple[OfferedLoad, ...]
    outages: tuple[Outage, ...] = ()
    crashes: tuple[Crash, ...] = ()
    acts: tuple[OperatorAct, ...] = ()
    refusal: float = 0.0
    """Seconds until a refusal: the duration of the client's own retries."""
    insists: float | None = None
    """Seconds after which a caller that was refused sends the same message again; None: it does not."""
    unknown: tuple[str, ...] = ()
    """Limits of the record, a sentence each."""

    @property
    def messages(self) -> int:
        """About how many messages were offered."""
        return round(sum((to - since) * rate for load in self.loads for since, to, rate in load.spans(self.seconds)))


CONDITIONS: Final[dict[FailureKind, tuple[InjectedCondition, ...]]] = {
    FailureKind.TIMEOUT: (InjectedCondition.BLACK_HOLE, InjectedCondition.ACK_LOST),
    FailureKind.CONNECTION: (InjectedCondition.REFUSED, InjectedCondition.RESET),
    FailureKind.COMMUNICATION: (InjectedCondition.REFUSED, InjectedCondition.RESET),
    FailureKind.DETACHED: (InjectedCondition.REFUSED, InjectedCondition.RESET),
    FailureKind.INTERNAL: (InjectedCondition.INTERNAL,),
    FailureKind.UNEXPLAINED: (InjectedCondition.INTERNAL,),
    FailureKind.DISABLED: (InjectedCondition.DISABLED,),
    FailureKind.NOT_FOUND: (InjectedCondition.DELETED,),
    FailureKind.FULL: (InjectedCondition.FULL,),
    FailureKind.BUSY: (InjectedCondition.BUSY,),
    FailureKind.UNAUTHENTICATED: (InjectedCondition.UNAUTHORIZED,),
    FailureKind.UNAUTHORIZED: (InjectedCondition.UNAUTHORIZED,),
    FailureKind.REVOKED: (InjectedCondition.UNAUTHORIZED,),
}
"""The possible causes of a failure. If there are two, the failed message may have arrived: the seed draws one."""


def kind_of_reason(reason: str) -> FailureKind | None:
    """Return the kind that a written reason begins with."""
    return max((kind for kind in FailureKind if reason.startswith(kind)), key=len, default=None)


FOREVER: Final = inf


ENTITIES: Final = ("orders", "payments", "audit")
SECONDS: Final = 3600.0
_SILENT: Final = tuple(
    Outage(path, FailureKind.TIMEOUT, TimeBounds(1500.0, 1502.0), TimeBounds(1620.0, 1860.0)) for path in ENTITIES
)
_FLAPS: Final = tuple(
    Outage("orders", FailureKind.CONNECTION, TimeBounds(at, at + 5.0), TimeBounds(at + 10.0, at + 35.0))
    for at in (2700.0, 2760.0, 2820.0)
)

HOUR: Final = RecordedHistory(
    source="a made-up hour",
    seconds=SECONDS,
    entities=ENTITIES,
    queues=10,
    loads=tuple(OfferedLoad(path=path, steps=(RateStep(0.0, 1.0),)) for path in ENTITIES),
    outages=(
        Outage("orders", FailureKind.INTERNAL, TimeBounds(300.0, 360.0), TimeBounds(380.0, 480.0)),
        Outage("audit", FailureKind.CONNECTION, TimeBounds(600.0, 900.0), TimeBounds(902.0, 910.0)),
        Outage("payments", FailureKind.BUSY, TimeBounds(1000.0, 1060.0), TimeBounds(1080.0, 1200.0), 0.5),
        *_SILENT,
        *_FLAPS,
    ),
    unknown=("anything of your own namespaces: nothing that failed was recorded, so the hour is made up",),
)
"""A synthetic hour, for a journal without failures: three entities with one message a second each.

It has the kinds of outage in SPEC.md section 1: a node restart, throttling, a silent data centre, an unstable entity.
Every seed draws the start and end of each within its bounds.
"""


# Journal records to a RecordedHistory.
#
# Every answer of the primary is an observation: a second of sends, a failure, a ping. An outage began between the last
# good observation and the first bad one, and ended between the last bad one and the first good one. If counts of one
# second have both, the outage affected a share of the requests. A request without an answer only proves a loss at the
# time of the request. While an entity is failed over, only pings observe the primary.


@dataclass(frozen=True, slots=True)
class Observation:
    """An observation of the primary: requested at `asked`, answered at `told`. A `window` has both counts."""

    asked: float
    told: float
    good: int
    bad: int
    reason: str = ""
    window: bool = False


@dataclass(slots=True)
class EntityObservations:
    """All that was seen of one entity."""

    path: str
    sightings: list[Observation] = field(default_factory=list)
    accepted: list[tuple[float, float, int]] = field(default_factory=list)
    """From, to and how many, by any route."""
    refusing: list[list[float]] = field(default_factory=list)
    """Return the start and end of each period without an accepted send."""
    kinds: list[tuple[float, FailureKind]] = field(default_factory=list)
    """Failures that were counted, by when."""
    doubts: dict[str, list[float]] = field(default_factory=dict)
    """When each message was in doubt."""

    def served(self, since: float) -> None:
        """Record an accepted send after `since`; before the first refusal it does not mark the end of one."""
        if self.refusing and self.refusing[-1][1] == inf and since >= self.refusing[-1][0]:
            self.refusing[-1][1] = since


def is_unanswered(sight: Observation) -> bool:
    """Return whether no send was answered."""
    return kind_of_reason(sight.reason) is FailureKind.TIMEOUT


WINDOW: Final = 1.0
"""Seconds by which counted sends may be recorded late."""


@dataclass(slots=True)
class Spell:
    """Bad sightings with no good one between them."""

    began: TimeBounds
    last_bad: float
    ended: TimeBounds | None = None
    reasons: list[str] = field(default_factory=list)
    good: int = 0
    bad: int = 0
    """Of the windows inside, where both are known."""


def outages_of(seen: EntityObservations, last: float) -> list[Outage]:
    """Return the outages of one entity; `last` is when the record ends."""
    spells: list[Spell] = []
    good_at: float | None = None
    clean = True
    """Whether a window without a failure lies between the latest spell and now."""
    for sight in sorted(seen.sightings, key=lambda one: one.told):
        spell = spells[-1] if spells and spells[-1].ended is None else None
        if sight.window and sight.good and sight.bad:
            _mixed(spells, spell, sight)
        elif sight.bad:
            if spell is None:
                spell = _opened(spells, sight, good_at, merge=not clean)
                clean = False
            spell.last_bad = max(spell.last_bad, sight.asked if is_unanswered(sight) else sight.told)
            spell.bad += sight.bad if sight.window else 0
            spell.reasons += [sight.reason] if sight.reason else []
        elif spell is None or sight.asked >= spell.last_bad or not sight.window:
            good_at = sight.told
            clean = clean or sight.window
            if spell is not None:
                spell.ended = TimeBounds(min(spell.last_bad, sight.told), sight.told)
    found = (_outage(seen, spell, last) for spell in spells)
    return [outage for outage in found if outage.failure in CONDITIONS]  # the others are of single messages


def _mixed(spells: list[Spell], spell: Spell | None, sight: Observation) -> None:
    """Add a second with both: the edge of a spell, inside of one, or a whole one."""
    if spell is not None:
        if sight.asked > spell.began.latest:
            spell.good, spell.bad = spell.good + sight.good, spell.bad + sight.bad
            spell.last_bad = max(spell.last_bad, sight.asked)
    elif not spells or sight.asked >= (spells[-1].ended or spells[-1].began).latest:
        found = Spell(TimeBounds(sight.asked, sight.told), sight.told, good=sight.good, bad=sight.bad)
        found.ended = TimeBounds(sight.told, sight.told)
        spells.append(found)


def _opened(spells: list[Spell], sight: Observation, good_at: float | None, *, merge: bool) -> Spell:
    """Open a new spell, or the latest again if every second between them had a failure."""
    if merge and spells:
        spell = spells[-1]
        spell.ended = None
        spell.good += 1
        return spell
    earliest = sight.asked if good_at is None else min(good_at, sight.told)
    latest = max(earliest, sight.asked) if is_unanswered(sight) else sight.told
    spells.append(Spell(TimeBounds(earliest, latest), sight.asked))
    return spells[-1]


def _outage(seen: EntityObservations, spell: Spell, last: float) -> Outage:
    ended = spell.ended or TimeBounds(min(spell.last_bad, last), last)
    share = spell.bad / (spell.good + spell.bad) if spell.good and spell.bad else 1.0
    return Outage(seen.path, _kind(seen, spell, ended), spell.began, ended, round(share, 3))


def _kind(seen: EntityObservations, spell: Spell, ended: TimeBounds) -> FailureKind:
    """Return the most frequent failure kind.

    An older journal counts none: a failure without a state change or doubt was throttling.
    """
    found = Counter(kind for kind in map(kind_of_reason, spell.reasons) if kind is not None)
    found.update(kind for at, kind in seen.kinds if spell.began.earliest <= at <= ended.latest + WINDOW)
    return found.most_common(1)[0][0] if found else FailureKind.BUSY


BUCKETS: Final = 60
"""The load is read in about so many parts."""
SHORTEST_BUCKET, LONGEST_BUCKET = 5.0, 60.0
MOST: Final = 5
"""Entities whose load is described one by one."""
COVERED: Final = 0.2
"""The least part of a step that must be free of refusals to measure its load; otherwise the previous step counts."""


def loads_of(seen: EntityObservations, first: float, seconds: float, *, waits: bool) -> Iterable[OfferedLoad]:
    """Return the load offered to an entity: from one caller, or from the observed number if callers wait."""
    callers = max(1, min(len(seen.doubts), _at_once(seen))) if waits else 1
    steps = tuple(_steps(seen, first, seconds))
    shared = tuple(step._replace(rate=step.rate / callers) for step in steps)
    return [OfferedLoad(path=seen.path, steps=shared, waits=waits)] * callers


def _at_once(seen: EntityObservations) -> int:
    """How many different messages were in doubt in the time of one refusal, at most."""
    return max(
        (
            sum(1 for times in seen.doubts.values() if any(since <= at <= until for at in times))
            for since, until in seen.refusing
        ),
        default=1,
    )


def _steps(seen: EntityObservations, first: float, seconds: float) -> Iterable[RateStep]:
    width = min(max(seconds / BUCKETS, SHORTEST_BUCKET), LONGEST_BUCKET)
    counts = [0.0] * (int(seconds / width) + 1)
    for since, until, count in seen.accepted:
        counts[int(max(0.0, (since + until) / 2 - first) / width)] += count
    rate: float | None = None
    for index, counted in enumerate(counts):
        since = first + index * width
        until = min(since + width, first + seconds)
        free = until - since - _refused(seen, since, until)
        if free >= COVERED * width:
            now = round(counted / free, 3)
            if now != rate:
                yield RateStep(since - first, now)
            rate = now


def _refused(seen: EntityObservations, since: float, until: float) -> float:
    return sum(max(0.0, min(until, to) - max(since, at)) for at, to in seen.refusing)


def refusal(seen: Sequence[EntityObservations]) -> float:
    """Return the median duration of refused pings. Sends take the same path, and theirs is not measured."""
    took = [
        sight.told - sight.asked
        for one in seen
        for sight in one.sightings
        if sight.reason and sight.told > sight.asked and not is_unanswered(sight)
    ]
    return round(median(took), 3) if took else 0.0


def insistence(seen: Sequence[EntityObservations]) -> float | None:
    """Return the seconds until callers retried a refused message; None without an observed retry."""
    gaps = [later - at for one in seen for times in one.doubts.values() for at, later in pairwise(times)]
    return round(median(gaps), 3) if gaps else None


def bounds(loads: Sequence[OfferedLoad]) -> str:
    """Return the uncertainty of a forecast when a later load differs from this one."""
    parts: dict[str, list[float]] = {}
    for path in {load.path for load in loads}:
        mine = [load for load in loads if load.path == path]
        parts[path] = [sum(load.rate_at(step.at) for load in mine) for step in mine[0].steps if step.rate > 0.0]
    told = [
        f"{min(rates):.3g} to {max(rates):.3g} a second to {path}" for path, rates in sorted(parts.items()) if rates
    ]
    if not told:
        return ""
    return (
        f"future load: here it was {', '.join(told[:MOST])}; parked, duplicate and reordered messages grow and shrink "
        "with it"
    )


PRIMARY: Final = "primary"
_STATES: Final = frozenset(state.value for state in State)
VERBS: Final[dict[type[pairing_events.Event], Verb]] = {
    pairing_events.Forced: "force",
    pairing_events.Pinned: "pin",
    pairing_events.EntityReleased: "release",
    pairing_events.SyphonPaused: "pause",
    pairing_events.SyphonResumed: "resume",
}


def read_history(journals: Sequence[Path], policy: Policy) -> RecordedHistory:
    """Return the history in journals, or trees of them.

    Args:
        journals: a record that is in several of them counts once.
        policy: the policy in force; it sets how long a send waited for its answer.

    Raises:
        PipelineError: a journal is missing, or there are no files in any.
        ConfigurationError: the records name no entity.
    """
    found = find_journal_files(journals)
    found.require_whole()
    files = sorted(found.files, key=lambda file: (file.path.name, file.size))
    paths = [file.path for file in files if isinstance(file.path, Path)]
    if len(paths) < len(files):
        raise PipelineError("a rehearsal reads journals of this machine: copy those of the store into a folder")
    reader = read_files(paths)
    history = history_of(_once(reader), policy, source=", ".join(str(journal) for journal in journals))
    skipped = reader.unread.count + reader.unknown
    unread = f"{skipped} unreadable lines of the journal"
    notes = ("; ".join((unread, *reader.unread.tell())),) if skipped else ()
    return replace(history, unknown=(*history.unknown, *notes, *found.notes))


def _once(records: Iterable[pairing_events.Record]) -> Iterator[pairing_events.Record]:
    """Leave out records that came before: an engine's are in order, by the names of its files."""
    latest: dict[tuple[str, str], int] = {}
    for record in records:
        if record.seq > latest.get((record.engine, record.boot), 0):
            latest[record.engine, record.boot] = record.seq
            yield record


def history_of(records: Iterable[pairing_events.Record], policy: Policy, *, source: str) -> RecordedHistory:
    """Return the history in `records`. Raises ConfigurationError: the records name no entity."""
    reading = HistoryReader(policy)
    for record in records:
        reading.read(record)
    return reading.history(source)


class HistoryReader:
    """Takes records one by one. Times are absolute until the end."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._seen: dict[str, EntityObservations] = {}
        self._first: float | None = None
        self._last = 0.0
        self._queues = 1
        self._pulled: dict[int, tuple[float, str]] = {}
        self._queue_outages: list[Outage] = []
        self._acts: list[OperatorAct] = []
        self._crashes: list[tuple[float, float]] = []
        self._boots: dict[tuple[str, str], tuple[float, bool]] = {}
        """By engine and boot: its latest record, and whether it ended in order."""
        self._single_acts = 0
        self._strange = 0

    def read(self, record: pairing_events.Record) -> None:
        """One record."""
        event = record.event
        at = event.at
        self._first = at if self._first is None else min(at, self._first)
        self._last = max(self._last, at)
        self._boot(record)
        match event:
            case pairing_events.SendsCounted():
                self._sends(event)
            case pairing_events.StateChanged():
                self._changed(event)
            case pairing_events.FailuresCounted(route="primary"):
                self._entity(event.entity).kinds.append((at, event.failure))
            case pairing_events.InDoubt(route="primary"):
                self._doubt(event)
            case pairing_events.PingAccepted():
                self._entity(event.entity).sightings.append(Observation(at - event.took, at, 1, 0))
            case pairing_events.PingFailed():
                self._entity(event.entity).sightings.append(Observation(at - event.took, at, 0, 1, event.reason))
            case pairing_events.QueuePulled():
                self._pulled.setdefault(event.queue, (at, event.reason))
            case pairing_events.QueueRestored():
                self._restored(event.queue, at)
            case pairing_events.Forced() | pairing_events.Pinned() | pairing_events.EntityReleased():
                self._acts.append(OperatorAct(at, 0, VERBS[type(event)], event.entity))
            case pairing_events.SyphonPaused() | pairing_events.SyphonResumed():
                self._syphon(event)
            case _:
                pass

    def _entity(self, path: str) -> EntityObservations:
        return self._seen.setdefault(path.casefold(), EntityObservations(path))

    def _boot(self, record: pairing_events.Record) -> None:
        key, event = (record.engine, record.boot), record.event
        if isinstance(event, pairing_events.EngineStarted):
            self._queues = max(self._queues, event.backlog_queues)
            earlier = [found for (engine, boot), found in self._boots.items() if engine == record.engine]
            if earlier and key not in self._boots and not earlier[-1][1]:
                self._crashes.append((earlier[-1][0], event.at))
        self._boots[key] = (event.at, isinstance(event, pairing_events.EngineStopped))

    def _sends(self, event: pairing_events.SendsCounted) -> None:
        seen, since = self._entity(event.entity), event.at - event.seconds
        if event.accepted:
            seen.accepted.append((since, event.at, event.accepted))
            seen.served(since)
        if event.route == PRIMARY and (event.accepted or event.failed):
            seen.sightings.append(Observation(since, event.at, event.accepted, event.failed, window=True))

    def _changed(self, event: pairing_events.StateChanged) -> None:
        if not {event.was, event.now} <= _STATES:
            self._strange += 1
            return
        seen, now = self._entity(event.entity), State(event.now)
        if now is State.SUSPECT:
            seen.sightings.append(self._bad(event.at, event.why))
            seen.refusing.append([event.at, inf])
        elif now is State.HEALTHY:
            seen.served(event.at)
        if now is State.HEALTHY and not event.by and State(event.was) in (State.SUSPECT, State.UNKNOWN):
            seen.sightings.append(Observation(event.at, event.at, 1, 0))

    def _bad(self, at: float, reason: str) -> Observation:
        timed_out = kind_of_reason(reason) is FailureKind.TIMEOUT
        return Observation(at - self._policy.send_timeout * timed_out, at, 0, 1, reason)

    def _doubt(self, event: pairing_events.InDoubt) -> None:
        seen = self._entity(event.entity)
        seen.sightings.append(self._bad(event.at, event.reason))
        seen.doubts.setdefault(event.message_id, []).append(event.at)

    def _restored(self, queue: int, at: float) -> None:
        pulled = self._pulled.pop(queue, None)
        if pulled is not None:
            kind = kind_of_reason(pulled[1]) or FailureKind.UNEXPLAINED
            self._queue_outages.append(Outage(queue, kind, TimeBounds(pulled[0], pulled[0]), TimeBounds(at, at)))

    def _of_queues(self) -> list[Outage]:
        """Return the queues' outages.

        A replay counts its queues from 0, and recorded indices may have gaps: the queues that were out are then the
        first ones, since one is as good as another.
        """
        out = sorted({int(outage.target) for outage in self._queue_outages})
        self._queues = max(self._queues, len(out))
        if not out or (out[0] >= 0 and out[-1] < self._queues):
            return self._queue_outages
        return [outage._replace(target=out.index(int(outage.target))) for outage in self._queue_outages]

    def _syphon(self, event: pairing_events.SyphonPaused | pairing_events.SyphonResumed) -> None:
        if event.queue is None and not event.destination:
            self._acts.append(OperatorAct(event.at, 0, VERBS[type(event)]))
        else:
            self._single_acts += 1

    # -- the whole --------------------------------------------------------------------------------------------------

    def history(self, source: str) -> RecordedHistory:
        """Return the history of the records read so far."""
        seen = [one for one in self._seen.values() if one.sightings or one.accepted]
        if self._first is None or not seen:
            raise ConfigurationError(f"the journal in {source} has no sends to replay")
        for queue in tuple(self._pulled):
            self._restored(queue, self._last)
        first, seconds = self._first, self._last - self._first
        outages = [outage for one in seen for outage in outages_of(one, self._last)] + self._of_queues()
        insists = insistence(seen)
        loads = tuple(load for one in seen for load in loads_of(one, first, seconds, waits=insists is not None))
        return RecordedHistory(
            source=source,
            began_at=first,
            seconds=seconds,
            entities=tuple(one.path for one in seen),
            queues=self._queues,
            loads=loads,
            outages=tuple(sorted((_since(outage, first) for outage in outages), key=lambda one: (one.began, str(one)))),
            crashes=tuple(Crash(at - first, back - first, 0) for at, back in self._crashes),
            acts=tuple(act._replace(at=act.at - first) for act in self._acts),
            refusal=refusal(seen),
            insists=insists,
            unknown=tuple(self._unknown(outages, loads)),
        )

    def _unknown(self, outages: Sequence[Outage], loads: Sequence[OfferedLoad]) -> Iterable[str]:
        wide = [outage.ended.width for outage in outages if isinstance(outage.target, str)]
        if any(width > 1.0 for width in wide):
            yield (
                f"when outages ended, up to {max(wide):.0f} s in one case: while an entity is failed over, "
                "its pings alone ask the primary"
            )
        doubtful = {FailureKind.TIMEOUT, FailureKind.CONNECTION, FailureKind.COMMUNICATION, FailureKind.DETACHED}
        if any(outage.failure in doubtful for outage in outages):
            yield "the arrival of messages with an unanswered send: duplicates are bounds"
        if outages and (said := bounds(loads)):
            yield said
        if len({engine for engine, _ in self._boots}) > 1:
            yield "how several engines share the load: they are replayed as one"
        if self._strange:
            yield f"what {self._strange} changes of state mean: no entity has such a state"
        if self._single_acts:
            yield f"{self._single_acts} pauses of single queues or destinations, which are not replayed"


def _since(outage: Outage, first: float) -> Outage:
    began, ended = (TimeBounds(span.earliest - first, span.latest - first) for span in (outage.began, outage.ended))
    return outage._replace(began=began, ended=ended)
