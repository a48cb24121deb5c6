"""A journal's records to a History: what they say of outages, of the load, of people and of crashes.

Every answer of the primary is a sighting: a second of sends, a failure, a ping. Between the last good sighting and the
first bad one an outage began; it ended between the last bad one and the first good one. A request that was not
answered says no more than that it was lost when it was asked. While an entity is failed over only pings see anything.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from math import inf
from pathlib import Path
from statistics import median
from typing import Final

from console.core.entity import State
from console.core.errors import ConfigurationError
from console.core.events import (
    EngineStarted,
    EngineStopped,
    Event,
    FailuresCounted,
    Forced,
    InDoubt,
    PingAccepted,
    PingFailed,
    Pinned,
    QueuePulled,
    QueueRestored,
    Record,
    Released,
    SendsCounted,
    StateChanged,
    SyphonPaused,
    SyphonResumed,
)
from console.core.options import Policy
from console.core.verdict import FailureKind
from console.engine.spool import CLOSED, read_records
from console.pipeline.rehearsal.history import CONDITIONS, History, Load, Outage, Span, Step, kind_of_reason
from console.simulation.plan import Act, Crash, Verb

PRIMARY: Final = "primary"
WINDOW: Final = 1.0
"""Seconds that counted sends may be told late."""
BUCKETS: Final = 60
"""The load is read in about so many parts."""
SHORTEST_BUCKET, LONGEST_BUCKET = 5.0, 60.0
COVERED: Final = 0.2
"""Of a part at least so much must be free of refusals to say what was offered; else the part before says it."""
VERBS: Final[dict[type[Event], Verb]] = {
    Forced: "force",
    Pinned: "pin",
    Released: "release",
    SyphonPaused: "pause",
    SyphonResumed: "resume",
}


@dataclass(frozen=True, slots=True)
class Sighting:
    """What somebody saw of the primary: asked at `asked`, told at `told`. Of `window`s both counts are known."""

    asked: float
    told: float
    good: int
    bad: int
    reason: str = ""
    window: bool = False


@dataclass(slots=True)
class Seen:
    """All that was seen of one entity."""

    path: str
    sightings: list[Sighting] = field(default_factory=list)
    accepted: list[tuple[float, float, int]] = field(default_factory=list)
    """From, to and how many, by any route."""
    refusing: list[list[float]] = field(default_factory=list)
    """From and to of the times in which nobody was told yes."""
    kinds: list[tuple[float, FailureKind]] = field(default_factory=list)
    """Failures that were counted, by when."""
    doubts: dict[str, list[float]] = field(default_factory=dict)
    """When each message was in doubt."""

    def served(self, since: float) -> None:
        """A caller was told yes after `since`: before the refusals began, that says nothing of their end."""
        if self.refusing and self.refusing[-1][1] == inf and since >= self.refusing[-1][0]:
            self.refusing[-1][1] = since


def read_history(folder: Path, policy: Policy) -> History:
    """The history in a journal's folder.

    Args:
        policy: what was in force; says how long a send waited for its answer.

    Raises:
        ConfigurationError: there is no journal, or nothing in it.
    """
    if not (folder / CLOSED).is_dir():
        raise ConfigurationError(f"there is no journal in {folder}: name the folder that has {CLOSED}/ in it")
    reader = read_records(folder)
    history = history_of(reader, policy, source=str(folder))
    skipped = reader.unreadable + reader.unknown
    if not skipped:
        return history
    unread = f"what {skipped} lines of the journal said, which could not be read"
    return replace(history, unknown=(*history.unknown, unread))


def history_of(records: Iterable[Record], policy: Policy, *, source: str) -> History:
    """The history that records tell.

    Raises:
        ConfigurationError: they tell of no entity.
    """
    reading = Reading(policy)
    for record in records:
        reading.read(record)
    return reading.history(source)


class Reading:
    """Takes records one by one. Times are absolute until the end."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._seen: dict[str, Seen] = {}
        self._first: float | None = None
        self._last = 0.0
        self._queues = 0
        self._pulled: dict[int, tuple[float, str]] = {}
        self._queue_outages: list[Outage] = []
        self._acts: list[Act] = []
        self._crashes: list[tuple[float, float]] = []
        self._boots: dict[tuple[str, str], tuple[float, bool]] = {}
        """By engine and boot: its latest record, and whether it ended in order."""
        self._single_acts = 0

    def read(self, record: Record) -> None:
        """One record."""
        event = record.event
        at = event.at
        self._first = at if self._first is None else min(at, self._first)
        self._last = max(self._last, at)
        self._boot(record)
        match event:
            case SendsCounted():
                self._sends(event)
            case StateChanged():
                self._changed(event)
            case FailuresCounted(route="primary"):
                self._entity(event.entity).kinds.append((at, event.failure))
            case InDoubt(route="primary"):
                self._doubt(event)
            case PingAccepted():
                self._entity(event.entity).sightings.append(Sighting(at - event.took, at, 1, 0))
            case PingFailed():
                self._entity(event.entity).sightings.append(Sighting(at - event.took, at, 0, 1, event.reason))
            case QueuePulled():
                self._pulled.setdefault(event.queue, (at, event.reason))
            case QueueRestored():
                self._restored(event.queue, at)
            case Forced() | Pinned() | Released():
                self._acts.append(Act(at, 0, VERBS[type(event)], event.entity))
            case SyphonPaused() | SyphonResumed():
                self._syphon(event)
            case _:
                pass

    def _entity(self, path: str) -> Seen:
        return self._seen.setdefault(path.casefold(), Seen(path))

    def _boot(self, record: Record) -> None:
        key, event = (record.engine, record.boot), record.event
        if isinstance(event, EngineStarted):
            self._queues = max(self._queues, event.backlog_queues)
            earlier = [found for (engine, boot), found in self._boots.items() if engine == record.engine]
            if earlier and key not in self._boots and not earlier[-1][1]:
                self._crashes.append((earlier[-1][0], event.at))
        self._boots[key] = (event.at, isinstance(event, EngineStopped))

    def _sends(self, event: SendsCounted) -> None:
        seen, since = self._entity(event.entity), event.at - event.seconds
        if event.accepted:
            seen.accepted.append((since, event.at, event.accepted))
            seen.served(since)
        if event.route == PRIMARY and (event.accepted or event.failed):
            seen.sightings.append(Sighting(since, event.at, event.accepted, event.failed, window=True))

    def _changed(self, event: StateChanged) -> None:
        seen, now = self._entity(event.entity), State(event.now)
        if now is State.SUSPECT:
            seen.sightings.append(self._bad(event.at, event.why))
            seen.refusing.append([event.at, inf])
        elif now is State.HEALTHY:
            seen.served(event.at)
        if now is State.HEALTHY and not event.by and State(event.was) in (State.SUSPECT, State.UNKNOWN):
            seen.sightings.append(Sighting(event.at, event.at, 1, 0))

    def _bad(self, at: float, reason: str) -> Sighting:
        timed_out = kind_of_reason(reason) is FailureKind.TIMEOUT
        return Sighting(at - self._policy.send_timeout * timed_out, at, 0, 1, reason)

    def _doubt(self, event: InDoubt) -> None:
        seen = self._entity(event.entity)
        seen.sightings.append(self._bad(event.at, event.reason))
        seen.doubts.setdefault(event.message_id, []).append(event.at)

    def _restored(self, queue: int, at: float) -> None:
        pulled = self._pulled.pop(queue, None)
        if pulled is not None:
            kind = kind_of_reason(pulled[1]) or FailureKind.UNEXPLAINED
            self._queue_outages.append(Outage(queue, kind, Span(pulled[0], pulled[0]), Span(at, at)))

    def _syphon(self, event: SyphonPaused | SyphonResumed) -> None:
        if event.queue is None and not event.destination:
            self._acts.append(Act(event.at, 0, VERBS[type(event)]))
        else:
            self._single_acts += 1

    # -- the whole --------------------------------------------------------------------------------------------------

    def history(self, source: str) -> History:
        """What was read so far."""
        seen = [one for one in self._seen.values() if one.sightings or one.accepted]
        if self._first is None or not seen:
            raise ConfigurationError(f"the journal in {source} tells of no sends: there is nothing to replay")
        for queue in tuple(self._pulled):
            self._restored(queue, self._last)
        first, seconds = self._first, self._last - self._first
        outages = [outage for one in seen for outage in outages_of(one, self._last)] + self._queue_outages
        insists = _insistence(seen)
        return History(
            source=source,
            began_at=first,
            seconds=seconds,
            entities=tuple(one.path for one in seen),
            queues=max(self._queues, 1),
            loads=tuple(load for one in seen for load in _loads(one, first, seconds, waits=insists is not None)),
            outages=tuple(sorted((_since(outage, first) for outage in outages), key=lambda one: (one.began, str(one)))),
            crashes=tuple(Crash(at - first, back - first, 0) for at, back in self._crashes),
            acts=tuple(act._replace(at=act.at - first) for act in self._acts),
            refusal=_refusal(seen),
            insists=insists,
            unknown=tuple(self._unknown(outages)),
        )

    def _unknown(self, outages: Sequence[Outage]) -> Iterable[str]:
        wide = [outage.ended.width for outage in outages if isinstance(outage.target, str)]
        if any(width > 1.0 for width in wide):
            yield (
                f"when outages ended, up to {max(wide):.0f} s in one case: while an entity is failed over, "
                "its pings alone ask the primary"
            )
        doubtful = {FailureKind.TIMEOUT, FailureKind.CONNECTION, FailureKind.COMMUNICATION, FailureKind.DETACHED}
        if any(outage.failure in doubtful for outage in outages):
            yield "whether a message arrived whose send was not answered: duplicates are bounds"
        if len({engine for engine, _ in self._boots}) > 1:
            yield "how several engines share the load: they are replayed as one"
        if self._single_acts:
            yield f"{self._single_acts} pauses of single queues or destinations, which are not replayed"


def _since(outage: Outage, first: float) -> Outage:
    began, ended = (Span(span.earliest - first, span.latest - first) for span in (outage.began, outage.ended))
    return outage._replace(began=began, ended=ended)


# -- outages -------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Spell:
    """Bad sightings with no good one between them."""

    began: Span
    last_bad: float
    ended: Span | None = None
    reasons: list[str] = field(default_factory=list)
    good: int = 0
    bad: int = 0
    """Of the windows inside, where both are known."""


def outages_of(seen: Seen, last: float) -> list[Outage]:
    """The outages of one entity; `last` is when the record ends."""
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
            spell.last_bad = max(spell.last_bad, sight.asked if _unanswered(sight) else sight.told)
            spell.bad += sight.bad if sight.window else 0
            spell.reasons += [sight.reason] if sight.reason else []
        elif spell is None or sight.asked >= spell.last_bad or not sight.window:
            good_at = sight.told
            clean = clean or sight.window
            if spell is not None:
                spell.ended = Span(min(spell.last_bad, sight.told), sight.told)
    found = (_outage(seen, spell, last) for spell in spells)
    return [outage for outage in found if outage.failure in CONDITIONS]  # the others are of single messages


def _mixed(spells: list[Spell], spell: Spell | None, sight: Sighting) -> None:
    """A second with both: the edge of a spell, inside of one, or all that there is of one."""
    if spell is not None:
        if sight.asked > spell.began.latest:
            spell.good, spell.bad = spell.good + sight.good, spell.bad + sight.bad
            spell.last_bad = max(spell.last_bad, sight.asked)
    elif not spells or sight.asked >= (spells[-1].ended or spells[-1].began).latest:
        found = Spell(Span(sight.asked, sight.told), sight.told, good=sight.good, bad=sight.bad)
        found.ended = Span(sight.told, sight.told)
        spells.append(found)


def _opened(spells: list[Spell], sight: Sighting, good_at: float | None, *, merge: bool) -> Spell:
    """A new spell; or the latest again, where no second between them was without a failure."""
    if merge and spells:
        spell = spells[-1]
        spell.ended = None
        spell.good += 1
        return spell
    earliest = sight.asked if good_at is None else min(good_at, sight.told)
    latest = max(earliest, sight.asked) if _unanswered(sight) else sight.told
    spells.append(Spell(Span(earliest, latest), sight.asked))
    return spells[-1]


def _unanswered(sight: Sighting) -> bool:
    return kind_of_reason(sight.reason) is FailureKind.TIMEOUT


def _outage(seen: Seen, spell: Spell, last: float) -> Outage:
    ended = spell.ended or Span(min(spell.last_bad, last), last)
    share = spell.bad / (spell.good + spell.bad) if spell.good and spell.bad else 1.0
    return Outage(seen.path, _kind(seen, spell, ended), spell.began, ended, round(share, 3))


def _kind(seen: Seen, spell: Spell, ended: Span) -> FailureKind:
    """The kind that was counted or told most often. Where nobody counted (an older journal), a failure that moved no
    state and left no doubt was throttling."""
    found = Counter(kind for kind in map(kind_of_reason, spell.reasons) if kind is not None)
    found.update(kind for at, kind in seen.kinds if spell.began.earliest <= at <= ended.latest + WINDOW)
    return found.most_common(1)[0][0] if found else FailureKind.BUSY


# -- load ----------------------------------------------------------------------------------------------------------


def _loads(seen: Seen, first: float, seconds: float, *, waits: bool) -> Iterable[Load]:
    """What was offered to an entity: by one caller, or, where callers wait, by as many as were seen to insist."""
    callers = max(1, min(len(seen.doubts), _at_once(seen))) if waits else 1
    steps = tuple(_steps(seen, first, seconds))
    shared = tuple(step._replace(rate=step.rate / callers) for step in steps)
    return [Load(path=seen.path, steps=shared, waits=waits)] * callers


def _at_once(seen: Seen) -> int:
    """How many different messages were in doubt in the time of one refusal, at most."""
    return max(
        (
            sum(1 for times in seen.doubts.values() if any(since <= at <= until for at in times))
            for since, until in seen.refusing
        ),
        default=1,
    )


def _steps(seen: Seen, first: float, seconds: float) -> Iterable[Step]:
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
                yield Step(since - first, now)
            rate = now


def _refused(seen: Seen, since: float, until: float) -> float:
    return sum(max(0.0, min(until, to) - max(since, at)) for at, to in seen.refusing)


def _refusal(seen: Sequence[Seen]) -> float:
    """How long refused pings took, in the middle; sends go the same way, and nobody measured theirs."""
    took = [
        sight.told - sight.asked
        for one in seen
        for sight in one.sightings
        if sight.reason and sight.told > sight.asked and not _unanswered(sight)
    ]
    return round(median(took), 3) if took else 0.0


def _insistence(seen: Sequence[Seen]) -> float | None:
    """Seconds after which callers sent a refused message again; None where nobody was seen to."""
    gaps = [later - at for one in seen for times in one.doubts.values() for at, later in pairwise(times)]
    return round(median(gaps), 3) if gaps else None
