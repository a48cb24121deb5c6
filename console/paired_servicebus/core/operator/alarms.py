"""The table of alarms: every condition of a pairing that an operator should know, each decided here and nowhere else.

    alarms(condition_of(snapshot))    # the worst first

A row of ROWS has a name, a severity, the console's page, what to do, and a pure function from the pairing's condition
to its cases, a sentence each. The first lines of the screen, `paired status`, `check` and `fleet`, the metrics,
`on_change`, the library's logger, the probe `/readyz` and the shipped alert rules render what it returns.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from paired_servicebus.core.accounting.refused_calls import REPLACE
from paired_servicebus.core.backlog.backlog_totals import FULL_SHARE, share_used, stranded_messages
from paired_servicebus.core.backlog.depth_readings import seconds_until
from paired_servicebus.core.fleet.roster import lacks_syphon
from paired_servicebus.core.gateway.gateway_sentences import turned_away
from paired_servicebus.core.model.entity_state import DIVERTING, State
from paired_servicebus.core.model.fleet_view import FleetView
from paired_servicebus.core.model.pairing_condition import PairingCondition, condition_of
from paired_servicebus.core.model.pairing_events import Event, StateChanged, Warned
from paired_servicebus.core.model.pairing_fold import LOST_IN, PairingEntity
from paired_servicebus.core.model.snapshot import (
    PRIMARY,
    EntityView,
    FindingVerdict,
    Snapshot,
    SyphonStatus,
    TroubleKind,
)
from paired_servicebus.core.operator import fleet_sentences
from paired_servicebus.core.text import untrusted_text
from paired_servicebus.core.text.number_format import format_indices, join_names, plural, rate, size
from paired_servicebus.core.text.time_format import age, clock
from paired_servicebus.core.text.untrusted_text import one_line

# -- values ----------------------------------------------------------------------------------------------------------


class Severity(StrEnum):
    """The severity of an alarm, the worst first."""

    CRITICAL = "critical"
    """Sends fail or are diverted, messages are not moved, or the state is not known: call somebody now."""
    WARNING = "warning"
    """Somebody should look at it. It degrades the status, as a critical one does."""
    NOTICE = "notice"
    """A condition that no engine can judge. It degrades nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Alarm:
    """One alarm. Its name and its subject identify it; the sentence has figures, which change."""

    name: str
    severity: Severity
    subject: str
    """The entity, queue, namespace or port; empty: the pairing."""
    sentence: str
    todo: str
    page: int
    """The console's page with more about it."""

    @property
    def text(self) -> str:
        """The sentence and what to do."""
        return f"{self.sentence} -> {self.todo}"

    @property
    def mark(self) -> str:
        """The sign before it in a list."""
        return "?" if self.severity is Severity.NOTICE else "!"

    def __str__(self) -> str:
        return f"{self.severity} {self.name}: {self.text}"


@dataclass(frozen=True, slots=True)
class Case:
    """One case of a row. `todo`: what to do, where it is not the row's."""

    subject: str
    sentence: str
    todo: str = ""


@dataclass(frozen=True, slots=True)
class AlarmRow:
    """One row. An event of its own, such as a change of state, reports the cases of a row with `has_event`."""

    name: str
    severity: Severity
    page: int
    todo: str
    cases: Callable[[PairingCondition], Iterable[Case]]
    has_event: bool = False


def alarms(condition: PairingCondition) -> tuple[Alarm, ...]:
    """Return every alarm of a pairing in this condition, the worst first, then in the order of the table."""
    return tuple(
        Alarm(
            name=row.name,
            severity=row.severity,
            subject=case.subject,
            sentence=case.sentence,
            todo=case.todo or row.todo,
            page=row.page,
        )
        for row in BY_SEVERITY
        for case in row.cases(condition)
    )


def degrading(found: Iterable[Alarm]) -> tuple[Alarm, ...]:
    """Return the alarms that degrade the status."""
    return tuple(alarm for alarm in found if alarm.severity is not Severity.NOTICE)


def advice(found: Sequence[Alarm]) -> str:
    """Return what to do first: of the worst alarms that of one that asks for an act; empty: there is no alarm.

    "Nothing now" is no advice while a part of the pairing is unknown: then it is what makes that part known.
    """
    worst = [alarm.todo for alarm in found if alarm.severity is found[0].severity]
    active = next((todo for todo in worst if not todo.startswith("nothing")), "")
    unknown = next((alarm.todo for alarm in found if alarm.name in UNKNOWN_PARTS), "")
    return active or (next(iter(worst if degrading(found) else ()), "") and (unknown or worst[0]))


UNKNOWN_PARTS: Final = ("fleet_unread", "fleet_engines_missing", "fleet_silent")
"""The alarms by which the state of other engines is unknown."""


# -- sends -----------------------------------------------------------------------------------------------------------


def fleet_alarms(found: Iterable[Alarm]) -> tuple[Alarm, ...]:
    """Return the alarms about the fleet."""
    return tuple(alarm for alarm in found if alarm.page == FLEET_PAGE)


def refused_entities(it: PairingCondition) -> list[EntityView]:
    """Return the entities whose calls fail at callers while the primary fails, or while none is accepted."""
    return [one for one in it.everywhere if one.refused_per_second > 0 and _loses(one)]


def _loses(entity: EntityView) -> bool:
    if isinstance(entity, PairingEntity):
        return bool(entity.total.failing)
    return entity.state in LOST_IN or entity.sends_per_second == 0


def unroutable_entities(it: PairingCondition) -> list[EntityView]:
    """Return the entities whose sends can reach neither namespace."""
    return [one for one in it.entities if it.has_no_route(one)]


_WHY_NOT: Final = (
    "namespace_unreachable", "credential_refused", "credential_silent", "entity_missing", "entity_unauthorized",
    "started_degraded", "backlog_refuses", "backlog_link",
)  # fmt: skip
"""The alarms that give the reason why neither namespace accepts sends."""
MAX_READINESS_CHARS: Final = 1000


def accepts_sends(snapshot: Snapshot | None) -> tuple[bool, str]:
    """Return whether one of the two namespaces accepts sends now, and a sentence with the reason.

    snapshot: None before the first one. An entity that nothing was sent to counts for the primary, unless that is known
    to be away.
    """
    if snapshot is None:
        return False, "not ready: the engine is starting"
    it = condition_of(snapshot)
    unknown = sum(one.state is State.UNKNOWN for one in it.entities)
    direct = sum(one.route == PRIMARY and one.state is not State.UNKNOWN for one in it.entities)
    where = f"the primary for {direct} of {len(it.entities)} entities" if it.entities else "the primary, if any comes"
    if unknown:
        where += f" ({unknown} {'away' if it.is_primary_away else 'unknown, as nothing was sent'})"
    said = f"sends go to {where}; {len(it.open_queues)} of {len(it.queues)} backlog queues accept"
    if not tuple(_nothing_accepted(it)):
        return True, f"ready: {said}"
    reasons = [alarm.sentence for alarm in alarms(it) if alarm.name in _WHY_NOT]
    return False, one_line("; ".join((f"not ready: {said}", *reasons)), most=MAX_READINESS_CHARS)


def _nothing_accepted(it: PairingCondition) -> Iterator[Case]:
    nothing_known = not it.entities and it.is_primary_away and it.queues and not it.open_queues
    if nothing_known or (it.entities and len(unroutable_entities(it)) == len(it.entities)):
        yield Case("", "neither namespace accepts sends", f"check {it.secondary} from here (paired check)")


def _no_route(it: PairingCondition) -> Iterator[Case]:
    lost = unroutable_entities(it)
    if lost and len(lost) < len(it.entities):
        sentence = f"no namespace accepts sends to {join_names(one.path for one in lost)}"
        yield Case("", sentence, f"check {it.secondary} from here (paired check)")


def _sends_refused(it: PairingCondition) -> Iterator[Case]:
    lost = [one for one in it.entities if one.refused_per_second > 0 and _loses(one)]
    if not lost:
        return
    states, pinned = {one.state for one in lost}, [one.path for one in lost if one.state is State.PINNED]
    todo = ""
    if pinned:
        todo = f"release (U), so that it can fail over: {join_names(pinned)}"
    elif State.SUSPECT in states:
        todo = "nothing yet: it fails over by itself"
    elif all(one.throttled for one in lost):
        todo = SEND_LESS
    elif not states & DIVERTING:
        todo = "see the reason of the refused calls on page 2: nothing fails over for it"
    yield Case("", f"sends are refused: {_refusals(lost)}", todo)


def _calls_fail(it: PairingCondition) -> Iterator[Case]:
    some = [one for one in it.everywhere if one.refused_per_second > 0 and not _loses(one)]
    if some:
        yield Case("", f"some calls fail beside accepted ones: {_refusals(some)}")


def _refusals(entities: Sequence[EntityView]) -> str:
    reasons: Counter[str] = Counter()
    for one in entities:
        reasons.update(dict(one.refusals))
    since = min((one.refused_since for one in entities if one.refused_since is not None), default=None)
    per_second = max(0.1, sum(one.refused_per_second for one in entities))
    why = f" ({reasons.most_common(1)[0][0]})" if reasons else ""
    lasted = f" since {clock(since)}" if since is not None else ""
    return f"{rate(per_second)}/s at callers of {join_names(one.path for one in entities)}{lasted}{why}"


def _in_state(state: State) -> Callable[[PairingCondition], Iterator[Case]]:
    def cases(it: PairingCondition) -> Iterator[Case]:
        for one in it.entities:
            if one.state is state and one.missing_since is None:
                todo = f"release (U) when the work is done: {one.path}" if state in (State.FORCED, State.PINNED) else ""
                yield Case(one.path, f"{one.path} {state}: {one.why}", todo)

    return cases


def _entity_missing(it: PairingCondition) -> Iterator[Case]:
    for one in it.entities:
        if one.missing_since is not None and one.state is not State.UNKNOWN:
            todo = f"create again, or stop the senders: {one.path}"
            yield Case(one.path, f"{one.path} {one.state}: {one.why}", todo)
    yield from _observed(TroubleKind.ENTITY_MISSING, "pairing.toml names {what}, and the primary namespace {reason}")(
        it
    )


def _throttled(it: PairingCondition) -> Iterator[Case]:
    waits = [
        f"{untrusted_text.name(one.path)}: {plural(one.throttled, 'call')} for up to "
        f"{it.read_at - one.throttled_since:.0f} s{_at_engines(one)}"
        for one in sorted(it.everywhere, key=lambda one: one.path)
        if one.throttled_since is not None and it.read_at - one.throttled_since >= THROTTLED_SECONDS
    ]
    if waits:
        yield Case("", f"calls wait because the namespace is busy ({'; '.join(waits)})")


def _unanswered(it: PairingCondition) -> Iterator[Case]:
    waits = [one for one in it.everywhere if one.unanswered_since is not None]
    if waits:
        since = min(one.unanswered_since for one in waits if one.unanswered_since is not None)
        yield Case("", f"calls have no answer since {clock(since)}: {join_names(one.path for one in waits)}")


def _at_engines(one: EntityView) -> str:
    waiting = one.total.waiting if isinstance(one, PairingEntity) else ()
    return f" at {plural(len(waiting), 'engine')}" if len(waiting) > 1 else ""


def _slow(it: PairingCondition) -> Iterator[Case]:
    for one in it.everywhere:
        if one.is_slow:
            path = untrusted_text.name(one.path)
            slow = one.total.slow if isinstance(one, PairingEntity) else 0
            where = f" at {plural(slow, 'engine')}" if slow > 1 else ""
            took = f": 99 of 100 calls take up to {one.p99:.1f} s here" if one.p99 is not None else ""
            yield Case(path, f"{path} is slow{where}{took}")


def _unknown(it: PairingCondition) -> Iterator[Case]:
    unknown = [one for one in it.everywhere if one.state is State.UNKNOWN]
    if unknown:
        age_ = age(it.at - min(one.since for one in unknown))
        yield Case("", f"unknown for {age_}, as this engine sends nothing: {join_names(one.path for one in unknown)}")


THROTTLED_SECONDS: Final = 1.0
"""Seconds of the longest wait from which it is an alarm."""


# -- the engine ------------------------------------------------------------------------------------------------------

FLEET_PAGE: Final = 7
MAX_NAMES: Final = 3
"""Engines named in what to do."""
STALE_SECONDS: Final = 5.0
"""Seconds after which a snapshot is old; an engine makes one a second."""


def _observed(kind: TroubleKind, form: str) -> Callable[[PairingCondition], Iterator[Case]]:
    """Return the cases of a trouble. `form`: its sentence with {what}, {reason} and {since}."""

    def cases(it: PairingCondition) -> Iterator[Case]:
        for one in it.troubles:
            if one.kind is kind:
                since = f" since {clock(one.since)}" if one.since is not None else ""
                yield Case(one.what, form.format(what=one.what, reason=one.reason, since=since))

    return cases


def _figures_old(it: PairingCondition) -> Iterator[Case]:
    if abs(it.at - it.read_at) > STALE_SECONDS:
        yield Case("", f"these figures are of {clock(it.read_at)}: the engine sends no new ones")


def _not_ready(it: PairingCondition) -> Iterator[Case]:
    against = it.readiness.of(FindingVerdict.NO) if it.readiness is not None else ()
    if against:
        more = f" (and {len(against) - 1} more: paired check)" if len(against) > 1 else ""
        what = "backlog not usable" if any(one.state in DIVERTING for one in it.entities) else "not ready to fail over"
        yield Case("", f"{what}: {against[0].evidence}{more}", against[0].todo)


def _journal_not_written(it: PairingCondition) -> Iterator[Case]:
    if it.journal is not None and it.journal.trouble:
        yield Case("", f"the journal is not written ({it.journal.trouble}): {it.journal.lost} events are missing")


def _no_receipts(it: PairingCondition) -> Iterator[Case]:
    if it.journal is not None and it.journal.trouble and it.syphon.status is not SyphonStatus.OFF:
        yield Case("", f"the syphon waits: no disk takes its receipts ({it.journal.trouble})")


# -- the backlog -----------------------------------------------------------------------------------------------------


def _backlog_refuses(it: PairingCondition) -> Iterator[Case]:
    if it.queues and not it.open_queues:
        reason = it.queues[0].pulled_reason
        which = f"all {len(it.queues)} backlog queues refuse" if len(it.queues) > 1 else "the backlog queue refuses"
        against = it.readiness.of(FindingVerdict.NO) if it.readiness is not None else ()
        todo = next((finding.todo for finding in against if finding.todo), "")
        if not todo and it.fleet is not None and it.fleet.trouble:
            todo = f"check {it.secondary} from here (paired check)"
        yield Case("", f"{which} sends{f': {reason}' if reason else ''}", todo)


def _queue_out(it: PairingCondition) -> Iterator[Case]:
    out = [queue for queue in it.queues if not queue.in_rotation and not queue.is_unsafe]
    if out and it.open_queues:
        reasons = join_names(dict.fromkeys(queue.pulled_reason or "for an unknown reason" for queue in out))
        which = f"{len(out)} of {len(it.queues)} backlog queues accept no sends"
        yield Case("", f"{which}: {format_indices(queue.index for queue in out)} ({reasons})")


def _queue_unsafe(it: PairingCondition) -> Iterator[Case]:
    for queue in it.queues:
        if queue.is_unsafe:
            yield Case(str(queue.index), f"backlog queue {queue.index} gets no messages: {queue.pulled_reason}")


def _nearly_full(it: PairingCondition) -> Iterator[Case]:
    for queue in it.queues:
        if share_used(queue) > FULL_SHARE:
            left = seconds_until(queue.size_bytes or 0, queue.limit_bytes or 0, queue.bytes_growth)
            when = (
                f", and full {clock(queue.read_at + left)} at this pace" if left is not None and queue.read_at else ""
            )
            yield Case(str(queue.index), f"backlog queue {queue.index} is {share_used(queue):.0%} full{when}")


def _dead_letters(it: PairingCondition) -> Iterator[Case]:
    dead = sum(queue.dead_lettered or 0 for queue in it.queues)
    if dead:
        yield Case(
            "", f"{plural(dead, 'dead-lettered message is', 'dead-lettered messages are')} in the backlog queues"
        )


def _stranded(it: PairingCondition) -> Iterator[Case]:
    growing = {queue.index for queue in it.unused.queues if queue.grows}
    counts = {index: number for index, number in stranded_messages(it.unused).items() if index not in growing}
    if counts:
        stranded = plural(sum(counts.values()), "message is", "messages are")
        queues = f"{'queue' if len(counts) == 1 else 'queues'} {format_indices(counts)}"
        sentence = f"{stranded} stranded in backlog {queues}, which no engine known here uses"
        yield Case("", sentence, _move_or_raise(counts))


def _growing(it: PairingCondition) -> Iterator[Case]:
    indices = [queue.index for queue in it.unused.queues if queue.grows]
    if indices:
        subject, grow = ("queue {} is", "grows") if len(indices) == 1 else ("queues {} are", "grow")
        sentence = (
            f"backlog {subject.format(format_indices(indices))} unused by this engine and {grow}: an application parks "
            "there and no syphon known here moves it"
        )
        yield Case("", sentence, _move_or_raise(indices))


def _move_or_raise(indices: Iterable[int]) -> str:
    return (
        "move stranded messages (page 3 M, or paired move-stranded), or set backlog_queue_count to "
        f"{max(indices) + 1} or more"
    )


def _syphon_in(status: SyphonStatus) -> Callable[[PairingCondition], Iterator[Case]]:
    def cases(it: PairingCondition) -> Iterator[Case]:
        if it.syphon.status is status:
            yield Case("", f"syphon {status}: {it.syphon.text}")

    return cases


def _syphon_unknown(it: PairingCondition) -> Iterator[Case]:
    for one in it.troubles:
        if one.kind is TroubleKind.SYPHON_UNKNOWN:
            yield Case(one.what, f"syphon unknown{f' for {one.what}' if one.what else ''}: {one.reason}")


def _parts_paused(it: PairingCondition) -> Iterator[Case]:
    if it.syphon.paused_parts:
        yield Case("", f"syphon {it.syphon.paused_parts}")


# -- the gateway and the fleet ---------------------------------------------------------------------------------------


def _gateway_full(it: PairingCondition) -> Iterator[Case]:
    view = it.gateway
    if view is not None and view.paused:
        since = f" since {clock(view.paused_since)}" if view.paused_since is not None else ""
        held = f"the gateway holds {size(view.bytes_in_hand)} of sends, its limit{since}"
        yield Case("", f"{held}: {plural(view.paused, 'client')} must wait until a namespace takes them")


def _gateway_closed(it: PairingCondition) -> Iterator[Case]:
    if it.gateway is not None and it.gateway.trouble:
        yield Case("", f"the gateway does not listen: {it.gateway.trouble}")
    yield from _observed(TroubleKind.GATEWAY_CLOSED, "the gateway does not listen: {reason}")(it)


def _turned_away(it: PairingCondition) -> Iterator[Case]:
    if it.gateway is not None:
        for why, sentence, todo in turned_away(it.gateway, it.at):
            yield Case(why, sentence, todo)


def _no_syphon(it: PairingCondition) -> Iterator[Case]:
    if it.fleet is not None and lacks_syphon(it.fleet, it.parked, it.syphon, it.read_at):
        yield Case("", "messages are parked and no engine of the fleet runs a syphon")


def _silent(it: PairingCondition) -> Iterator[Case]:
    if it.fleet is not None and (part := fleet_sentences.silent_part(it.fleet, it.read_at)):
        quiet = [one.engine for one in fleet_sentences.silent_engines(it.fleet)] or it.fleet.missing
        named = untrusted_text.names(quiet) if len(quiet) <= MAX_NAMES else "these engines"
        yield Case("", part[0], f"see whether {named} {'runs' if len(quiet) == 1 else 'run'}")


def _calls_fail_somewhere(it: PairingCondition) -> Iterator[Case]:
    engines = fleet_sentences.failing_engines(it.pairing) if it.fleet is not None else []
    if not engines:
        return
    lost = [one for one in it.pairing.entities if one.total.failing]
    todo = ""
    if all(one.throttled for one in lost):
        todo = SEND_LESS
    elif any(one.state is State.SUSPECT for one in lost):
        todo = "nothing yet: it fails over by itself"
    elif any(one.state in DIVERTING for one in lost):
        where = f"from {untrusted_text.names(engines)} and " if len(engines) <= MAX_NAMES else ""
        todo = f"check {it.secondary} {where}from here (paired check)"
    yield Case("", fleet_sentences.callers_part(it.pairing, it.at)[0], todo)


def _unwell_somewhere(*states: State) -> Callable[[PairingCondition], Iterator[Case]]:
    """Return the cases of entities whose worst state over all engines is one of these."""

    def cases(it: PairingCondition) -> Iterator[Case]:
        fleet = it.pairing.fleet if it.fleet is not None else None
        if fleet is None:
            return
        for one in fleet_sentences.unwell_entities(fleet.entities):
            state = fleet_sentences.worst_state(one)
            if state in states:
                who, path = fleet_sentences.dissenters(one, fleet), untrusted_text.name(one.path)
                text = fleet_sentences.entity_part(one)[0] + (f"; {who[0]}" if who else "")
                todo = f"release (U) when the work is done: {path}" if state in (State.FORCED, State.PINNED) else ""
                yield Case(path, f"{path}: {text}", todo)

    return cases


FleetCases = Callable[[FleetView, float], Iterable[tuple[str, str]]]
"""Yields a subject and a sentence each."""


def _of_fleet(sentences: FleetCases) -> Callable[[PairingCondition], Iterator[Case]]:
    """Return the cases of a rule over the fleet."""

    def cases(it: PairingCondition) -> Iterator[Case]:
        fleet = it.pairing.fleet if it.fleet is not None else None
        if fleet is not None:
            for subject, sentence in sentences(fleet, it.read_at):
                yield Case(subject, sentence)

    return cases


def _first_of(part: Callable[[FleetView, float], Sequence[str]]) -> FleetCases:
    """Return the case of a part's longest wording, if it has one."""
    return lambda view, now: (("", text) for text in part(view, now)[:1])


# -- the table -------------------------------------------------------------------------------------------------------

CRITICAL, WARNING, NOTICE = Severity
SEND_LESS: Final = "send less, or raise the tier; page 8 and page 7 name who sends"
PRIMARY_CHECK: Final = "check [primary] in pairing.toml, and the network"
MOVED_LATER: Final = "nothing now: it returns by itself, and the syphon moves the parked messages"
DISK: Final = "free the journal's disk, or name another folder: sends go on, and both go on without an order"
Row = AlarmRow

ROWS: Final = (
    Row("nothing_accepted", CRITICAL, 1, "", _nothing_accepted),
    Row("no_route", CRITICAL, 1, "", _no_route),
    Row("sends_refused", CRITICAL, 1, "nothing yet: the reasons are on page 2", _sends_refused),
    Row("fleet_sends_refused", CRITICAL, 7, "see page 7 for the engines whose callers fail",
        _calls_fail_somewhere),
    Row("client_closed", CRITICAL, 1, "make a new pairing: this one sends nothing more",
        _observed(TroubleKind.CLIENT_CLOSED, "{reason}")),
    Row("credential_refused", CRITICAL, 1, REPLACE,
        _observed(TroubleKind.CREDENTIAL_REFUSED, "the {what} namespace refuses the credential{since}: {reason}")),
    Row("credential_silent", CRITICAL, 1, "see why it gives none, or replace it: no link opens without one",
        _observed(TroubleKind.CREDENTIAL_SILENT, "the credential of {what}, {reason}")),
    Row("namespace_unreachable", CRITICAL, 1, PRIMARY_CHECK,
        _observed(TroubleKind.NAMESPACE_UNREACHABLE, "the {what} namespace cannot be reached: {reason}")),
    Row("entity_missing", CRITICAL, 2, "create it again, or stop its senders and take it out of pairing.toml",
        _entity_missing),
    Row("entity_unauthorized", CRITICAL, 2, "check [primary] in pairing.toml; its key or role needs Send",
        _observed(TroubleKind.ENTITY_UNAUTHORIZED,
                  "the primary namespace refused the credential for {what}: {reason}")),
    Row("started_degraded", CRITICAL, 3, "check the network, and [secondary] in pairing.toml",
        _observed(TroubleKind.STARTED_DEGRADED,
                  "the pairing started degraded: {reason}; sends that need the backlog are refused until a try to "
                  "complete it succeeds")),
    Row("backlog_refuses", CRITICAL, 3, "see the reason of each queue on page 3", _backlog_refuses),
    Row("not_ready", CRITICAL, 3, "run paired check", _not_ready),
    Row("gateway_closed", CRITICAL, 8, "free the port, or mend the keys: clients of the gateway cannot send",
        _gateway_closed),
    Row("syphon_stuck", CRITICAL, 3, "see the syphon's line and page 3 for the cause", _syphon_in(SyphonStatus.STUCK)),
    Row("no_syphon", CRITICAL, 7, "start an engine with a syphon (enable_syphon = true)", _no_syphon),
    Row("backlog_stalled", CRITICAL, 3, "start an engine with a syphon (enable_syphon = true)",
        _observed(TroubleKind.BACKLOG_STALLED, "the backlog has not fallen{since}: {reason}")),
    Row("backlog_growing", CRITICAL, 3, "", _growing),
    Row("no_receipts", CRITICAL, 3, DISK, _no_receipts),
    Row("figures_old", CRITICAL, 1, "see whether the engine's process runs, and its log", _figures_old),
    Row("failed_over", CRITICAL, 2, MOVED_LATER, _in_state(State.FAILED_OVER), has_event=True),
    Row("fleet_failed_over", CRITICAL, 7, MOVED_LATER, _unwell_somewhere(State.FAILED_OVER)),

    Row("syphon_paused", WARNING, 3, "resume the syphon (S), or messages stay parked", _syphon_in(SyphonStatus.PAUSED)),
    Row("forced", WARNING, 2, "", _in_state(State.FORCED), has_event=True),
    Row("pinned", WARNING, 2, "", _in_state(State.PINNED), has_event=True),
    Row("throttled", WARNING, 1, SEND_LESS, _throttled),
    Row("unanswered", WARNING, 1, "nothing yet: a call without an answer fails at its timeout", _unanswered),
    Row("calls_fail", WARNING, 1, "see the reason: single messages are refused", _calls_fail),
    Row("suspect", WARNING, 2, "nothing yet: it fails over by itself", _in_state(State.SUSPECT), has_event=True),
    Row("backlog_unsafe", WARNING, 3, "change that setting of the queue", _queue_unsafe),
    Row("backlog_link", WARNING, 3, "see the reason: the queue is out of use until a link opens",
        _observed(TroubleKind.BACKLOG_LINK, "no link to backlog queue {what}: {reason}")),
    Row("backlog_queue_out", WARNING, 3, "nothing now: sends use the other queues, and a probe returns it", _queue_out,
        has_event=True),
    Row("backlog_nearly_full", WARNING, 3, "run a syphon; more queues add space (backlog_queue_count)", _nearly_full),
    Row("backlog_unread", WARNING, 3, "check Manage on the secondary; sends do not need it",
        _observed(TroubleKind.BACKLOG_UNREAD, "the depth of the backlog cannot be read{since}: {reason}")),
    Row("stranded", WARNING, 3, "", _stranded),
    Row("dead_letters", WARNING, 3, "see their reasons, then re-drive them (page 3 R, or paired redrive)",
        _dead_letters),
    Row("syphon_parts_paused", WARNING, 3, "resume them (page 3 S), or their messages stay parked", _parts_paused),
    Row("journal_not_written", WARNING, 4, DISK, _journal_not_written),
    Row("port_in_use", WARNING, 1, "free it, or name another one in pairing.toml; it is tried again",
        _observed(TroubleKind.PORT_IN_USE, "{what} is not served: {reason}")),
    Row("other_name", WARNING, 3, "restart the engine, then move the messages of those queues",
        _observed(TroubleKind.OTHER_NAME, "{reason}")),
    Row("gateway_full", WARNING, 8, "nothing here: a namespace has to accept sends first", _gateway_full),
    Row("gateway_turned_away", WARNING, 8, "", _turned_away),
    Row("signers", WARNING, 7, "mend the file: no new order of the fleet counts here, standing ones stay",
        _observed(TroubleKind.SIGNERS, "{reason}")),
    Row("fleet_unread", WARNING, 7, "check the secondary: the figures of other engines are old",
        _of_fleet(_first_of(fleet_sentences.trouble_part))),
    Row("orders_unread", CRITICAL, 7, "engines do not see new orders: see who posts on the board; it is flushed",
        _of_fleet(fleet_sentences.unread_cases)),
    Row("fleet_flooded", WARNING, 7, "see who has Send on the reports board; [fleet] expect names the true engines",
        _of_fleet(fleet_sentences.flooded_cases)),
    Row("fleet_engines_missing", WARNING, 7, "see which are missing on page 7, and start them",
        _of_fleet(fleet_sentences.missing_cases)),
    Row("fleet_not_well", WARNING, 7, "see page 7 for the engines",
        _unwell_somewhere(State.SUSPECT, State.FORCED, State.PINNED)),
    Row("fleet_silent", WARNING, 7, "see whether these engines run", _silent),
    Row("fleet_differs", WARNING, 7, "see page 7, and order it again where it should hold",
        _of_fleet(fleet_sentences.differing_cases)),
    Row("order_ending", WARNING, 7, "order it again to extend it", _of_fleet(fleet_sentences.ending_cases),
        has_event=True),
    Row("fleet_odd", WARNING, 7, "see page 7", _of_fleet(fleet_sentences.odd_cases)),

    Row("slow", NOTICE, 2, "a primary that accepts slowly does not fail over: force it (F) if it is too slow", _slow),
    Row("syphon_unknown", NOTICE, 3, "check that a syphon runs elsewhere, or run one (paired up)",
        _syphon_unknown),
    Row("unknown", NOTICE, 1, "nothing: the first send decides; set probe to watch one without sends", _unknown,
        has_event=True),
)  # fmt: skip
BY_SEVERITY: Final = tuple(sorted(ROWS, key=lambda row: list(Severity).index(row.severity)))
REPORTED_BY_EVENTS: Final = frozenset(row.name for row in ROWS if row.has_event)


# -- notifications: the terminal's bell, on_change, and the log --------------------------------------------------------

ALARM: Final = "alarm"
"""The topic of a warning that an alarm began or ended."""


def calls(event: Event) -> bool:
    """Return whether an event notifies the operator: the beginning or end of an alarm."""
    match event:
        case StateChanged(was=was, now=now):
            return turned(was, now)
        case Warned(about=about, text=text):
            return about == ALARM and not text.removeprefix(OVER).startswith(NOTICE)
    return False


def turned(was: str, now: str) -> bool:
    """Return whether an entity left the primary or came back to it with this change of state."""
    return (was in DIVERTING) != (now in DIVERTING)


OVER: Final = "over: "
"""Begins the text about the end of an alarm."""


def begun(before: Sequence[Alarm], after: Sequence[Alarm]) -> tuple[Alarm, ...]:
    """Return the alarms of `after` that are new; the ended ones are `begun(after, before)`."""
    known = {(alarm.name, alarm.subject) for alarm in before}
    return tuple(alarm for alarm in after if (alarm.name, alarm.subject) not in known)


class AlarmChanges:
    """Reports the alarms that begin and end, but for those that an event of their own reports.

    Args:
        warn: receives ALARM and the text of each.
    """

    def __init__(self, warn: Callable[[str, str], object]) -> None:
        self._warn = warn
        self._alarms: tuple[Alarm, ...] = ()

    def note(self, now: Sequence[Alarm]) -> None:
        """Record the current alarms."""
        before, self._alarms = self._alarms, tuple(one for one in now if one.name not in REPORTED_BY_EVENTS)
        for alarm in begun(before, self._alarms):
            self._warn(ALARM, str(alarm))
        for alarm in begun(self._alarms, before):
            self._warn(ALARM, f"{OVER}{alarm}")
