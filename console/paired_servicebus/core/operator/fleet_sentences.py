"""The fleet in words, shared by screen, verbs and status. Pure: `now` is seconds since the epoch.

A `Part` has several wordings, the longest first, so that a screen takes the longest that fits. Names, hosts and reasons
come from documents that anybody with a key may have posted: each becomes one harmless, short line first.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from math import inf
from typing import Final

from paired_servicebus.core.fleet.engine_orders import ALARM_SECONDS
from paired_servicebus.core.model.command import Command
from paired_servicebus.core.model.entity_state import GLYPHS, WELL, State
from paired_servicebus.core.model.fleet_view import (
    WORST_FIRST,
    FleetEngine,
    FleetEntity,
    FleetOrder,
    FleetStatus,
    FleetView,
    with_other_signers,
)
from paired_servicebus.core.model.pairing_fold import STATES_FIRST, PairingView, old_since, pairing_of
from paired_servicebus.core.model.snapshot import EntityView, Snapshot
from paired_servicebus.core.operator.actions import BY_ID
from paired_servicebus.core.operator.targets import Scope, entities_of
from paired_servicebus.core.text import untrusted_text
from paired_servicebus.core.text.number_format import NOT_KNOWN, plural, rate, time_or_day
from paired_servicebus.core.text.time_format import age, clock, until
from paired_servicebus.core.text.untrusted_text import minute, name, names, natural, reason

# The fleet's orders in words: who ordered what until when, who answered, and what ends soon. Pure.
#
# A `Part` has several wordings, the longest first, so that a screen takes the longest that fits.

Part = tuple[str, ...]
NOT_VERIFIED: Final = "a signer not verified here"
BETWEEN: Final = " · "


def standing_orders(view: FleetView, now: float) -> tuple[FleetOrder, ...]:
    """Return the orders that stand now: those that end soon first, then the newest."""
    found = (one for one in newest_orders(view) if _stands(one, now))
    return tuple(sorted(found, key=lambda one: ending_stage(one, now)))


def _stands(order: FleetOrder, now: float) -> bool:
    return order.until is not None and order.until > now


def ending_stage(order: FleetOrder, now: float) -> float:
    """Return the seconds of the alarm that a standing order is under: 300, 1800, or infinity before the first."""
    left = inf if order.until is None else order.until - now
    return min((seconds for seconds in ALARM_SECONDS if left <= seconds), default=inf)


def ending_part(view: FleetView, now: float) -> Part:
    """Return the alarm of the standing order that ends first: "payments forced by operator-a ends in 4m12s"."""
    ending = [one for one in standing_orders(view, now) if ending_stage(one, now) < inf]
    if not ending:
        return ()
    first = min(ending, key=lambda one: one.until or inf)
    more = f" (and {len(ending) - 1} more)" if ending[1:] else ""
    left = f"ends {until(first.until or now, now)}{more}"
    return (
        f"{order_subject(first)} {left}, and is released then: order it again to extend it",
        f"{order_subject(first)} {left}: order it again to extend it",
        f"{order_subject(first)} {left}",
    )


def newest_orders(view: FleetView) -> tuple[FleetOrder, ...]:
    """Return all orders, the newest first."""
    return tuple(sorted(view.orders, key=lambda one: -one.at))


def order_subject(order: FleetOrder) -> str:
    """Return who ordered what: "payments forced by operator-a"."""
    where = f" at {names(order.engines, 3)}" if order.engines is not None else ""
    return f"{_what(order)} {_ordered(order.verb)}{where} by {name(order.by) if order.by else NOT_VERIFIED}"


def _what(order: FleetOrder) -> str:
    action = BY_ID.get(order.verb)
    if not order.targets:
        return action.whole if action is not None else "all"
    prefix = "backlog/" if order.scope == Scope.QUEUE else ""
    return names([f"{prefix}{one}" for one in order.targets], 3)


def order_head(order: FleetOrder, now: float) -> str:
    """Return who ordered what until when: "payments forced by operator-a until 18:02"."""
    if order.until is None:
        return f"{order_subject(order)} at {minute(order.at, now)}"
    is_ending = _stands(order, now) and ending_stage(order, now) < inf
    left = f", ends {until(order.until, now)}" if is_ending else ""
    return f"{order_subject(order)} until {minute(order.until, now)}{left}"


def _ordered(action_id: str) -> str:
    """Return an order in the passive; one that this version does not know by its foreign name."""
    action = BY_ID.get(action_id)
    return action.participle or action.label if action is not None else name(action_id)


def answers_part(order: FleetOrder, now: float, view: FleetView | None = None) -> Part:
    """Return "17 done · 1 refused (read-only: web-9) · 2 silent since 13:58 (pay-3, pay-4)", then shorter.

    view: the fleet now. An engine that reports and has not answered yet is not silent.
    """
    parts = _outcomes(order, now, view)
    counts = BETWEEN.join(f"{part.count:,} {part.what.partition(' since ')[0]}" for part in parts)
    every = min(MAX_LISTED, max(1, *(part.most for part in parts)))
    full = [BETWEEN.join(part.text(most) for part in parts) for most in (every, 3, 1) if most <= every]
    again = _when_they_return(order, parts[-1].count if parts[-1].what.startswith(SILENT) else 0, now)
    return tuple(dict.fromkeys([full[0] + again, *full, counts]))


def not_answered(order: FleetOrder, view: FleetView | None) -> tuple[str, ...]:
    """Return the addressed engines that report, and have not answered yet."""
    reporting = {one.engine for one in view.engines if one.status is FleetStatus.REPORTING} if view else ()
    return tuple(engine for engine, _ in order.silent if engine in reporting)


SILENT: Final = "silent"
MAX_LISTED: Final = 20
"""Engines named in a sentence."""


@dataclass(frozen=True, slots=True)
class _Outcome:
    """The engines with one outcome, by reason."""

    count: int
    what: str
    engines: Mapping[str, list[str]] = field(default_factory=dict)
    unnamed: int = 0

    @property
    def most(self) -> int:
        return max((len(who) for who in self.engines.values()), default=0)

    def text(self, most: int) -> str:
        """Return it with at most this many names of each reason."""
        each = [f"{why}: {names(who, most)}" if why else names(who, most) for why, who in self.engines.items()]
        unnamed = [f"{self.unnamed:,} unknown"] if self.unnamed else []
        listed = ", ".join(filter(None, ("; ".join(each), *unnamed)))
        return f"{self.count:,} {self.what} ({listed})" if listed else f"{self.count:,} {self.what}"


def _outcomes(order: FleetOrder, now: float, view: FleetView | None) -> list[_Outcome]:
    """Return what the addressed engines did; "silent" comes last."""
    parts = [_Outcome(order.done_count, "done")]
    if order.refused:
        why: dict[str, list[str]] = {}
        for engine, text in order.refused:
            why.setdefault(reason(text) or "no reason given", []).append(engine)
        parts.append(_Outcome(order.refused_count, "refused", why, order.more_refused))
    if waiting := not_answered(order, view):
        parts.append(_Outcome(len(waiting), "not answered yet", {"": list(waiting)}))
    if order.claimed:
        parts.append(_Outcome(order.claimed, "only claimed, in a flood"))
    silent = [one for one in order.silent if one[0] not in waiting]
    if count := len(silent) + order.unnamed:
        heard = [at for _, at in silent if at is not None]
        since = f" since {minute(min(heard), now)}" if heard else ""
        who = {"": [engine for engine, _ in silent]} if silent else {}
        parts.append(_Outcome(count, SILENT + since, who, order.unnamed))
    return parts


def _when_they_return(order: FleetOrder, silent: int, now: float) -> str:
    """Return what silent engines do when they are back; empty if none is silent or the order has ended."""
    action = BY_ID.get(order.verb)
    they, s = ("it", "s") if silent == 1 else ("they", "")
    if silent and (_stands(order, now) or (action is not None and action.revokes)):
        return f": {they} take{s} it up when {they} come{s} back"
    return ""


def order_part(order: FleetOrder, now: float, view: FleetView | None = None) -> Part:
    """Return the order and its answers. view: as `answers_part`."""
    head = order_head(order, now)
    return (*(f"{head}: {text}" for text in answers_part(order, now, view)), head)


STATES: Final = (*(state.value for state in WORST_FIRST), FleetStatus.SILENT.value)
"""The order of counts in a sentence: worst first, silent engines last."""
WATCH_NOTICE: Final = "watching: every engine of the fleet now looks and reports fast, which costs operations"


class FleetHealth(IntEnum):
    """The exit status of `paired fleet`; 2 is invalid input."""

    HEALTHY = 0
    DEGRADED = 1
    UNREACHABLE = 3

    def __str__(self) -> str:
        return self.name.lower()


def fleet_health(view: FleetView, alarms: Sequence[object]) -> FleetHealth:
    """Return the health of the fleet: UNREACHABLE while the boards cannot be read, because figures are then old.

    alarms: those about the fleet.
    """
    if view.read_at is None or view.trouble:
        return FleetHealth.UNREACHABLE
    return FleetHealth.DEGRADED if alarms else FleetHealth.HEALTHY


def fleet_word(view: FleetView, alarms: Sequence[object]) -> str:
    """Return the health in a word: "unknown" while no engine reports a healthy entity. Arguments as above."""
    found = fleet_health(view, alarms)
    healthy = any(count for one in _reporting(view) for state, count in one.states if state is State.HEALTHY)
    return str(found) if found is not FleetHealth.HEALTHY or healthy else State.UNKNOWN.value


# -- engines ---------------------------------------------------------------------------------------------------------


def present(view: FleetView) -> tuple[FleetEngine, ...]:
    """Return the engines that have not said goodbye, the worst first, then by name."""
    return worst_first(one for one in view.engines if one.status is not FleetStatus.ENDED)


def present_count(view: FleetView) -> int:
    """Return the number of engines that have not said goodbye, those that a console does not get included."""
    return len(present(view)) + view.unlisted


def worst_first(engines: Iterable[FleetEngine]) -> tuple[FleetEngine, ...]:
    """Return engines, the worst first, then by name."""
    return tuple(sorted(engines, key=lambda one: (_place(one.state), natural(one.engine), one.boot)))


def _place(state: str) -> int:
    """Silent engines come behind those that need an operator, and before the healthy ones."""
    order = (*(one.value for one in WORST_FIRST if one not in WELL), FleetStatus.SILENT.value, "unknown", "healthy")
    return order.index(state) if state in order else len(order)


def _reporting(view: FleetView) -> list[FleetEngine]:
    return [one for one in view.engines if one.status is FleetStatus.REPORTING]


def silent_engines(view: FleetView) -> tuple[FleetEngine, ...]:
    """Return the silent engines, the longest silent first."""
    found = (one for one in view.engines if one.status is FleetStatus.SILENT)
    return tuple(sorted(found, key=lambda one: (one.heard_at, one.engine)))


def states_text(counts: Iterable[tuple[str, int]]) -> str:
    """Return "17 failed over · 3 healthy", the worst first."""
    known = dict(counts)
    return BETWEEN.join(f"{known[state]:,} {state}" for state in STATES if known.get(state))


def engine_counts(view: FleetView) -> tuple[tuple[str, int], ...]:
    """Return the number of present engines by state: an engine counts by its worst entity."""
    found = Counter(one.state for one in present(view))
    return tuple((state, found[state]) for state in STATES if found[state])


def engines_part(view: FleetView) -> Part:
    """Return "20 engines: 17 failed over · 1 healthy · 2 silent"."""
    total, counts = present_count(view), states_text(engine_counts(view))
    counts += f"{BETWEEN}{view.unlisted:,} not listed" if view.unlisted else ""
    of = f" of {view.expected:,} expected" if view.expected is not None and view.expected > total else ""
    full = f"{plural(total, 'engine')}{of}: {counts}" if counts else f"no engine heard{of}"
    return (full, f"{plural(total, 'engine')}: {counts}") if of and counts else (full,)


def engines_left_out(snapshot: Snapshot, aim: Command, reached: int) -> str:
    """Return how many other engines have an order's entities, and their sends; empty: none, or no fleet.

    Args:
        reached: the engines besides the one of the snapshot that the order reaches.
    """
    fleet = snapshot.fleet
    if fleet is None:
        return ""
    wanted = {path.casefold() for path in aim.targets}
    found = [one for one in pairing_of(snapshot).totals if one.path.casefold() in wanted]
    most = max((sum(count for _, count in one.states) + one.silent for one in found), default=0) - 1 - reached
    if most <= 0:
        return ""
    sums = [one.sends_per_second for one in found if one.sends_per_second is not None]
    own = sum(one.sends_per_second for one in entities_of(snapshot, aim))
    sends = f", about {rate(max(0.0, sum(sums) - own))} sends/s" if sums and not reached else ""
    return f"{plural(most, 'other engine')} of the fleet with the same{sends}; they go on as they are"


def callers_part(pairing: PairingView, now: float) -> Part:
    """Return the part on calls that fail at callers of any engine, since when; of whom that is unknown it says so."""
    entities = pairing.entities
    per_second = sum(one.refused_per_second for one in entities)
    unknown = unknown_callers(pairing, now)
    since = min((one.refused_since for one in entities if one.refused_since is not None), default=None)
    began = f" since {clock(since)}" if since is not None else ""
    errors = sum(one.refused_in_outage for one in entities)
    total = f", {plural(errors, 'error')}" if errors else ""
    if per_second > 0:
        text, why = f"callers: {rate(per_second)}/s fail", _usual_reason(entities)
        where = f" at {failing_where(pairing)}" if pairing.fleet is not None and failing_engines(pairing) else ""
        longest = f"{text}{where}{began}{total}{unknown}"
        return (*((f"{longest}: {why}",) if why else ()), longest, f"{text}{where}{unknown}", f"{text}{where}", text)
    if pairing.fleet is None and not _known_senders(pairing):
        return ("callers: unknown, this engine sends nothing", "callers: no sends here")
    if unknown and (pairing.old_since is not None or not _known_senders(pairing)):
        where = unknown.removeprefix("; unknown")
        here = "; 0 refused here" if _known_senders(pairing) else ""
        return (f"callers unknown{where}{here}", f"callers unknown{where}",
                f"callers unknown{where.partition(' since')[0]}")  # fmt: skip
    if waits := unanswered_text(entities):
        return (f"{waits}{total}{unknown}", f"{waits}{total}", waits)
    if since is not None:  # the next calls may hang until their timeout
        text = "callers: the last calls failed"
        return (f"{text}{began}{total}{unknown}", f"{text}{began}{total}", f"{text}{began}", text)
    return tuple(dict.fromkeys(f"callers ok{text}" for text in _callers_ok(pairing, now, unknown)))


def _usual_reason(entities: Sequence[EntityView]) -> str:
    """Return the most frequent reason of refused calls here; empty: there was none."""
    why = Counter[str]()
    for one in entities:
        why.update(dict(one.refusals))
    return reason(why.most_common(1)[0][0]) if why else ""


def unanswered_text(entities: Sequence[EntityView]) -> str:
    """Return since when a call has no answer at any engine; empty: each is answered soon."""
    since = min((one.unanswered_since for one in entities if one.unanswered_since is not None), default=None)
    return f"callers wait: no answer since {clock(since)}" if since is not None else ""


def failing_engines(pairing: PairingView) -> list[str]:
    """Return engines whose callers' sends fail, by name, at most 20 of each entity."""
    return sorted({engine for one in pairing.totals for engine in one.failing}, key=natural)


def failing_where(pairing: PairingView, most: int = 3) -> str:
    """Return where callers' sends fail: "pay-1, web-2", or "17 engines" if there are more than `most`."""
    engines = failing_engines(pairing)
    number = max(len(engines), *(one.failing_count for one in pairing.totals), 0)
    return names(engines) if number <= most else f"{number:,} engines"


def _known_senders(pairing: PairingView) -> int:
    """Return the number of engines that send, and whose callers are known."""
    unknown = {(one.engine, one.boot) for one in pairing.unreported}
    fleet = pairing.fleet
    others = [one for one in pairing.engines if fleet is not None and not fleet.is_me(one)]
    known = (one for one in others if (one.engine, one.boot) not in unknown)
    sends = sum(any(number for state, number in one.states if state is not State.UNKNOWN) for one in known)
    return sends + any(one.here is not None and one.here.state is not State.UNKNOWN for one in pairing.entities)


def unknown_callers(pairing: PairingView, now: float) -> str:
    """Return at how many engines callers are unknown, and since when that is so; empty: at none."""
    quiet, never = pairing.unreported, pairing.unheard
    if pairing.fleet is not None and pairing.fleet.read_at is None:
        return "; unknown at other engines"
    if not quiet:
        return f"; unknown at {never} never heard" if never else ""
    at = pairing.old_since if pairing.old_since is not None else min(one.heard_at for one in quiet)
    more = f" and {never} never heard" if never else ""
    return f"; unknown at {plural(len(quiet), 'engine')} since {time_or_day(at, now)}{more}"


def _callers_ok(pairing: PairingView, now: float, unknown: str) -> Part:
    number = _known_senders(pairing)
    total = number + len(pairing.unreported) + pairing.unheard
    of = f"{number} of {plural(total, 'engine')}" if not pairing.unheard else plural(number, "engine")
    of_all = "" if pairing.fleet is None else f" at {of}" if unknown else " at all engines"
    short = f" {number}/{total}" if unknown else of_all
    errors = sum(one.refused_in_outage for one in pairing.entities)
    latest = max((one.refused_at for one in pairing.entities if one.refused_at is not None), default=None)
    before = sum(one.refused for one in pairing.entities) if pairing.fleet is None else 0
    if not errors or latest is None:
        many = f" ({plural(before, 'error')} before)" if before else ""
        full = f"{of_all}: 0 refused now{many}"
        brief = f"{short}, {plural(before, 'error')}" if before else short
        return (f"{full}{unknown}", f"{of_all}{many}{unknown}", full, f"{of_all}{many}", brief, short)
    since, many = f"{of_all} since {time_or_day(latest, now)}", plural(errors, "error")
    return (f"{since} ({many} in this outage){unknown}", f"{since} ({many} in this outage)", f"{since} ({many})",
            f"{short} since {time_or_day(latest, now)} ({many})", f"{short} ({many})", short)  # fmt: skip


def silent_part(view: FleetView, now: float) -> Part:
    """Return "silent: pay-3 since 13:58, pay-4 since 14:01", and expected engines that were never heard."""
    quiet = silent_engines(view)
    most_named = MAX_LISTED // 2 if quiet and view.missing else MAX_LISTED
    never = f"never heard: {names(view.missing, most_named)}" if view.missing else ""
    if not quiet:
        return (never, f"never heard: {names(view.missing, 2)}") if never else ()
    times = {minute(one.heard_at, now) for one in quiet}
    wordings = []
    for most in (min(len(quiet), most_named), 6, 4, 3, 2, 1):
        if most > len(quiet):
            continue
        if len(times) == 1:
            text = f"silent since {next(iter(times))}: {names([one.engine for one in quiet], most)}"
        else:
            left = f" and {len(quiet) - most:,} more" if most < len(quiet) else ""
            each = (f"{name(one.engine)} since {minute(one.heard_at, now)}" for one in quiet[:most])
            text = f"silent: {', '.join(each)}{left}"
        wordings += [f"{text}{BETWEEN}{never}", text] if never else [text]
    return (*dict.fromkeys(wordings), f"{len(quiet):,} silent")


# -- entities --------------------------------------------------------------------------------------------------------


def entity_counts(entity: FleetEntity) -> tuple[tuple[str, int], ...]:
    """Return the engines by their state of the entity, silent ones included."""
    found = Counter({state.value: count for state, count in entity.states if count})
    found[FleetStatus.SILENT.value] = entity.silent
    return tuple((state, found[state]) for state in STATES if found[state])


def entity_part(entity: FleetEntity) -> Part:
    """Return "17 failed over · 3 healthy · 2 silent", then shorter: the first state and the number of others."""
    counts = entity_counts(entity)
    full = states_text(counts) or "no engine reports it"
    if len(counts) < 2:
        return (full,)
    (state, number), *others = counts
    rest = sum(count for _, count in others)
    short = f"{number:,} {state}{BETWEEN}{rest:,} other{'s' if rest > 1 else ''}"
    total = number + rest
    return (full, short, f"{number:,}/{total:,} {state}", f"{number:,}/{total:,}")


def worst_state(entity: FleetEntity) -> State:
    """Return the worst state that an engine reports."""
    found = {state for state, count in entity.states if count}
    return next((state for state in STATES_FIRST if state in found), State.UNKNOWN)


def is_unwell(entity: FleetEntity) -> bool:
    """Return whether an engine reports a state that needs an operator."""
    return worst_state(entity) not in WELL


def unwell_entities(entities: Iterable[FleetEntity]) -> tuple[FleetEntity, ...]:
    """Return the entities that are not well somewhere, the worst and most widespread first."""
    found = [one for one in entities if is_unwell(one)]
    return tuple(sorted(found, key=lambda one: (_place(worst_state(one).value), -_unwell(one), one.path)))


def _unwell(entity: FleetEntity) -> int:
    return sum(count for state, count in entity.states if state not in WELL)


def engines_by_state(entity: FleetEntity, view: FleetView) -> dict[State, tuple[int, list[str]]]:
    """Return of each state the number of engines, and their names as far as they are known; the worst first."""
    named: dict[State, list[str]] = {}
    for engine, state, _since in entity.engines:
        named.setdefault(state, []).append(engine)
    unwell = {engine for engine, _, _ in entity.engines}
    well = [one.engine for one in _reporting(view) if one.engine not in unwell and any(dict(one.states).values())]
    counts = {state: count for state, count in entity.states if count}
    if len(well) == counts.get(State.HEALTHY):  # else some of them do not have the entity
        named[State.HEALTHY] = well
    return {state: (count, named.get(state, [])) for state, count in counts.items()}


def dissenters(entity: FleetEntity, view: FleetView) -> Part:
    """Return the smaller side of a disagreement: "healthy at web-1, web-2"; empty where engines agree."""
    if not entity.disagrees:
        return ()
    sides = {state: side for state, side in engines_by_state(entity, view).items() if state is not State.UNKNOWN}
    state, (count, side) = min(sides.items(), key=lambda pair: (pair[1][0], WORST_FIRST.index(pair[0])))
    if len(side) != count:  # states without names
        return (f"{count:,} {state}",)
    counts_of_names = (min(len(side), MAX_LISTED), 4, 2, 1)
    return tuple(dict.fromkeys(f"{state} at {names(side, most)}" for most in counts_of_names if most <= len(side)))


def unwell_part(entities: Iterable[FleetEntity]) -> Part:
    """Return the entities that are not well somewhere, each with its engines, then fewer."""
    found = unwell_entities(entities)
    each = [f"{name(one.path)} {entity_part(one)[0]}" for one in found]
    briefly = [f"{name(one.path)} {states_text(_bad(one))}" for one in found]
    bare = [name(one.path) for one in found]
    most_named = min(len(found), MAX_LISTED)
    wordings = [_listed(texts, most) for texts in (each, briefly, bare) for most in (most_named, 5, 3, 2, 1)]
    return tuple(dict.fromkeys(text for text in wordings if text))


def _bad(entity: FleetEntity) -> list[tuple[str, int]]:
    return [(state.value, count) for state, count in entity.states if state not in WELL]


def _listed(texts: Sequence[str], most: int) -> str:
    if not texts or most > len(texts):
        return ""
    left = len(texts) - most
    return ", ".join(texts[:most]) + (f" and {left:,} more" if left else "")


# -- differences ----------------------------------------------------------------------------------------------------


def differences(view: FleetView) -> tuple[tuple[str, str], ...]:
    """Return each present engine that differs from what stands, with how: by its local operator's order."""
    return tuple((name(one.engine), reason(text)) for one in present(view) for text in one.differs)


def differing_part(view: FleetView) -> Part:
    """Return "web-3 differs: released here by operator-b: force failover payments, …", then the engines alone."""
    found = differences(view)
    if not found:
        return ()
    engines = list(dict.fromkeys(engine for engine, _ in found))
    verb = "differs" if len(engines) == 1 else "differ"
    more = f"{BETWEEN}{len(found) - MAX_LISTED:,} more" if found[MAX_LISTED:] else ""
    each = BETWEEN.join(f"{engine} differs: {text}" for engine, text in found[:MAX_LISTED]) + more
    return (each, f"{names(engines, 3)} {verb} from what stands (7)", f"{len(engines):,} {verb} (7)")


# -- trouble ---------------------------------------------------------------------------------------------------------


def trouble_part(view: FleetView, now: float) -> Part:
    """Return why the figures are old: "board not reached since 13:58: figures are of then"; empty if they are not."""
    if view.trouble:
        since = f" since {minute(view.trouble_since, now)}" if view.trouble_since is not None else ""
        figures = "figures are of then" if view.read_at is not None else "nothing is known of other engines"
        if view.read_at is not None and view.trouble_since is None:
            figures = f"figures are of {minute(view.read_at, now)}"
        text = f"board not reached{since}: {figures}"
        return (f"{text} ({reason(view.trouble)})", text)
    if view.read_at is None:
        return ("the board is not read yet: other engines are unknown", "the board is not read yet")
    if old_since(view, now) is not None:
        return (f"figures are of {time_or_day(view.read_at, now)}: the board was not read since",)
    return ()


def odd_parts(view: FleetView) -> tuple[Part, ...]:
    """Return what is wrong with the fleet itself: engines of one name, signers that differ, foreign messages."""
    found: list[Part] = [(reason(one),) for one in view.remarks]
    twins = sorted({one.engine for one in view.engines if one.namesakes and one.status is not FleetStatus.ENDED})
    if twins and not view.remarks:
        found.append((f"several engines are named {names(twins, 2)}: set a name of its own in [fleet]",))
    others = with_other_signers(_reporting(view))
    if others and not view.remarks and not view.is_flooded:
        found.append((f"another file of signers than most: {names(others, 2)}",))
    if view.skipped:
        found.append((f"{plural(view.skipped, 'foreign or broken message')} skipped on the boards",))
    return (*found, (view.unwatched,)) if view.unwatched else tuple(found)


def gateways_part(view: FleetView) -> Part:
    """Return the engines whose gateway has clients, so that other languages' sends are steered there; empty: none."""
    found = [(one, one.figures.gateway_clients) for one in _reporting(view) if one.figures is not None]
    busy = sorted(((number, one.engine) for one, number in found if number), reverse=True)
    if not busy:
        return ()
    total = plural(sum(number for number, _ in busy), "client")
    listed = [f"{number:,} at {name(engine)}" for number, engine in busy[:4]]
    more = f" and {len(busy) - 4:,} more engines" if busy[4:] else ""
    return (f"gateways: {total}: {', '.join(listed)}{more}", f"gateways: {total} of {plural(len(busy), 'engine')}")


# The cases of the alarms about the fleet (alarms.py): subject and sentence of each.

Cases = Iterator[tuple[str, str]]


def missing_cases(view: FleetView, _now: float) -> Cases:
    """Yield how many of the expected engines were heard, if some were not."""
    total = len(present(view))
    if view.expected is not None and total < view.expected:
        yield "", f"{total:,} of {view.expected:,} expected engines were heard"


def differing_cases(view: FleetView, _now: float) -> Cases:
    """Yield each engine that differs from what stands."""
    found = differences(view)
    for engine, text in found[:MAX_LISTED]:
        yield engine, f"{engine} differs: {text}"
    if found[MAX_LISTED:]:
        yield "", f"{len(found) - MAX_LISTED:,} more differ from what stands"


def unread_cases(view: FleetView, now: float) -> Cases:
    """Yield that orders lie unread, one interval after the end of the board was not reached."""
    if view.unread_since is not None and now - view.unread_since >= view.look_seconds:
        yield "", f"orders unread behind {plural(view.unread, 'message')} since {minute(view.unread_since, now)}"


def flooded_cases(view: FleetView, _now: float) -> Cases:
    """Yield that more engines are claimed than can be."""
    if view.is_flooded:
        yield "", f"the board is flooded: more than {len(view.engines) + view.unlisted:,} engines are claimed"


def ending_cases(view: FleetView, now: float) -> Cases:
    """Yield the standing order that ends first, from 30 minutes before its end on."""
    for text in ending_part(view, now)[-1:]:
        yield "", f"{text}, and is released then"


def odd_cases(view: FleetView, _now: float) -> Cases:
    """Yield what is wrong with the fleet itself."""
    for part in odd_parts(view):
        if not _is_note(view, part):
            yield part[0], part[0]


def _is_note(view: FleetView, part: Part) -> bool:
    """Return whether something odd needs nobody: it is shown, and is no alarm."""
    return "skipped" in part[0] or part[0] == view.unwatched


# The fleet as plain lines, for `paired fleet` and `paired status --fleet`: verdict, engines, entities, orders.

WIDEST: Final = 28
"""Cells of a name in a column."""
MAX_PATHS: Final = 3
"""Entities named in an engine's row."""
SILENT_GLYPH: Final = "✗"
HEADS: Final = ("engine", "host", "state", "heard", "syphon", "takes", "send/s", "not healthy")


def fleet_lines(pairing: PairingView, now: float, alarms: Sequence[object], *, lists_alarms: bool = True) -> list[str]:
    """Return the fleet as lines, times in UTC. alarms: those about the fleet."""
    view = pairing.fleet
    if view is None:
        return ["fleet: off, other hosts unknown ([fleet] switches it on)"]
    read = f", read {clock(view.read_at)}" if view.read_at is not None else ""
    lines = [f"fleet: {fleet_word(view, alarms)}, {engines_part(view)[0]}{read}"]
    lines += [f"  ! {alarm}" for alarm in alarms if lists_alarms]
    lines += [f"  ? {part[0]}" for part in odd_parts(view) if _is_note(view, part)]
    lines += [f"  {text}" for text in gateways_part(view)[:1]]
    lines += ["", *_engine_rows(view, now)] if view.engines else []
    lines += ["", *_entity_rows(pairing, view)] if pairing.entities else []
    orders = [f"  {order_part(one, now, view)[0]}" for one in newest_orders(view)]
    return [*lines, "", "orders", *(orders or ["  none on the board"])]


def _engine_rows(view: FleetView, now: float) -> list[str]:
    ended = [one for one in view.engines if one.status is FleetStatus.ENDED]
    return _table([HEADS, *(engine_cells(one, now) for one in (*present(view), *ended))])


def engine_cells(engine: FleetEngine, now: float) -> tuple[str, ...]:
    """Return an engine's row; a silent one's figures are of when it was heard last."""
    figures = engine.figures
    sends = rate(figures.sends_per_second) if figures is not None else NOT_KNOWN
    if figures is not None and engine.status is not FleetStatus.REPORTING:
        sends = f"was {sends}"
    host, status = untrusted_text.name(engine.host), engine_status(engine)
    return (untrusted_text.name(engine.engine), host, status, heard(engine, now), engine.syphon, engine.takes, sends,
            not_well(engine))  # fmt: skip


def engine_status(engine: FleetEngine) -> str:
    """Return its glyph and its state."""
    state = next((state for state in State if state == engine.state), None)
    return f"{GLYPHS[state] if state is not None else SILENT_GLYPH} {engine.state}"


def heard(engine: FleetEngine, now: float) -> str:
    """Return when it was heard: an age while it reports, a time of day once it is silent or has ended."""
    if engine.status is FleetStatus.REPORTING:
        return f"{age(now - engine.heard_at)} ago"
    return f"since {untrusted_text.minute(engine.heard_at, now)}"


def not_well(engine: FleetEngine, most: int = MAX_PATHS) -> str:
    """Return its entities that are not healthy, or why it ended."""
    if engine.status is FleetStatus.ENDED:
        return untrusted_text.reason(engine.reason)
    bad = sum(count for state, count in engine.states if state not in WELL)
    known = [one.path for one in engine.not_well if one.state not in WELL]
    before = "was " if engine.status is FleetStatus.SILENT else ""
    if not bad:
        return "was healthy" if before else "none"
    shown = ", ".join(untrusted_text.name(path) for path in known[:most])
    more = bad - len(known[:most])
    return f"{before}{shown}" + (f" and {more:,} more" if shown and more else f"{more:,}" if more else "")


def _entity_rows(pairing: PairingView, view: FleetView) -> list[str]:
    bad = unwell_entities(pairing.totals)
    well = [one for one in pairing.totals if one not in bad]
    rows = [("entity", "over all engines", "since", "why", "send/s", "refused/s", "who differs")]
    return _table([*rows, *(_entity_cells(one, view) for one in (*bad, *well))])


def _entity_cells(entity: FleetEntity, view: FleetView) -> tuple[str, ...]:
    who = dissenters(entity, view)
    figures = (entity.sends_per_second, entity.refused_per_second)
    sends, refused = (NOT_KNOWN if one is None else rate(one) for one in figures)
    since = NOT_KNOWN if entity.first_failure_at is None else clock(entity.first_failure_at)
    why = untrusted_text.name(entity.causes[0][0]) if entity.causes else NOT_KNOWN
    return (untrusted_text.name(entity.path), entity_part(entity)[0], since, why, sends, refused, who[0] if who else "")


def _table(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return the rows in columns; the last one is as wide as its text."""
    widths = [min(WIDEST, max(len(row[place]) for row in rows)) for place in range(len(rows[0]) - 1)]
    widths = [max(width, *(len(row[place]) for row in rows)) if place else width for place, width in enumerate(widths)]
    return [
        "  " + "  ".join([*(_cell(text, width) for text, width in zip(row, widths, strict=False)), row[-1]]).rstrip()
        for row in rows
    ]


def _cell(text: str, width: int) -> str:
    return (text if len(text) <= width else f"{text[: width - 1]}…").ljust(width)
