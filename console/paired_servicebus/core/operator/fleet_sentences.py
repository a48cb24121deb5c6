"""The fleet in words, shared by screen, verbs and status. Pure: `now` is seconds since the epoch.

A `Part` has several wordings, the longest first, so that a screen takes the longest that fits. Names, hosts and reasons
come from documents that anybody with a key may have posted: each becomes one harmless, short line first.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from enum import IntEnum
from typing import Final

from paired_servicebus.core.model.entity_state import WELL, State
from paired_servicebus.core.model.fleet_view import (
    WORST_FIRST,
    FleetEngine,
    FleetEntity,
    FleetFigures,
    FleetStatus,
    FleetView,
    with_other_signers,
)
from paired_servicebus.core.model.snapshot import Snapshot
from paired_servicebus.core.operator.order_sentences import BETWEEN, Part, ending_part
from paired_servicebus.core.operator.targets import ActionTarget, entities_of
from paired_servicebus.core.text.foreign_words import minute, name, names, natural, reason
from paired_servicebus.core.text.number_format import plural, rate

OLD_AFTER: Final = 4000.0
"""Seconds after which an unwatched reading is old: presences come hourly."""
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


def fleet_health(view: FleetView, now: float) -> FleetHealth:
    """Return the health of the fleet: UNREACHABLE while the boards cannot be read, because figures are then old."""
    if view.read_at is None or view.trouble:
        return FleetHealth.UNREACHABLE
    return FleetHealth.DEGRADED if fleet_complaints(view, now) else FleetHealth.HEALTHY


def fleet_word(view: FleetView, now: float) -> str:
    """Return the health in a word: "unknown" while no engine reports a healthy entity."""
    found = fleet_health(view, now)
    healthy = any(count for one in _reporting(view) for state, count in one.states if state is State.HEALTHY)
    return str(found) if found is not FleetHealth.HEALTHY or healthy else State.UNKNOWN.value


# -- engines ---------------------------------------------------------------------------------------------------------


def present(view: FleetView) -> tuple[FleetEngine, ...]:
    """Return the engines that have not said goodbye, the worst first, then by name."""
    found = [one for one in view.engines if one.status is not FleetStatus.ENDED]
    return tuple(sorted(found, key=lambda one: (_place(one.state), natural(one.engine), one.boot)))


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
    total, counts = len(present(view)), states_text(engine_counts(view))
    of = f" of {view.expected:,} expected" if view.expected is not None and view.expected > total else ""
    full = f"{plural(total, 'engine')}{of}: {counts}" if counts else f"no engine heard{of}"
    return (full, f"{plural(total, 'engine')}: {counts}") if of and counts else (full,)


def engines_left_out(snapshot: Snapshot, aim: ActionTarget, reached: int) -> str:
    """Return how many other engines have an order's entities, and their sends; empty: none, or no fleet.

    Args:
        reached: the engines besides the one of the snapshot that the order reaches.
    """
    fleet = snapshot.fleet
    if fleet is None:
        return ""
    wanted = {path.casefold() for path in aim.targets}
    found = [one for one in fleet.entities if one.path.casefold() in wanted]
    most = max((sum(count for _, count in one.states) + one.silent for one in found), default=0) - 1 - reached
    if most <= 0:
        return ""
    sums = [one.sends_per_second for one in found if one.sends_per_second is not None]
    own = sum(one.sends_per_second for one in entities_of(snapshot, aim))
    sends = f", about {rate(max(0.0, sum(sums) - own))} sends/s" if sums and not reached else ""
    return f"{plural(most, 'other engine')} of the fleet with the same{sends}; they go on as they are"


def callers_part(view: FleetView) -> Part:
    """Return the part on calls that fail at callers of any engine; engines without a report are counted as unknown."""
    engines = present(view)
    known, failing = _with_figures(view), _failing(view)
    of_all = f"{len(known)} of {plural(len(engines), 'engine')}" if len(known) < len(engines) else "all engines"
    if failing:
        per_second = rate(sum(figures.refused_per_second for _, figures in failing))
        where = ", ".join(name(one.engine) for one, _ in failing[:3])
        more = f" and {len(failing) - 3} more" if len(failing) > 3 else ""
        return (f"callers: {per_second}/s fail at {where}{more}", f"callers: {per_second}/s fail")
    if not known:
        return ("callers elsewhere: unknown",)
    return (f"callers ok at {of_all}: 0 refused now", f"callers ok at {of_all}")


def loss_part(view: FleetView) -> Part:
    """Return "18 of 20 engines, 216/s": those at which calls fail at callers; empty if no more than one reports it."""
    failing = _failing(view)
    if len(failing) < 2:
        return ()
    text = f"{len(failing):,} of {plural(len(present(view)), 'engine')}"
    return (f"{text}, {rate(sum(figures.refused_per_second for _, figures in failing))}/s", text)


def _with_figures(view: FleetView) -> list[tuple[FleetEngine, FleetFigures]]:
    """Return the reporting engines that have figures, the worst first."""
    reporting = (one for one in present(view) if one.status is FleetStatus.REPORTING)
    return [(one, one.figures) for one in reporting if one.figures is not None]


def _failing(view: FleetView) -> list[tuple[FleetEngine, FleetFigures]]:
    return [(one, figures) for one, figures in _with_figures(view) if figures.refused_per_second > 0]


def silent_part(view: FleetView, now: float) -> Part:
    """Return "silent: pay-3 since 13:58, pay-4 since 14:01", and expected engines that were never heard."""
    quiet = silent_engines(view)
    never = f"never heard: {names(view.missing)}" if view.missing else ""
    if not quiet:
        return (never, f"never heard: {names(view.missing, 2)}") if never else ()
    times = {minute(one.heard_at, now) for one in quiet}
    wordings = []
    for most in (len(quiet), 6, 4, 3, 2, 1):
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
    return next((state for state in WORST_FIRST if state in found), State.UNKNOWN)


def is_unwell(entity: FleetEntity) -> bool:
    """Return whether an engine reports a state that needs an operator."""
    return worst_state(entity) not in WELL


def unwell_entities(view: FleetView) -> tuple[FleetEntity, ...]:
    """Return the entities that are not well somewhere, the worst and most widespread first."""
    found = [one for one in view.entities if is_unwell(one)]
    return tuple(sorted(found, key=lambda one: (_place(worst_state(one).value), -_unwell(one), one.path)))


def _unwell(entity: FleetEntity) -> int:
    return sum(count for state, count in entity.states if state not in WELL)


def dissenters(entity: FleetEntity, view: FleetView) -> Part:
    """Return the smaller side of a disagreement: "healthy at web-1, web-2"; empty where engines agree."""
    if not entity.disagrees:
        return ()
    sides: dict[State, list[str]] = {}
    for engine, state, _since in entity.engines:
        sides.setdefault(state, []).append(engine)
    unwell = {engine for engine, _, _ in entity.engines}
    well = [one.engine for one in _reporting(view) if one.engine not in unwell]
    counts = {state: count for state, count in entity.states if count}
    sides.setdefault(State.HEALTHY, well)
    state, count = min(counts.items(), key=lambda pair: (pair[1], WORST_FIRST.index(pair[0])))
    side = sides.get(state, [])
    if len(side) != count:  # engines that do not have the entity, or states without names
        return (f"{count:,} {state}",)
    return tuple(dict.fromkeys(f"{state} at {names(side, most)}" for most in (len(side), 4, 2, 1) if most <= len(side)))


def unwell_part(view: FleetView) -> Part:
    """Return the entities that are not well somewhere, each with its engines, then fewer."""
    found = unwell_entities(view)
    each = [f"{name(one.path)} {entity_part(one)[0]}" for one in found]
    briefly = [f"{name(one.path)} {states_text(_bad(one))}" for one in found]
    bare = [name(one.path) for one in found]
    wordings = [_listed(texts, most) for texts in (each, briefly, bare) for most in (len(found), 5, 3, 2, 1)]
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
    each = BETWEEN.join(f"{engine} differs: {text}" for engine, text in found)
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
    if now - view.read_at > OLD_AFTER:
        return (f"figures are of {minute(view.read_at, now)}: the board was not read since",)
    return ()


def odd_parts(view: FleetView) -> tuple[Part, ...]:
    """Return what is wrong with the fleet itself: engines of one name, signers that differ, foreign messages."""
    found: list[Part] = [(reason(one),) for one in view.remarks]
    twins = sorted({one.engine for one in view.engines if one.namesakes and one.status is not FleetStatus.ENDED})
    if twins and not view.remarks:
        found.append((f"several engines are named {names(twins, 2)}: set a name of its own in [fleet]",))
    others = with_other_signers(_reporting(view))
    if others and not view.remarks:
        found.append((f"another file of signers than most: {names(others, 2)}",))
    if view.skipped:
        found.append((f"{plural(view.skipped, 'foreign or broken message')} skipped on the boards",))
    return tuple(found)


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


def fleet_complaints(view: FleetView, now: float) -> tuple[str, ...]:
    """Return what needs attention, a sentence each; empty if all is well."""
    found = [part[0] for part in (trouble_part(view, now),) if part]
    total = len(present(view))
    if view.expected is not None and total < view.expected:
        found.append(f"{total:,} of {view.expected:,} expected engines were heard")
    for entity in unwell_entities(view):
        who = dissenters(entity, view)
        found.append(f"{name(entity.path)}: {entity_part(entity)[0]}" + (f"; {who[0]}" if who else ""))
    if any(one.figures is not None and one.figures.refused_per_second > 0 for one in _reporting(view)):
        found.append(callers_part(view)[0])
    found += silent_part(view, now)[:1]
    found += [f"{engine} differs: {text}" for engine, text in differences(view)]
    found += ending_part(view, now)[:1]
    found += [part[0] for part in odd_parts(view) if "skipped" not in part[0]]
    return tuple(found)
