"""An order over the fleet as an operator asks for it: whether it is possible, its draft, and the question before it.

The verb's preview and the screen's dialog show these sentences: whom it reaches, who refuses, who is silent, and how
long it stands. Every figure is of the engine that posts the order, and no engine trusts any of this: the rules decide
about the signed bytes. Not here: the signature, and the posting.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Final

from paired_servicebus.core.errors import ConfigurationError
from paired_servicebus.core.fleet.fleet_documents import MAX_NAMED_ENGINES, OrderText, too_long
from paired_servicebus.core.fleet.order_answers import (
    MAX_LISTED,
    Expect,
    Expected,
    addressed_engines,
    needs_partial,
)
from paired_servicebus.core.fleet.order_rules import (
    DEFAULT_STANDING_SECONDS,
    MAX_STANDING_SECONDS,
    FleetVerb,
    to_type,
)
from paired_servicebus.core.model.command import Command
from paired_servicebus.core.model.entity_state import GLYPHS, WELL, State
from paired_servicebus.core.model.fleet_view import (
    WORST_FIRST,
    FleetEngine,
    FleetEntityState,
    FleetOrder,
    FleetStatus,
    FleetView,
    Takes,
    with_other_signers,
)
from paired_servicebus.core.model.pairing_fold import pairing_of
from paired_servicebus.core.model.snapshot import Snapshot, SyphonStatus
from paired_servicebus.core.operator import consequences, fleet_sentences
from paired_servicebus.core.operator.action_row import Action
from paired_servicebus.core.operator.actions import BY_ID, FLEET_VERBS
from paired_servicebus.core.operator.fleet_sentences import BETWEEN, standing_orders
from paired_servicebus.core.operator.targets import Scope, names_of
from paired_servicebus.core.text import untrusted_text
from paired_servicebus.core.text.number_format import NOT_KNOWN, plural, rate
from paired_servicebus.core.text.time_format import age
from paired_servicebus.core.text.untrusted_text import minute, name, names, repeated


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetRequest:
    """An operator's wish.

    Args:
        engines: the engines meant, by name; None: all.
        stands_for: seconds that a standing order stands; None: the usual 4 hours.
    """

    command: Command
    engines: tuple[str, ...] | None = None
    stands_for: float | None = None

    @property
    def action(self) -> Action:
        return BY_ID[self.command.action_id]


def known_fleet(snapshot: Snapshot) -> FleetView:
    """Return the fleet. Raises ConfigurationError: it is off or unknown, so that nothing may be ordered."""
    view = pairing_of(snapshot).fleet
    if view is None:
        raise ConfigurationError(f"the fleet is off in the engine {snapshot.engine}: add [fleet] to its pairing.toml")
    if view.trouble or view.read_at is None:
        reason = repeated(view.trouble) or "its boards are not read"
        raise ConfigurationError(f"nothing was ordered: the fleet is unknown ({reason})")
    return view


def draft_request(snapshot: Snapshot, wanted: FleetRequest, *, now: float) -> OrderDraft:
    """Return the order that a request asks for, from what the engine knows of the fleet.

    Args:
        now: seconds since the epoch, by the clock of the engine's host.

    Raises:
        ConfigurationError: the fleet is unknown, or no engine would take such an order.
    """
    view = known_fleet(snapshot)
    return draft_order(view, wanted, primary=snapshot.primary, secondary=snapshot.secondary, now=now)


def fleet_entities(snapshot: Snapshot, names: Sequence[str], matching: str | None = None) -> tuple[str, ...]:
    """Return entities by the fleet's names; matching: all that have it in their path.

    Raises ConfigurationError: no engine knows an entity.
    """
    view = known_fleet(snapshot)
    known = (*(one.path for one in snapshot.entities), *(one.path for one in view.entities))
    paths = {path.casefold(): path for path in known}
    if matching is not None:
        found = tuple(path for key, path in sorted(paths.items()) if matching.casefold() in key)
        if not found:
            raise ConfigurationError(f"none of the fleet's {len(paths)} entities has {matching!r} in its path")
        return found
    unknown = next((one for one in names if one.casefold() not in paths), None)
    if unknown is not None:
        listed = ", ".join(paths.values()) or "none yet"
        raise ConfigurationError(f"no engine of the fleet has an entity {unknown!r}; the fleet has {repeated(listed)}")
    return tuple(paths[one.casefold()] for one in names)


# -- whether it is possible ------------------------------------------------------------------------------------------


def why_not_over_fleet(action: Action, snapshot: Snapshot, aim: Command) -> str:
    """Return why an action is impossible over the fleet now; empty if it is possible."""
    if not action.over_fleet:
        return f"{action.label} is not allowed over the fleet"
    try:
        view = known_fleet(snapshot)
    except ConfigurationError as error:
        return str(error).removeprefix("nothing was ordered: ")
    present = [one for one in view.engines if one.status is not FleetStatus.ENDED]
    if not present:
        return "no engine of the fleet is known"
    if not any(one.takes is not Takes.LOOK_ONLY for one in present):
        return "every engine looks only: [fleet] operators in pairing.toml names the file of signers"
    if action.revokes and not _revocable(action, view, present, aim, snapshot.at):
        return f"{repeated(names_of(aim)) or 'nothing'} has nothing to {action.label.split()[0]} in any engine"
    return ""


def has_fleet_order(action: Action, snapshot: Snapshot | None, aim: Command) -> bool:
    """Return whether an order of the fleet stands that the action revokes."""
    if snapshot is None or snapshot.fleet is None or not action.revokes:
        return False
    return bool(standing_about(action, snapshot.fleet, aim, snapshot.at))


def standing_about(action: Action, view: FleetView, aim: Command, now: float) -> tuple[FleetOrder, ...]:
    """Return the standing orders of the fleet about the same subject and one of the same targets."""
    targets = {one.casefold() for one in aim.targets}
    return tuple(
        one
        for one in standing_orders(view, now)
        if (known := BY_ID.get(one.verb)) is not None
        and known.stands_for == action.stands_for
        and (not targets or not one.targets or targets & {each.casefold() for each in one.targets})
    )


def _revocable(action: Action, view: FleetView, present: Sequence[FleetEngine], aim: Command, now: float) -> bool:
    if standing_about(action, view, aim, now):
        return True
    if aim.scope == Scope.ENTITY:
        targets = {one.casefold() for one in aim.targets}
        held = (State.FORCED, State.PINNED, State.FAILED_OVER)
        return any(one.path.casefold() in targets and one.state in held for each in present for one in each.not_well)
    if action.lifts_read_only:
        return any(one.takes is Takes.READ_ONLY for one in present)
    return any(one.syphon == SyphonStatus.PAUSED for one in present) or aim.scope != Scope.ALL


SILENT_GLYPH: Final = "✗"
MAX_NAMED_TARGETS: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineEvidence:
    """One addressed engine: its glyph and state as columns, and whether it would carry the order out.

    remark: why it will not; empty: it will.
    """

    glyph: str
    engine: str
    state: str
    sends: str
    remark: str


def reach_text(view: FleetView, engines: tuple[str, ...] | None) -> str:
    """Return the reach: "the fleet (20 engines)", or "1 engine: web-3"."""
    if engines is not None:
        return f"{plural(len(engines), 'engine')} ({names(engines, 3)})"
    return f"the fleet ({plural(fleet_sentences.present_count(view), 'engine')})"


def fleet_title(wanted: FleetRequest, view: FleetView) -> str:
    """Return the first line: the reach, then the order and its targets."""
    return f"{reach_text(view, wanted.engines).capitalize()}: {wanted.action.label} {target_names(wanted)}".rstrip()


def target_names(wanted: FleetRequest) -> str:
    """Return the names of the targets; of a queue as everywhere else."""
    shown = [f"backlog/{one}" if wanted.command.scope == Scope.QUEUE else one for one in wanted.command.targets]
    return names(shown, MAX_NAMED_TARGETS)


def fleet_facts(
    snapshot: Snapshot, wanted: FleetRequest, draft: OrderDraft, *, now: float
) -> tuple[tuple[str, str], ...]:
    """Return the facts, each with its label, in the order of their weight."""
    view, expected = known_fleet(snapshot), draft.expected
    facts = [("Reaches", _reaches(wanted, draft))]
    facts += [("Refuses", text) for text in _refusals(expected)]
    if silent := _silent(wanted, expected, now):
        facts.append(("Not reached", silent))
    if standing := standing_about(wanted.action, view, wanted.command, now):
        heads = [fleet_sentences.order_head(one, now) for one in standing[:3]]
        facts.append(("Stands now", BETWEEN.join(heads)))
    facts.append(_end(wanted.action, draft, now))
    facts += [
        (label, consequences.sentence(text, snapshot, wanted.command)) for label, text in wanted.action.fleet_facts
    ]
    return tuple(facts)


def silent_names(draft: OrderDraft) -> frozenset[str]:
    """Return the addressed engines whose silence is to be ticked, and the number of unknown ones as one more entry."""
    expected = draft.expected
    if not draft.needs_partial:
        return frozenset()
    unnamed = {f"{expected.unnamed} unknown"} if expected.unnamed else set()
    return frozenset({name for name, _ in expected.silent} | unnamed)


def engine_evidence(view: FleetView, wanted: FleetRequest, draft: OrderDraft, now: float) -> tuple[EngineEvidence, ...]:
    """Return a row for each addressed engine: those that will not do it first, then by the targets' state."""
    found = fleet_sentences.worst_first(draft.expected.present)
    never = sorted(draft.expected.never_heard)
    rows = [*(_never_heard(one) for one in never), *(_evidence(one, view, wanted, now) for one in found)]
    return tuple(sorted(rows, key=lambda row: (not row.remark, _place(row.glyph))))


def _place(glyph: str) -> int:
    """Return the place of a state's glyph: the worst first."""
    glyphs = [GLYPHS[state] for state in WORST_FIRST]
    return glyphs.index(glyph) if glyph in glyphs else -1


def _never_heard(engine: str) -> EngineEvidence:
    return EngineEvidence(
        glyph=SILENT_GLYPH, engine=name(engine), state="never heard", sends=NOT_KNOWN, remark="not reached now"
    )


def _evidence(engine: FleetEngine, view: FleetView, wanted: FleetRequest, now: float) -> EngineEvidence:
    sends = NOT_KNOWN if engine.figures is None else f"{rate(engine.figures.sends_per_second)}/s"
    if engine.status is FleetStatus.SILENT:
        sends = f"was {sends}" if engine.figures is not None else sends
        state, remark = f"silent since {minute(engine.heard_at, now)}", "not reached now"
        return EngineEvidence(glyph=SILENT_GLYPH, engine=name(engine.engine), state=state, sends=sends, remark=remark)
    remark = "" if engine.takes.acts else f"will refuse: {engine.takes}"
    worst = next((state for state in State if state == engine.state), State.UNKNOWN)
    glyph, text = GLYPHS[worst], engine.state
    if wanted.command.scope == Scope.ENTITY:
        glyph, text = _of_targets(engine, view, wanted, now)
    elif wanted.action.needs_syphon:
        text = f"syphon {name(engine.syphon)}"
    return EngineEvidence(glyph=glyph, engine=name(engine.engine), state=text, sends=sends, remark=remark)


def _of_targets(engine: FleetEngine, view: FleetView, wanted: FleetRequest, now: float) -> tuple[str, str]:
    """Return the worst state of the targets in an engine; unknown if it may not have them."""
    targets = {one.casefold() for one in wanted.command.targets}
    found = [one for one in engine.not_well if one.path.casefold() in targets]
    if found:
        worst = min(found, key=_weight)
        more = f" +{len(found) - 1}" if found[1:] else ""
        return GLYPHS[worst.state], f"{worst.state} since {minute(worst.since, now)}{more}"
    entities = [one for one in view.entities if one.path.casefold() in targets]
    reporting = sum(one.status is FleetStatus.REPORTING for one in view.engines)
    is_everywhere = any(sum(count for _, count in one.states) >= reporting for one in entities)
    has_unknown = any(count for state, count in engine.states if state is State.UNKNOWN)
    if has_unknown and any(count for one in entities for state, count in one.states if state is State.UNKNOWN):
        return GLYPHS[State.UNKNOWN], State.UNKNOWN.value
    return (GLYPHS[State.HEALTHY], "healthy") if is_everywhere else (GLYPHS[State.UNKNOWN], "no trouble reported")


def _weight(one: FleetEntityState) -> int:
    return WORST_FIRST.index(one.state)


def _reaches(wanted: FleetRequest, draft: OrderDraft) -> str:
    now = [one for one in draft.expected.present if one.status is FleetStatus.REPORTING]
    total = max(draft.text.reach, draft.expected.count)
    figures = [one.figures for one in now if one.figures is not None]
    sends = f"{rate(sum(one.sends_per_second for one in figures))} sends/s" if figures else "sends unknown"
    if len(figures) < len(now) and figures:
        sends += f" at {len(figures)} of them"
    heads = f"{len(now)} of {plural(total, 'engine')} now, {sends}"
    bad = _unwell(now, wanted)
    return f"{heads}{BETWEEN}{bad}" if bad else heads


def _unwell(engines: Iterable[FleetEngine], wanted: FleetRequest) -> str:
    """Return who is not well about the targets, or at all: "failed over: web-1, web-2"."""
    targets = {one.casefold() for one in wanted.command.targets} if wanted.command.scope == Scope.ENTITY else None
    by_state: dict[State, list[str]] = {}
    for engine in engines:
        found = [one for one in engine.not_well if targets is None or one.path.casefold() in targets]
        bad = [one.state for one in found if one.state not in WELL]
        if bad:
            by_state.setdefault(min(bad, key=WORST_FIRST.index), []).append(engine.engine)
    ordered = sorted(by_state.items(), key=lambda pair: WORST_FIRST.index(pair[0]))
    most = MAX_LISTED // max(1, len(ordered))
    return BETWEEN.join(
        f"{len(who)} {state} ({names(sorted(who, key=untrusted_text.natural), most)})" for state, who in ordered
    )


def _silent(wanted: FleetRequest, expected: Expected, now: float) -> str:
    silent = sorted(expected.silent, key=lambda one: untrusted_text.natural(one[0]))
    count = len(silent) + expected.unnamed
    if not count:
        return ""
    each = [
        f"{name(engine)} {'never heard' if heard_at is None else f'since {minute(heard_at, now)}'}"
        for engine, heard_at in silent[:MAX_LISTED]
    ]
    each += [f"{len(silent) - MAX_LISTED} more"] if silent[MAX_LISTED:] else []
    each += [f"{expected.unnamed} unknown"] if expected.unnamed else []
    return f"{count} silent: {', '.join(each)}; {_later(wanted.action, count)}"


def _later(action: Action, count: int) -> str:
    they, s = ("it", "s") if count == 1 else ("they", "")
    if action.revokes:
        return f"{they} end{s} what stands on coming back"
    return f"{they} take{s} it up on coming back"


def _end(action: Action, draft: OrderDraft, now: float) -> tuple[str, str]:
    """Return until when it stands, or what it ends."""
    if action.revokes:
        return "Ends", "what stands, also in engines that come back later"
    seconds = draft.text.until - draft.text.issued_at
    return "Until", f"{minute(now + seconds, now)}, in {age(seconds)}; then released, with alarms 30 and 5 min before"


def _refusals(expected: Expected) -> list[str]:
    """Return the engines that say that they take no signed order, by reason."""
    reasons: dict[str, list[str]] = {}
    for one in fleet_sentences.worst_first(expected.present):
        if not one.takes.acts:
            reasons.setdefault(str(one.takes), []).append(one.engine)
    return [f"{len(who)} {why}: {names(who, MAX_LISTED)}" for why, who in reasons.items()]


# The draft, from what the console's engine knows of the fleet now.

LATER_SECONDS: Final = 0.001
"""Seconds by which an order is issued after the newest one of its subjects."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OrderDraft:
    """An order to be signed. needs_partial: why it needs `--partial`; empty: every addressed engine reports."""

    text: OrderText
    to_type: str
    needs_partial: str
    expected: Expected
    """The engines that it addresses."""
    takes: tuple[str, ...]
    """Remarks about addressed engines that will refuse it (look only, read-only), or may: another file of signers."""

    def confirm(self, typed: str) -> OrderText:
        """Return the text with the operator's confirmation."""
        return replace(self.text, typed=typed)


def draft_order(view: FleetView, wanted: FleetRequest, *, primary: str, secondary: str, now: float) -> OrderDraft:
    """Return a new order.

    Args:
        view: the fleet as the posting engine knows it.
        now: seconds since the epoch, by the clock of the posting engine's host.

    Raises:
        ConfigurationError: no engine would take such an order; the text has the reason.
    """
    command, engines = wanted.command, wanted.engines
    verb = FLEET_VERBS.get(command.action_id)
    if verb is None:
        raise ConfigurationError(f"{command.action_id} is not allowed over the fleet: give it to one engine")
    _check(verb, engines, wanted.stands_for)
    expect = expected_of(view)
    me = next((one for one in view.engines if (one.engine, one.boot) == (view.me, view.my_boot)), None)
    unlisted = 0 if view.is_flooded else view.unlisted
    expected = addressed_engines(engines, view.engines, expect, unlisted=unlisted)
    issued_at = _issue(view, verb, command, now - (view.clock_offset or 0.0))
    stands_for = (wanted.stands_for or DEFAULT_STANDING_SECONDS) if verb.stands else MAX_STANDING_SECONDS
    text = OrderText(
        primary=primary,
        secondary=secondary,
        verb=verb.id,
        scope=command.scope,
        targets=command.targets,
        engines=engines,
        typed="",
        reach=0 if view.is_flooded and engines is None else expected.count,
        why=command.why,
        issued_at=issued_at,
        until=issued_at + stands_for,
        seen=_digest(view),
    )
    typed = to_type(text, verb) if verb.dangerous else ""
    if not expected.count:
        raise ConfigurationError("no engine of the fleet is known: none would carry the order out")
    if trouble := too_long(replace(text, typed=typed)):
        raise ConfigurationError(trouble)
    return OrderDraft(
        text=text,
        to_type=typed,
        needs_partial=needs_partial(expected, is_flooded=view.is_flooded and engines is None),
        expected=expected,
        takes=_takes(expected, me.signers if me is not None else ""),
    )


def expected_of(view: FleetView) -> Expect:
    """Return what pairing.toml expects, as the engine of the view says it."""
    return view.expected_names or view.expected


def _issue(view: FleetView, verb: FleetVerb, command: Command, now: float) -> float:
    """Return the time of issue: after every order of the same subjects, so that whoever orders later wins."""
    targets = {one.casefold() for one in command.targets}
    newest = [one.at for one in view.orders if one.scope == command.scope and _share(one.targets, targets)]
    return round(max(now, *(at + LATER_SECONDS for at in newest)) if newest else now, 3)


def _share(targets: tuple[str, ...], others: set[str]) -> bool:
    return not others or not targets or not others.isdisjoint(one.casefold() for one in targets)


def _digest(view: FleetView) -> str:
    known = sorted((one.engine, one.boot, one.state) for one in view.engines if one.status is not FleetStatus.ENDED)
    return sha256(repr(known).encode()).hexdigest()[:32]


def _check(verb: FleetVerb, engines: tuple[str, ...] | None, stands_for: float | None) -> None:
    if engines is not None and len({one.casefold() for one in engines}) != len(engines):
        raise ConfigurationError("an engine was named twice; names are compared without case")
    if engines is not None and len(engines) > MAX_NAMED_ENGINES:
        raise ConfigurationError(f"{len(engines)} engines are named, and {MAX_NAMED_ENGINES} are allowed: order all")
    if stands_for is None:
        return
    if not verb.stands:
        raise ConfigurationError(f"{verb.label} does not stand, so it has no end")
    if not 0 < stands_for <= MAX_STANDING_SECONDS:
        raise ConfigurationError(f"{verb.label} stands for {age(MAX_STANDING_SECONDS)} at most")


def _takes(expected: Expected, mine: str) -> tuple[str, ...]:
    """Return which addressed engines take no signed order, or decide by another file of signers than `mine`."""
    by_reason: dict[str, list[str]] = {}
    for one in expected.present:
        if not one.takes.acts:
            by_reason.setdefault(f"will refuse ({one.takes.value})", []).append(one.engine)
    remarks = [f"{reason}: {_few(them)}" for reason, them in by_reason.items()]
    if others := with_other_signers((one for one in expected.present if one.takes.acts), mine):
        remarks.append(f"may refuse (another file of signers): {_few(list(others))}")
    return tuple(remarks)


def _few(names: list[str]) -> str:
    more = f" and {len(names) - 20} more" if names[20:] else ""
    return repeated(", ".join(names[:20])) + more
