"""What is asked before an order: who does it, yes or no, and the two orders that want a text typed.

Each is the one dialog (question_dialog.py) with its own sentences. The engine armed a dangerous order before its
dialog opened, so what it refuses now is known; an arming that ran out meanwhile is renewed when it is fired
(dispatch.py). An order over the fleet that leaves silent engines out needs a tick for exactly those engines: if one
more falls silent, the tick is gone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from enum import StrEnum
from typing import ClassVar, Final

from paired_servicebus.core.errors import ConfigurationError, PairedError, UnreadableError
from paired_servicebus.core.fleet.fleet_documents import Order, OrderText
from paired_servicebus.core.fleet.orders.order_rules import encode_order_text
from paired_servicebus.core.model.command import Command
from paired_servicebus.core.operator import fleet_sentences as words
from paired_servicebus.core.operator.action_row import spelled_out, typed_right
from paired_servicebus.core.operator.actions import FLEET_VERBS
from paired_servicebus.core.operator.fleet_question import (
    FleetRequest,
    OrderDraft,
    draft_request,
    engine_evidence,
    fleet_facts,
    fleet_title,
    silent_names,
)
from paired_servicebus.core.operator.targets import names_of
from paired_servicebus.core.text import untrusted_text
from paired_servicebus.core.text.number_format import plural, rate
from paired_servicebus.core.text.time_format import clock
from paired_servicebus.core.text.untrusted_text import harmless, repeated
from paired_servicebus.engine.control.protocol import Armed
from paired_servicebus.settings import seconds_of
from paired_servicebus.ui.commands.action_table import ConsoleAction, expectation, facts, only_here, question, title
from paired_servicebus.ui.engines.feed import EngineReply, OrderSigner
from paired_servicebus.ui.render.spans import Line, Role, Span, cut, fit, rule
from paired_servicebus.ui.screens.question_dialog import Fact, Field, QuestionDialog, Sheet
from paired_servicebus.ui.state.row_order import pairing_in
from paired_servicebus.ui.state.view import EngineLink, Neighbour, Newest, View

LONGEST_LABEL: Final = 24
NOTHING: Final = Span("", Role.MUTED)


def reason_field(view: View) -> Field:
    """Return the field for the order's reason."""
    needed = _needs_reason(view)
    hint = "a reason is required here" if needed else "optional"
    return Field("why", "Why, required" if needed else "Why (optional)", hint=hint)


def _needs_reason(view: View) -> bool:
    return view.snapshot is not None and view.snapshot.require_reason


def _silent(view: View) -> Span | None:
    """Return that the figures are old; None: they are not."""
    if view.link is not EngineLink.SILENT or view.snapshot is None:
        return None
    return Span(f"The engine is silent: all this is of {clock(view.snapshot.at)}.", Role.FAILED_OVER)


# The question before an order that the fleet could have too: who does it, the engine on screen or all engines.
#
# Neither answer does anything yet: the next question names the reach in its first line, and wants another text typed.
# The smallest reach that is possible is in focus.


class Reach(StrEnum):
    """Who does it."""

    HERE = "here"
    FLEET = "fleet"


class ReachDialog(QuestionDialog[Reach]):
    """Returns the reach, or None. cannot_sign: why this console cannot sign orders of the fleet; empty: it can."""

    def __init__(self, action: ConsoleAction, aim: Command, newest: Newest, *, cannot_sign: str) -> None:
        snapshot = newest().snapshot
        known = len(words.present(snapshot.fleet)) if snapshot is not None and snapshot.fleet is not None else 0
        fleet = f"The fleet, {plural(known, 'engine')}"
        super().__init__(newest, (), ((Reach.HERE, "Only this engine"), (Reach.FLEET, fleet)))
        self.act, self.aim = action, aim
        self._cannot_sign = cannot_sign
        possible = [reach for reach in Reach if not self._why_not(reach, newest())]
        self.first_focus = possible[0].value if possible else self.first_focus

    def _why_not(self, reach: Reach, view: View) -> str:
        """Return why that cannot be chosen now; empty if it can."""
        if reach is Reach.HERE:
            return self.act.why_not_here(view, self.aim)
        return self.act.why_not_over_fleet(view, self.aim) or self._cannot_sign

    def sheet(self, view: View) -> Sheet:
        reasons: dict[str, str] = {reach: self._why_not(reach, view) for reach in Reach}
        return Sheet(
            title=f"{self.act.label.capitalize()} {names_of(self.aim)}".rstrip() + ": who does it?",
            facts=[
                Fact(label, f"not possible: {reasons[reach]}", Role.MUTED) if reasons[reach] else Fact(label, text)
                for reach, label, text in (
                    (Reach.HERE, "This engine", _here(view)),
                    (Reach.FLEET, "The fleet", _fleet(view)),
                )
            ],
            note=NOTHING,
            why_not=reasons,
        )

    def answer(self, chosen: str) -> None:
        self.dismiss(Reach(chosen))


def _here(view: View) -> str:
    snapshot = view.snapshot
    if snapshot is None or snapshot.fleet is None:
        return ""
    sends = rate(sum(one.sends_per_second for one in snapshot.entities))
    others = len(words.present(snapshot.fleet)) - 1
    marked = f" and {plural(len(view.chosen), 'marked engine')} of this machine" if view.chosen else ""
    rest = f"; {plural(others, 'other engine')} of the fleet go on as they are" if others > 0 else ""
    return f"{untrusted_text.name(snapshot.fleet.me)}{marked} alone, {sends} sends/s{rest}"


def _fleet(view: View) -> str:
    if view.snapshot is None or view.snapshot.fleet is None:
        return ""
    fleet = view.snapshot.fleet
    silent = words.silent_part(fleet, view.now)
    return "; ".join((words.engines_part(fleet)[0], *silent[:1]))


# Yes or no, before an order that stops something.


class ConfirmDialog(QuestionDialog[Command]):
    """Returns the command with the chosen targets and the reason, or None."""

    def __init__(self, action: ConsoleAction, aim: Command, newest: Newest) -> None:
        view = newest()
        assert view.snapshot is not None, "without one no command is possible"
        self.act, self.aim = action, aim
        choices = question(action, aim, view.snapshot, view.keys).choices
        self._aims = {f"choice-{number}": one.aim for number, one in enumerate(choices)}
        labels = [harmless(one.label)[:LONGEST_LABEL] for one in choices]
        super().__init__(newest, (reason_field(view),), tuple(zip(self._aims, labels, strict=True)))

    def sheet(self, view: View) -> Sheet:
        assert view.snapshot is not None, "without one no command is possible"
        asked = question(self.act, self.aim, view.snapshot, view.keys)
        missing = "a reason is required here" if _needs_reason(view) and not self.text("why") else ""
        impossible = self.act.why_not_here(view, self.aim)
        return Sheet(
            title=f"{only_here(self.act.order, view.snapshot)}{asked.title}?",
            facts=[Fact("", text) for text in asked.sentences],
            note=Span(f"Not possible now: {impossible}." if impossible else "", Role.FAILED_OVER),
            why_not={name: self.act.why_not_here(view, aim) or missing for name, aim in self._aims.items()},
        )

    def answer(self, chosen: str) -> None:
        self.dismiss(replace(self._aims[chosen], why=self.text("why")))


# A dangerous order to engines of this machine: armed, with its consequences; its target's name is typed.


class ArmDialog(QuestionDialog[Command]):
    """Armed, not fired. Returns the command and its reason, or None. Without `others`: of the engine on screen."""

    typed_into: ClassVar[str] = "typed"

    def __init__(
        self, action: ConsoleAction, aim: Command, armed: Armed, newest: Newest, others: Sequence[EngineReply] = ()
    ) -> None:
        fields = (Field("typed", "Type it here"), reason_field(newest()))
        super().__init__(newest, fields, (("fire", action.label.capitalize()),))
        self.act, self.aim, self.armed, self.others = action, aim, armed, tuple(others)
        self.to_type = text_to_type(action, aim, armed, others)
        self.complaint = ""
        """Why the last enter did nothing; empty after the next letter."""

    def refused(self, why: str) -> None:
        self.complaint = why

    def sheet(self, view: View) -> Sheet:
        asked = title(self.act.id, self.act.label.capitalize(), view.snapshot, self.aim, view.pairing)
        left_out = [one for one in view.neighbours if one.name not in {other.name for other in self.others}]
        table = facts(self.act.id, view.snapshot, self.aim, view.keys, self._reached(view), left_out)
        return Sheet(
            title=asked,
            statement=unreached_statement(self.others),
            expected=expectation(self.act.id, view.snapshot, self.aim),
            facts=[Fact(label, text) for label, text in table],
            note=self._note(view),
            why_not={"fire": self.act.why_not_here(view, self.aim) or self._not_typed(view)},
        )

    def _reached(self, view: View) -> list[Neighbour]:
        """Return the present neighbours; those that did not arm it are excluded."""
        now = {one.name: one for one in view.neighbours}
        return [
            now.get(one.name, Neighbour(one.name, "gone")) if one.armed is not None else Neighbour(one.name, one.text)
            for one in self.others
        ]

    def _not_typed(self, view: View) -> str:
        typed = self.text("typed")
        if not typed_right(typed, self.to_type):
            return f"{repeated(typed)!r} is not {self.to_type!r}" if typed else f"type {self.to_type} first"
        return "type a reason" if _needs_reason(view) and not self.text("why") else ""

    def _note(self, view: View) -> Span:
        if reason := self.act.why_not_here(view, self.aim):
            return Span(f"Not possible now: {reason}.", Role.FAILED_OVER)
        if old := _silent(view):
            return old
        if self.complaint:
            return Span(f"Nothing was ordered: {self.complaint}.", Role.FAILED_OVER)
        return Span(f"Type {self.to_type} and enter; escape cancels.", Role.MUTED)

    def answer(self, chosen: str) -> None:
        self.dismiss(replace(self.aim, why=self.text("why")))


def text_to_type(action: ConsoleAction, aim: Command, armed: Armed, others: Sequence[EngineReply]) -> str:
    """Return the text to type, never one character: what every engine asks for, or else the number of engines."""
    wanted = {armed.to_type, *(one.armed.to_type for one in others if one.armed is not None)}
    if len(wanted) > 1:
        return plural(1 + sum(one.armed is not None for one in others), "engine")
    assert action.order is not None, "local actions are not armed"
    return spelled_out(action.order, aim, asked=armed.to_type)


def unreached_statement(others: Sequence[EngineReply]) -> str:
    """Return the statement about unreachable engines; empty if it reaches all."""
    missing = [f"{one.name}: {one.text}" for one in others if one.armed is None]
    return f"{len(missing)} of {1 + len(others)} engines not reached: {'; '.join(missing)}" if missing else ""


# An order over the fleet: whom it reaches, who refuses, who is silent, how long it stands; the number is typed.

ALL: Final = "all"
USUAL: Final = "4h"


class FleetDialog(QuestionDialog[Order]):
    """Returns the signed order, or None. An order that cannot be signed stays here, with the reason.

    Args:
        signer: the operator's key.
        clock: seconds since the epoch.
    """

    typed_into: ClassVar[str] = "typed"

    def __init__(
        self,
        action: ConsoleAction,
        aim: Command,
        newest: Newest,
        *,
        signer: OrderSigner,
        clock: Callable[[], float],
    ) -> None:
        assert action.order is not None, "local actions are no orders"
        self.act, self.order, self.aim, self.signer = action, action.order, aim, signer
        self.verb = FLEET_VERBS[action.order.id]
        stands = (Field("for", "Stands for", USUAL, width=10),) if self.verb.stands else ()
        named = Field("engines", "Engines", ALL, hint="an engine's name")
        fields = (*stands, named, reason_field(newest()), Field("typed", "Type it here"))
        super().__init__(newest, fields, (("order", "Order"),))
        self._clock = clock
        self._left_out: frozenset[str] = frozenset()
        """The silent engines that the operator ticked."""
        self.draft: OrderDraft | None = None
        self.fault = ""
        """Why there is no draft."""
        self.trouble = ""
        """Why the last one could not be signed."""
        self.is_signing = False

    def sheet(self, view: View) -> Sheet:
        self._draw_up(view)
        silent, number = self.silent, self.silent_count
        asked, rows = self._facts(view)
        return Sheet(
            title=self._title(view),
            facts=asked,
            rows=rows,
            note=self._note(view),
            why_not={"order": "; ".join(self.needed(view))},
            tick=f"order the others, although {number} engine{' is' if number == 1 else 's are'} silent"
            if number
            else "",
            is_ticked=silent <= self._left_out,
        )

    def _draw_up(self, view: View) -> None:
        self.draft, self.fault = None, self.act.why_not_over_fleet(view, self.aim)
        if self.fault or view.snapshot is None:
            return
        try:
            draft = draft_request(view.snapshot, self.wanted(), now=self._clock())
            encode_order_text(draft.text)
        except (ConfigurationError, UnreadableError) as error:
            self.fault = str(error)
        else:
            self.draft = draft

    def wanted(self) -> FleetRequest:
        """Return the order as the fields have it. Raises ConfigurationError: one cannot be read."""
        named = tuple(filter(None, (one.strip() for one in self.text("engines").split(","))))
        stands_for = None
        if self.verb.stands:
            stands_for = seconds_of(self.text("for"))
            if stands_for is None:
                raise ConfigurationError(f"{repeated(self.text('for'))!r} is no time such as 30m, 4h or 72h")
        if not named:
            raise ConfigurationError("no engine is named; all is all of them")
        command = self._command(self.text("why"))
        return FleetRequest(command=command, engines=None if named == (ALL,) else named, stands_for=stands_for)

    def _command(self, why: str = "") -> Command:
        return replace(self.aim, why=why)

    def _title(self, view: View) -> str:
        fleet = view.snapshot.fleet if view.snapshot is not None else None
        try:
            wanted = self.wanted()
        except ConfigurationError:
            wanted = FleetRequest(command=self._command())  # for all engines, while the fields cannot be read
        return fleet_title(wanted, fleet) if fleet is not None else "The fleet"

    def _facts(self, view: View) -> tuple[Sequence[Fact], Callable[[int], Sequence[Line]]]:
        draft, snapshot = self.draft, view.snapshot
        if draft is None or snapshot is None or (fleet := pairing_in(snapshot).fleet) is None:
            return (), lambda _width: ()
        wanted = self.wanted()
        shown = [
            Fact(label, text, Role.SUSPECT if label in ("Refuses", "Not reached") else Role.TEXT)
            for label, text in fleet_facts(snapshot, wanted, draft, now=view.now)
        ]

        def rows(width: int) -> Sequence[Line]:
            drawn = [rule("engine by engine: state, all its sends/s", width)]
            for one in engine_evidence(fleet, wanted, draft, view.now):
                figures = f" {one.glyph} {fit(one.engine, 16)} {fit(one.state, 23)} {fit(one.sends, 9, 'right')}  "
                drawn.append(Line(cut([Span(figures), Span(one.remark, Role.SUSPECT)], width)))
            return drawn

        return [*shown, Fact("Signed by", self.signer.key)], rows

    @property
    def to_type(self) -> str:
        """The text to type: the number of engines with the noun, or the target's name if it is one engine."""
        if self.draft is None:
            return ""
        asked, count = self.draft.to_type, self.draft.text.reach
        if count > 1:
            return plural(count, "engine")
        return spelled_out(self.order, self.aim, asked=asked)

    @property
    def silent(self) -> frozenset[str]:
        """The addressed engines that are silent."""
        return frozenset() if self.draft is None else silent_names(self.draft)

    @property
    def silent_count(self) -> int:
        """The number of silent engines, those without a name included."""
        return sum(int(one.split()[0]) if one.endswith(" unknown") else 1 for one in self.silent)

    def needed(self, view: View) -> tuple[str, ...]:
        """Return what keeps it from being ordered; empty if it can be."""
        if self.draft is None:
            return (self.fault or "the fleet is unknown",)
        needs = (
            "" if self.silent <= self._left_out else "tick the silent engines (left, space)",
            "give a reason" if _needs_reason(view) and not self.text("why") else "",
            "" if typed_right(self.text("typed"), self.to_type) else f"type {self.to_type}",
        )
        return tuple(filter(None, needs))

    def _note(self, view: View) -> Span:
        if self.draft is None:
            return Span(f"Cannot be ordered now: {self.fault or 'the fleet is unknown'}.", Role.FAILED_OVER)
        if old := _silent(view):
            return old
        if self.is_signing:
            text = f"Signing with {self.signer.key}: a token may wait for a touch. Escape cancels."
            return Span(text, Role.SUSPECT)
        if self.trouble:
            return Span(f"Nothing was ordered: {self.trouble}.", Role.FAILED_OVER)
        reach = self.draft.text.reach
        engines = plural(reach, "engine") if reach else "all engines"
        if needed := self.needed(view):
            return Span(f"To order {engines}: {', '.join(needed)}, then enter. Escape cancels.", Role.MUTED)
        later = f", {self.silent_count} of them later" if self.silent else ""
        return Span(f"Enter orders {engines}{later}. Escape cancels.", Role.SUSPECT)

    def tick(self) -> None:
        """Leave out the engines that are silent now, or take that back."""
        self._left_out = frozenset() if self.silent <= self._left_out else self.silent

    def refused(self, why: str) -> None:
        self.trouble = ""

    def answer(self, chosen: str) -> None:
        if self.draft is not None and not self.is_signing:
            self.is_signing = True
            self.run_worker(self._sign(self.draft.confirm(self.draft.to_type)), group="signing", exclusive=True)
            self.show(self.view)

    async def _sign(self, text: OrderText) -> None:
        signed = encode_order_text(text)
        try:
            signature = await self.signer.sign(signed)
        except PairedError as error:
            self.trouble, self.is_signing = str(error), False
            self.show(self.view)
        else:
            self.dismiss(Order(text=text, signed=signed, signature=signature))
