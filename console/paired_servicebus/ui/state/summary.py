"""The summary: the first lines of every page, the worst first, in any width.

Rows keep their places: the state, then its cause and failing callers, then healing, then the action. Refused sends
come first, and an alarm never replaces the states. Not here: the fit of a row (spans.pack).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from math import ceil
from typing import Final

from paired_servicebus.core.backlog.backlog_totals import empty_at, stranded_messages, sum_backlog
from paired_servicebus.core.backlog.depth_readings import LONGEST_ESTIMATE, seconds_until
from paired_servicebus.core.model.entity_state import State
from paired_servicebus.core.model.fleet_view import FleetView
from paired_servicebus.core.model.pairing_condition import condition_of
from paired_servicebus.core.model.pairing_fold import PairingEntity, PairingView, for_newest, pairing_of
from paired_servicebus.core.model.snapshot import EntityView, FindingVerdict, QueueView, Snapshot, SyphonStatus
from paired_servicebus.core.operator import fleet_sentences
from paired_servicebus.core.operator.alarms import (
    THROTTLED_SECONDS,
    Severity,
    advice,
    degrading,
    refused_entities,
    unroutable_entities,
)
from paired_servicebus.core.operator.why_line import failover_cause, pings_needed
from paired_servicebus.core.text import untrusted_text
from paired_servicebus.core.text.number_format import count, plural, rate, time_or_day
from paired_servicebus.core.text.time_format import age, clock, roughly, until
from paired_servicebus.core.text.untrusted_text import harmless
from paired_servicebus.ui.render.spans import BETWEEN, LOOKS, QUIET, Part, Role, name_list, pack, shortenable
from paired_servicebus.ui.state.view import EngineLink, View, alarms_of, by_state, groups_of

# The six answers of the summary, in this order: the state and its start, the cause, failing callers, healing, action.
#
# Each answer is a part of a line, in several wordings (spans.pack).

Entities = Sequence[PairingEntity]
MANY: Final = 8
STEADY_SECONDS: Final = 5.0
"""Of more unwell entities than MANY, ages in rows and countdowns move once in so many seconds, which spares a link."""
SHORTEST_CAUSE = 8
LONGEST_KIND = 26
"""Cells of a cause that is a kind of failure, and needs no cut."""


# -- whose sends are lost to callers ---------------------------------------------------------------------------------


@for_newest
def lost_entities(snapshot: Snapshot) -> Entities:
    """Return the entities whose sends fail at callers of any engine, or reach no namespace."""
    it = condition_of(snapshot)
    lost = {one.path for one in (*refused_entities(it), *unroutable_entities(it))}
    return [one for one in pairing_of(snapshot).entities if one.path in lost]


@for_newest
def waiting_entities(snapshot: Snapshot) -> Entities:
    """Return the entities whose calls wait at any engine because the namespace is busy."""
    found = pairing_of(snapshot).entities
    since = (THROTTLED_SECONDS, snapshot.at)
    return [one for one in found if one.throttled_since is not None and since[1] - one.throttled_since >= since[0]]


def has_no_route(snapshot: Snapshot, entity: EntityView) -> bool:
    """Return whether its sends can reach neither namespace."""
    return condition_of(snapshot).has_no_route(entity)


def refusal(pairing: PairingView, entities: Entities, now: float) -> Part:
    """Return the part on lost sends: how many, where, since when, of which entities; and where that is unknown."""
    total = len(pairing.entities)
    per_second = sum(one.refused_per_second for one in entities)
    since = min((one.refused_since for one in entities if one.refused_since is not None), default=None)
    lasted = f" for {age(now - since)}" if since is not None else ""
    who = _whose(entities, total)
    if per_second <= 0:
        return tuple(f"NO SEND CAN BE ACCEPTED{lasted}: no namespace accepts {one}" for one in who)
    is_here = pairing.fleet is not None and fleet_sentences.failing_engines(pairing) == [pairing.fleet.me]
    at = "callers" if pairing.fleet is None else fleet_sentences.failing_where(pairing)
    head, where = f"SENDS ARE BEING REFUSED: {rate(per_second)}/s", "here" if is_here else f"at {at}"
    unknown, errors = fleet_sentences.unknown_callers(pairing, now), sum(one.refused for one in entities)
    many = f", {count(errors)} errors" if errors and pairing.fleet is None else ""
    longer = (f"{head} {where}{lasted}{how}{unknown}, {one}" for how in dict.fromkeys((many, "")) for one in who)
    short = f"SENDS ARE REFUSED: {rate(per_second)}/s {where}"
    return (*longer, f"{head} {where}{lasted}{unknown}", f"{short}{unknown}", f"{short}{lasted}", short)


def _whose(entities: Entities, total: int) -> Part:
    if len(entities) == total > 1:
        return (f"all {total} entities",)
    return name_list([one.path for one in entities])


def wait(entities: Entities, now: float) -> Part:
    """Return the part on calls that wait for a busy namespace: how many, where, since when."""
    calls = sum(one.throttled for one in entities)
    engines = {engine for one in entities for engine in one.total.waiting}
    since = min(one.throttled_since for one in entities if one.throttled_since is not None)
    fails = any(one.refused_per_second > 0 for one in entities)
    head = f"CALLERS WAIT{' OR FAIL' if fails else ''}: {plural(calls, 'call')} at "
    where = f" ({len(engines)} engines)" if len(engines) > 1 else ""
    began, lasts = f"{where} since {time_or_day(since, now)}", f", up to {age(now - since)}"
    named = name_list([one.path for one in entities], before=head)
    counted = f"{head}{plural(len(entities), 'entity', 'entities')}{began}"
    return (*(text + began + lasts for text in named), *(text + began for text in named), counted)


def callers(snapshot: Snapshot, now: float) -> Part:
    """Return the part on calls that fail at callers of any engine."""
    return fleet_sentences.callers_part(pairing_of(snapshot), now)


# -- what is wrong, since when, why ----------------------------------------------------------------------------------


def began_at(entities: Entities) -> float:
    """Return when the trouble began: the first failure, if it is known."""
    return min(one.first_failure_at if one.first_failure_at is not None else one.since for one in entities)


def how_many(state: State, entities: Entities, total: int) -> str:
    """Return the count of entities in a state."""
    if len(entities) == total:
        return f"all {total} entities {state}" if total > 1 else f"{entities[0].path} {state}"
    return f"{len(entities)} of {total} {state}"


def verdict(pairing: PairingView, state: State, entities: Entities, now: float) -> Part:
    """Return the part on entities in the worst state: for how long, at how many engines."""
    total, where = len(pairing.entities), _engines_in(pairing, entities)
    head = how_many(state, entities, total)
    if state is State.UNKNOWN:
        return (f"{head}: nothing sent to them, or not for long", head)
    lasts = age(now - began_at(entities))
    outage = "OUTAGE for" if state is State.FAILED_OVER else ""
    text = f"{outage} {lasts}: {head}" if outage else f"{head} for {lasts}"
    if where and len(entities) == 1 and total > 1:
        one = f"{harmless(entities[0].path)} {state}{where}"
        bare = f"{harmless(entities[0].path)} {state}"
        if outage:
            return (f"{outage} {lasts}: {one}", text + where, f"{outage} {lasts}: {bare}", text)
        return (f"{one} for {lasts}", text + where, f"{bare} for {lasts}", text)
    if len(entities) == total:
        return (f"{text}{where}", text) if where else (text,)
    named = name_list([one.path for one in entities], before=f"{text}{where}: ")
    return (*named, f"{text}{where}", text) if where else (*named, text)


def _engines_in(pairing: PairingView, entities: Entities) -> str:
    """Return at how many engines the entities are in their state; empty with no fleet."""
    if pairing.fleet is None:
        return ""
    most = max(entities, key=lambda one: (one.in_state, one.engines))
    of = (
        f"{most.in_state} of {plural(most.engines, 'engine')}"
        if most.in_state < most.engines
        else (f"all {most.engines} engines" if most.engines > 1 else plural(most.engines, "engine"))
    )
    return f" at {'up to ' if entities[1:] and most.in_state < most.engines else ''}{of}"


def cause(entities: Entities, now: float) -> Part:
    """Return the part on the first failure; of several causes, the most frequent comes first."""
    reasons = _reasons(entities)
    known = [one.first_failure_at for one in entities if one.first_failure_at is not None]
    first = f"first failure {time_or_day(min(known), now)}: " if known else "why: "
    if len(reasons) == 1 and known and len(reasons[0][0]) <= LONGEST_KIND:
        return (f"{first}{reasons[0][0]}", f"{reasons[0][0]}{_since(min(known), now)}")
    if len(reasons) == 1:
        return (
            *(first + text for text in shortenable(reasons[0][0], least=SHORTEST_CAUSE)),
            *shortenable(reasons[0][0], least=SHORTEST_CAUSE, after=_since(min(known), now) if known else ""),
        )
    text = ", ".join(f"{reason} ({number})" for reason, number in reasons)
    return (first + text, f"{first}{reasons[0][0]} and {len(reasons) - 1} more", f"{first}{len(reasons)} causes")


def _reasons(entities: Entities) -> list[tuple[str, int]]:
    """Return the causes with their entities, by kind where it is known; the most frequent first."""
    kinds = Counter(one.first_failure_kind or _reason(one) for one in entities)
    texts = {one.first_failure_kind or _reason(one): _reason(one) for one in reversed(entities)}
    return [(texts[kind], number) for kind, number in kinds.most_common()]


def primary_cause(entities: Entities, now: float) -> Part:
    """Return the part on the primary's failure, with its start if there is room."""
    reason = _reasons(entities)[0][0]
    text, least = f"primary: {reason}", len("primary: ") + SHORTEST_CAUSE
    return (*shortenable(text, least=least, after=_since(began_at(entities), now)), *shortenable(text, least=least))


def _since(at: float, now: float) -> str:
    return f" since {time_or_day(at, now)}"


def _reason(entity: EntityView) -> str:
    if entity.state in QUIET and entity.refusals:
        return entity.refusals[0][0]
    if entity.missing_since is not None and entity.last_ping_text:
        return entity.last_ping_text
    return failover_cause(entity.why) or _first_clause(entity)


def _first_clause(entity: EntityView) -> str:
    """Return the head of its why-line, without the time of its state, which is shown beside it."""
    head = entity.why.partition("; ")[0]
    if entity.state is State.FAILED_OVER:
        return head
    return head.removesuffix(f" {clock(entity.since)}").removesuffix(" since")


def why_now(entity: EntityView, now: float, *, counts_down: bool = True) -> str:
    """Return why one entity is in its state, and the next step.

    Args:
        counts_down: whether the next ping is a countdown; no, where a column beside it counts.
    """
    first = _first_clause(entity)
    if entity.state is State.SUSPECT and entity.fails_over_at is not None:
        return f"{first}; fails over {until(entity.fails_over_at, now)} unless a send succeeds"
    if entity.state is State.FAILED_OVER:
        cause = failover_cause(entity.why)
        if cause and entity.first_failure_at is not None:
            first = f"{cause} since {time_or_day(entity.first_failure_at, now)}"
        failed = entity.last_ping_good is False and (entity.last_ping_text != cause or cause not in first)
        last = f"; last ping: {entity.last_ping_text or 'failed'}" if failed else ""
        if not counts_down:
            return f"{first}{last}; home once its pings are accepted"
        due = entity.next_ping_at
        return f"{first}{last}; " + (_next_ping(due, now) if due is not None else "a ping is under way")
    return entity.why


def _next_ping(due: float, now: float) -> str:
    """Return its countdown; at its end in as many cells, so that the rest of the line stays in place."""
    return f"next ping {until(due, now)}" if due > now else "next ping is due"


# -- whether it heals ------------------------------------------------------------------------------------------------


def healing(snapshot: Snapshot, state: State, entities: Entities, now: float) -> Part:
    """Return the part on the end of the state, and how soon that is tried."""
    match state:
        case State.SUSPECT:
            due = [one.fails_over_at for one in entities if one.fails_over_at is not None]
            soon = until(min(due), now) if due else "soon"
            return (f"fails over {soon} unless a send succeeds", f"fails over {soon}")
        case State.FAILED_OVER:
            return _coming_home(snapshot, entities, now)
        case State.FORCED:
            return ("stays on the backlog until released", "stays until released")
        case State.PINNED:
            return ("stays on the primary until released: it does not fail over", "stays until released")
        case _:
            return ()


def _coming_home(snapshot: Snapshot, entities: Entities, now: float) -> Part:
    due = [one.next_ping_at for one in entities if one.next_ping_at is not None]
    ping = _next_ping(min(due), now) if due else "a ping is under way"
    if due and len(entities) > MANY:  # one of them pings each second
        ping = f"next ping within {age(STEADY_SECONDS * max(1, ceil((min(due) - now) / STEADY_SECONDS)))}"
    needed = max(pings_needed(one, snapshot.policy) for one in entities)
    home = f"home after {needed} accepted"
    if all(one.missing_since is not None for one in entities):
        return ("heals when it is created again, ends when nothing sends to it", "heals when it is created again")
    if any(has_no_route(snapshot, one) for one in entities):
        short = f"heals, {ping.removeprefix('next ')}"
        either = "when either namespace answers"
        return (f"heals itself {either}; {ping}", f"heals {either}, {ping.removeprefix('next ')}", short)
    return (f"heals itself: {ping}, {home}", f"heals itself, {ping}", f"heals, {ping.removeprefix('next ')}")


# -- the backlog -----------------------------------------------------------------------------------------------------


def parked_text(snapshot: Snapshot, now: float) -> str:
    """Return the number of parked messages, with its age once it is old."""
    sums = sum_backlog(snapshot)
    if not sums.is_known:
        return "parked messages unknown" if sums.queues else "no backlog queue"
    if not sums.known:
        return f"at least {count(sums.messages)} parked"
    number = f"{count(sums.messages)} parked" if sums.messages else "nothing parked"
    if sums.known < sums.queues:
        number += f" in {sums.known} of {sums.queues} queues"
    if sums.old and sums.read_at is not None:
        return f"{number}, {age(now - sums.read_at)} old"
    eta = empty_at(snapshot)
    ends = f", empty {until(eta, now)}" if eta is not None else ""
    return number + _trend(sums.growth if sums.messages else None) + ends


def parked_part(snapshot: Snapshot, now: float) -> Part:
    """Return the part on parked messages: with trend and end, the number alone, nothing."""
    text, sums = parked_text(snapshot, now), sum_backlog(snapshot)
    is_plain = not sums.messages or sums.old or sums.known < sums.queues
    return (text, "") if is_plain else (text, f"{count(sums.messages)} parked", "")


def lost_text(snapshot: Snapshot) -> str:
    """Return the messages that are neither delivered nor on their way: dead-lettered and stranded ones."""
    dead, stranded = sum_backlog(snapshot).dead_lettered, sum(stranded_messages(snapshot.unused).values())
    counts = ((dead, "dead-lettered"), (stranded, "stranded"))
    return ", ".join(f"{count(number)} {what}" for number, what in counts if number)


def room(snapshot: Snapshot, now: float) -> Part:
    """Return the part on the age of the oldest parked message and when a backlog queue is full, if they are known."""
    enqueued = [one.oldest.enqueued_at for one in snapshot.queues if one.oldest.enqueued_at is not None]
    left = [one for one in map(_seconds_to_full, snapshot.queues) if one is not None]
    oldest = f"oldest parked {age(now - min(enqueued))}" if enqueued and sum_backlog(snapshot).messages else ""
    full = f"full in {roughly(min(left))}" if left else ""
    both = BETWEEN.join(text for text in (oldest, full) if text)
    return (both, oldest or full, "") if both else ()


def _seconds_to_full(queue: QueueView) -> float | None:
    if queue.size_bytes is None or not queue.limit_bytes or (queue.bytes_growth or 0.0) <= 0:
        return None
    left = seconds_until(queue.size_bytes, queue.limit_bytes, queue.bytes_growth)
    return left if left is not None and left <= LONGEST_ESTIMATE else None


def _trend(growth: float | None) -> str:
    if growth is None or abs(growth) < 0.1:
        return ""
    return f" {'↑' if growth > 0 else '↓'}{rate(abs(growth))}/s"


def syphon_text(snapshot: Snapshot) -> str:
    """Return the syphon's status."""
    status = snapshot.syphon.status
    if status is SyphonStatus.OFF:
        return "syphon elsewhere" if snapshot.syphon.elsewhere else "syphon unknown"
    return f"syphon {status}"


def out_of_rotation(snapshot: Snapshot, now: float) -> Part:
    """Return the part on backlog queues that accept nothing; empty if all accept."""
    out = [queue for queue in snapshot.queues if not queue.in_rotation]
    if not out:
        return ()
    known = [queue.pulled_since for queue in out if queue.pulled_since is not None]
    since = _since(min(known), now) if known else ""
    which = f"all {len(out)}" if len(out) == len(snapshot.queues) else f"{len(out)} of {len(snapshot.queues)}"
    text = f"{which} backlog queues refuse"
    reason = out[0].pulled_reason
    why = shortenable(f"{text}{since} ({reason}", least=len(text + since) + 8, after=")") if reason else ()
    return (*why, text + since, text)


def readiness_text(snapshot: Snapshot) -> str:
    """Return whether a failover would work now; empty if that was not checked."""
    found = snapshot.readiness
    if found is None:
        return ""
    warnings = len(found.of(FindingVerdict.WARN))
    return (
        "failover NOT ready (!)"
        if not found.ready
        else "failover ready" + (f", {plural(warnings, 'warning')} (!)" if warnings else "")
    )


# -- the severity, and the alarms ------------------------------------------------------------------------------------

SHOWN_BY_STATES: Final = frozenset(
    {"failed_over", "suspect", "forced", "pinned", "calls_fail", "throttled", "fleet_failed_over", "fleet_not_well",
     "fleet_sends_refused", "fleet_silent", "fleet_engines_missing", "fleet_unread", "order_ending"}
)  # fmt: skip
"""Alarms that the rows about entities and engines contain."""
SHOWN_IN_LOSS: Final = frozenset({"nothing_accepted", "no_route", "sends_refused", "not_ready", "backlog_refuses"})
"""Alarms that the rows about lost sends contain."""
SHOWN_IN_OUTAGE: Final = frozenset({"stranded", "dead_letters"})
"""Alarms whose messages the rows about an outage count."""


def todo(snapshot: Snapshot, *, brief: bool = False) -> Part:
    """Return the part on the operator's most urgent action. brief: without room for it, the page that has more."""
    found = alarms_of(snapshot)
    wanted = advice(found)
    if wanted.startswith("nothing"):
        return (f"do: {wanted.partition(':')[0]}",)  # the rows say what happens by itself
    if not wanted:
        return ("nothing to do",)
    page = next(alarm.page for alarm in found if alarm.todo == wanted)
    return (*(f"do: {one}" for one in shortenable(wanted)), *((f"do: see page {page}",) if brief else ()))


class Level(IntEnum):
    """The severity."""

    WELL = 0
    NOTABLE = 1
    WRONG = 2
    LOST = 3
    """Sends end in errors at callers."""
    BLIND = 4
    """The engine's present state is unknown."""


@dataclass(frozen=True, slots=True)
class SummaryRow:
    """One line of the summary."""

    parts: tuple[Part, ...]
    role: Role = Role.TEXT


@dataclass(frozen=True, slots=True)
class Summary:
    """The severity, its glyph, and the rows."""

    level: Level
    glyph: str
    rows: tuple[SummaryRow, ...]
    answers: tuple[Part, ...] = ()
    """Callers, healing, action: the second row of a page with room for two."""

    @property
    def text(self) -> str:
        """All rows in full, for output without a screen."""
        return BETWEEN.join(part[0] for row in self.rows for part in row.parts if part and part[0])

    def lines(self, width: int, height: int) -> list[tuple[str, Role]]:
        """Return the first `height` rows in `width` cells, without the glyph."""
        rows = self.rows
        if height == 2 and self.answers and len(rows) > height:
            rows = (rows[0], SummaryRow(self.answers))
        return [(pack(row.parts, width), row.role) for row in rows[:height]]


@for_newest
def summary(view: View) -> Summary:
    """Return the summary of a view, or of the lost engine."""
    if view.link is EngineLink.UNREACHABLE and view.snapshot is None:
        since = clock(view.link_since)
        return _sentence(Level.NOTABLE, "○", f"no engine of {view.pairing} yet, retrying since {since}")
    if view.link is EngineLink.UNREACHABLE:
        reason = f": {view.link_reason}" if view.link_reason else ""
        return _blind(view, f"engine unreachable since {clock(view.link_since)}{_lasted(view, ' ({})')}{reason}")
    if view.link is EngineLink.SILENT:
        return _blind(view, f"engine silent{_lasted(view, ' for {}')} (connected)")
    if view.snapshot is None:
        return _sentence(Level.NOTABLE, "○", f"connecting to the engine of {view.pairing}")
    return _of_snapshot(view.snapshot, view.now)


def headline(view: View) -> str:
    """Return the first part of the summary."""
    return summary(view).rows[0].parts[0][0]


def window_title(view: View) -> str:
    """Return the title of the terminal's window: the glyph, the number of entities in trouble, the pairing."""
    unwell = sum(entity.state not in QUIET for entity in view.entities) if view.link is EngineLink.LIVE else 0
    return f"{summary(view).glyph}{unwell or ''} {view.pairing}"


def _sentence(level: Level, glyph: str, text: str, *others: SummaryRow) -> Summary:
    return Summary(level, glyph, (SummaryRow((shortenable(text),)), *others))


def _blind(view: View, lost: str) -> Summary:
    """Return the reason, the age of the figures, and the last known rows in grey."""
    figures = f"; figures from {clock(view.snapshot.at)}" if view.snapshot else ""
    text = lost + figures
    if view.snapshot is None:
        return _sentence(Level.BLIND, "✗", text)
    before = _of_snapshot(view.snapshot, view.now)
    last, *others = (SummaryRow(row.parts, Role.MUTED) for row in before.rows)
    known = SummaryRow(((f"last known: {before.glyph}",), *last.parts), Role.MUTED)
    if view.link is not EngineLink.UNREACHABLE:
        return _sentence(Level.BLIND, "✗", text, known, *others)
    return _sentence(Level.BLIND, "✗", text, known, SummaryRow(_without_engine(view.snapshot)), *others)


def _lasted(view: View, form: str) -> str:
    """Return how long the engine is lost, in that form; empty in its first moment."""
    return form.format(age(view.clock - view.link_since)) if view.clock > view.link_since else ""


def _without_engine(snapshot: Snapshot) -> tuple[Part, ...]:
    """Return what the end of the engine means for senders, and what starts it again."""
    if not snapshot.own_process:
        inside = "it ran inside an application: look at that process"
        return ((f"{inside}; its end stops its own sends", inside),)
    if snapshot.gateway is not None:
        effect = (
            "senders through its gateway are cut off; other applications go on",
            "its gateway's senders are cut off",
        )
    else:
        effect = ("applications go on by themselves, failover too", "applications go on by themselves")
    return (("restart: paired up",), effect, ("its syphon moves nothing",))


def _of_snapshot(snapshot: Snapshot, now: float) -> Summary:
    """Return the summary of the pairing, with the standing orders of its fleet."""
    found = _of_pairing(snapshot, now)
    return found if snapshot.fleet is None else _with_orders(found, snapshot.fleet, now)


def _with_orders(found: Summary, fleet: FleetView, now: float) -> Summary:
    """Add the standing orders of the fleet: in the second row once one ends soon, and while all else is quiet."""
    standing = fleet_sentences.standing_orders(fleet, now)
    if not standing:
        return found
    first, *others = found.rows
    if ending := fleet_sentences.ending_part(fleet, now):
        alarm = SummaryRow((tuple(f"! {text}" for text in ending),), Role.FAILED_OVER)
        level = max(found.level, Level.NOTABLE)
        return Summary(level, "!" if found.level <= Level.NOTABLE else found.glyph, (first, alarm, *others))
    if found.level >= Level.WRONG:
        return found
    more = f" and {len(standing) - 1} more" if standing[1:] else ""
    text = f"{fleet_sentences.order_head(standing[0], now)}{more}"
    part = (f"over the fleet: {text}", text)
    if len(others) == 3:
        second, healing_, last = others
        ordered = SummaryRow((part, *healing_.parts[1:]), Role.FORCED)
        return Summary(max(found.level, Level.NOTABLE), found.glyph, (first, second, ordered, last), found.answers)
    ordered = SummaryRow((part,), Role.FORCED)
    return Summary(max(found.level, Level.NOTABLE), found.glyph, (first, ordered, *others))


def _of_pairing(snapshot: Snapshot, now: float) -> Summary:
    groups, lost, waits = groups_of(snapshot), lost_entities(snapshot), waiting_entities(snapshot)
    worst = next(iter(groups), None)
    level, is_quiet = _level(snapshot), worst is None or worst in QUIET
    if waits and is_quiet and set(lost) <= set(waits):
        rows = _rows_of_waits(snapshot, waits, now)
        in_one_row = tuple(row.parts[0] for row in rows[1:])
        return Summary(Level.LOST if lost else level, "✗" if lost else "!", rows, in_one_row)
    if lost:
        return Summary(Level.LOST, "✗", _rows_of_loss(snapshot, lost, now), _answers(snapshot, lost, now))
    rows = _quiet(snapshot, now) if is_quiet else _rows_of_states(snapshot, now)
    glyph = LOOKS[worst].glyph if worst is not None else "○"
    second = () if worst is None or is_quiet else _answers(snapshot, groups[worst], now)
    return Summary(level, "!" if level is not Level.WELL and is_quiet else glyph, rows, second)


def _answers(snapshot: Snapshot, entities: Entities, now: float) -> tuple[Part, ...]:
    """Return what a page with two rows shows under the state."""
    state, worst = next(iter(by_state(entities).items()))
    lost = bool(lost_entities(snapshot))
    first = primary_cause(entities, now) if lost else callers(snapshot, now)
    return (first, healing(snapshot, state, worst, now), todo(snapshot, brief=True))


def _level(snapshot: Snapshot) -> Level:
    """Return the level of the worst alarm."""
    found = degrading(alarms_of(snapshot))
    return _LEVELS[found[0].severity] if found else Level.WELL


_LEVELS: Final = {Severity.CRITICAL: Level.WRONG, Severity.WARNING: Level.NOTABLE, Severity.NOTICE: Level.WELL}


def _rows_of_loss(snapshot: Snapshot, lost: Entities, now: float) -> tuple[SummaryRow, ...]:
    pairing = pairing_of(snapshot)
    total, groups = len(pairing.entities), by_state(lost)
    state, worst = next(iter(groups.items()))
    back, old = healing(snapshot, state, worst, now), old_part(pairing, now)
    keep = ("callers own the messages",)
    dead = [(text,)] if (text := lost_text(snapshot)) else []
    states = tuple((how_many(other, found, total), "") for other, found in groups_of(snapshot).items())
    return (
        SummaryRow((refusal(pairing, lost, now),), Role.STATEMENT),
        SummaryRow((primary_cause(lost, now), out_of_rotation(snapshot, now))),
        SummaryRow((keep, back, *([(*old[1:], "")] if old else []))),
        SummaryRow((todo(snapshot), *dead, *states, *_alarms(snapshot))),
    )


def _rows_of_waits(snapshot: Snapshot, waits: Entities, now: float) -> tuple[SummaryRow, ...]:
    """Return the rows while callers wait for a busy namespace, and no entity is away."""
    why = ("throttling never fails over: the namespace is at its limit, not away", "throttled, which never fails over")
    heals = ("ends when the namespace accepts more, or fewer sends come", "ends with fewer sends")
    backlog = parked_part(snapshot, now), (syphon_text(snapshot), "")
    lost = bool(lost_entities(snapshot))
    return (
        SummaryRow((wait(waits, now),), Role.STATEMENT if lost else Role.SUSPECT),
        SummaryRow((callers(snapshot, now), why)),
        SummaryRow((heals, *backlog)),
        SummaryRow((todo(snapshot), *_alarms(snapshot))),
    )


def _rows_of_states(snapshot: Snapshot, now: float) -> tuple[SummaryRow, ...]:
    pairing, groups = pairing_of(snapshot), groups_of(snapshot)
    (state, worst), *others = groups.items()
    rest = [(f"{len(found)} {other}",) for other, found in others if other not in QUIET]
    role = Role.FAILED_OVER if _level(snapshot) is Level.WRONG else Role.SUSPECT
    backlog = parked_part(snapshot, now), (syphon_text(snapshot), "")
    lost = [(text,)] if (text := lost_text(snapshot)) else []
    why = (cause(worst, now), callers(snapshot, now))
    head = verdict(pairing, state, worst, now)
    if pairing.old_since is not None and not any(one.here is not None and one.here.state is state for one in worst):
        head, role = tuple(f"as of {clock(pairing.old_since)}: {text}" for text in head), Role.MUTED
    return (
        SummaryRow((head, *rest, *absent(pairing, now)), role),
        SummaryRow(why if pairing.fleet is None else why[::-1]),
        SummaryRow((healing(snapshot, state, worst, now), *backlog)),
        SummaryRow((todo(snapshot), *lost, *_alarms(snapshot), room(snapshot, now))),
    )


def old_part(pairing: PairingView, now: float) -> Part:
    """Return since when what other engines reported is old, and why; empty: it is current, or there is no fleet."""
    if pairing.old_since is None or pairing.fleet is None:
        return ()
    others = len(pairing.unreported)
    states = f"states of {plural(others, 'engine')}" if others else "other engines"
    reason = f": {untrusted_text.reason(pairing.fleet.trouble)}" if pairing.fleet.trouble else ""
    if pairing.fleet.read_at is None:
        return (f"the fleet's board is not read yet{reason}: other engines are unknown", "other engines are unknown")
    text = f"{states} as of {time_or_day(pairing.old_since, now)}"
    why = f"{text}: board not reached"
    return (*shortenable(f"{why}{reason}", least=len(why) + SHORTEST_CAUSE), why, text)


def absent(pairing: PairingView, now: float) -> tuple[Part, ...]:
    """Return the parts on engines that are silent, or expected and never heard."""
    fleet = pairing.fleet
    if fleet is None:
        return ()
    silent, missing = fleet_sentences.silent_part(fleet, now), pairing.unheard
    never = ((f"{missing} of {fleet.expected} expected engines never heard", f"{missing} unheard"),)
    return (*((silent,) if silent else ()), *(never if missing > 0 and not fleet.missing else ()))


def _quiet(snapshot: Snapshot, now: float) -> tuple[SummaryRow, ...]:
    """Return the rows while no entity needs the operator; alarms come next."""
    pairing, groups = pairing_of(snapshot), groups_of(snapshot)
    total = len(pairing.entities)
    states = [how_many(state, found, total) for state, found in groups.items()] or ["no entity known yet"]
    short = states[-1]
    if pairing.fleet is not None and len(pairing.engines) > 1:
        reporting = len(pairing.engines) - (len(pairing.unreported) if pairing.old_since is None else 0)
        states[-1] += f" at {plural(reporting, 'engine')}"
    backlog = [parked_part(snapshot, now), (syphon_text(snapshot), "")]
    role = {Level.WELL: Role.HEALTHY, Level.WRONG: Role.FAILED_OVER}.get(_level(snapshot), Role.SUSPECT)
    slow = [one.path for one in pairing.entities if one.is_slow]
    slows = [name_list(slow, before="slow: ")] if slow else []
    away = absent(pairing, now)
    first = SummaryRow((*((text,) for text in states), *slows, *away, *([] if away else backlog)), role)
    fine = SummaryRow((callers(snapshot, now), (readiness_text(snapshot),)))
    alarms = [SummaryRow((part,), Role.FAILED_OVER) for part in _alarms(snapshot)]
    if old := old_part(pairing, now):
        counts = ", ".join(states)
        last = (f"last known: {counts}", f"last: {counts}", f"last: {', '.join((*states[:-1], short))}")
        heals = ("heals itself when the secondary answers", "heals when it answers")
        lines = SummaryRow((callers(snapshot, now),), Role.STATEMENT), SummaryRow((old,))
        known = SummaryRow((heals, tuple(filter(None, backlog[0])), last), Role.MUTED)
        return (*lines, known, SummaryRow((todo(snapshot), *_alarms(snapshot))))
    return (first, *alarms, fine, SummaryRow((todo(snapshot), *(backlog if away else []))))


def _alarms(snapshot: Snapshot) -> list[Part]:
    """Return the worst alarm and the number of others, without those that the rows contain."""
    is_outage = next(iter(groups_of(snapshot)), State.HEALTHY) not in QUIET
    contained = SHOWN_BY_STATES | (SHOWN_IN_LOSS if lost_entities(snapshot) else frozenset())
    contained |= SHOWN_IN_OUTAGE if is_outage else frozenset()
    missing = {one.path for one in snapshot.entities if one.missing_since is not None}
    found = [
        alarm.sentence
        for alarm in degrading(alarms_of(snapshot))
        if alarm.name not in contained and alarm.subject not in missing
    ]
    if not found:
        return []
    more = f" (and {plural(len(found) - 1, 'more alarm')})" if found[1:] else ""
    return [(*shortenable(f"! {found[0]}", after=more), f"! {plural(len(found), 'alarm')}")]
