"""The dialog before an order over the fleet: whom it reaches, who refuses, who is silent, how long it stands.

Everything is recomputed from each view, the number to type too. An order that leaves silent engines out needs a tick
for exactly those engines: if one more falls silent, the tick is gone. Returns the order to sign.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import ClassVar, Final

from textual import events, on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.screen import ModalScreen
from textual.widgets import Button, Input, Static

from paired_servicebus.core.errors import ConfigurationError, PairedError, UnreadableError
from paired_servicebus.core.fleet.fleet_documents import Order, OrderText
from paired_servicebus.core.fleet.orders.order_rules import encode_order_text
from paired_servicebus.core.model.command import Command
from paired_servicebus.core.model.snapshot import Snapshot
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
from paired_servicebus.core.text.number_format import plural
from paired_servicebus.core.text.time_format import clock
from paired_servicebus.core.text.untrusted_text import repeated
from paired_servicebus.settings import seconds_of
from paired_servicebus.ui.commands.action_table import ConsoleAction
from paired_servicebus.ui.engines.order_signer import OrderSigner
from paired_servicebus.ui.render.spans import BLANK, Line, Role, Span, cut, fit, line, rule, spread, wrap
from paired_servicebus.ui.state.view import EngineLink, Newest, View
from paired_servicebus.ui.widgets.frame.lines_widget import Lines

LABEL: Final = 13
ALL: Final = "all"
USUAL: Final = "4h"
MAX_ROWS: Final = 12
"""Lines of a fact: a hundred names."""


class FleetDialog(ModalScreen[Order | None]):
    """Returns the signed order, or None. An order that cannot be signed stays here, with the reason.

    Args:
        signer: the operator's key.
        clock: seconds since the epoch.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "cancel", show=False),
        Binding("right", "other_button(1)", show=False),
        Binding("left", "other_button(-1)", show=False),
        Binding("down", "scroll(1)", show=False),
        Binding("up", "scroll(-1)", show=False),
        Binding("pagedown", "scroll(6)", show=False),
        Binding("pageup", "scroll(-6)", show=False),
    ]
    DEFAULT_CSS = """
    FleetDialog { align: center middle; background: transparent; }
    FleetDialog #box { width: 100%; max-width: 120; height: auto; border: round $state-suspect;
                       background: $background; }
    FleetDialog FleetFacts { height: 11; overflow-y: auto; scrollbar-size-vertical: 1; }
    FleetDialog.-tiny FleetFacts { height: 7; }
    FleetDialog.-tall FleetFacts { height: 24; }
    FleetDialog .row { height: 1; width: 100%; background: $background; }
    FleetDialog .label { width: 13; height: 1; padding: 0 1; color: $role-muted; background: $background; }
    FleetDialog Input { height: 1; width: 1fr; border: none; padding: 0 1; background: $panel; color: $foreground; }
    FleetDialog Input:focus { border: none; background: $panel; text-style: bold; }
    FleetDialog #for { width: 10; }
    FleetDialog #partial { width: auto; margin: 0 1; }
    FleetDialog .hidden { display: none; }
    FleetDialog Needed { height: 3; }
    FleetDialog #buttons { height: 1; width: 100%; align-horizontal: right; background: $background; }
    FleetDialog Button { margin: 0 2 0 0; background: $panel; color: $foreground; text-style: none; }
    FleetDialog Button:focus { background: $foreground; color: $background; text-style: bold; }
    FleetDialog Button:disabled { color: $role-muted; opacity: 100%; text-opacity: 100%; }
    """
    VERTICAL_BREAKPOINTS = [(0, "-tiny"), (24, "-low"), (36, "-tall")]  # noqa: RUF012 - as Textual declares it
    AUTO_FOCUS = "#cancel"

    def __init__(
        self,
        action: ConsoleAction,
        aim: Command,
        newest: Newest,
        *,
        signer: OrderSigner,
        clock: Callable[[], float],
    ) -> None:
        super().__init__()
        assert action.order is not None, "local actions are no orders"
        self.act, self.order, self.aim, self.signer = action, action.order, aim, signer
        self.verb = FLEET_VERBS[action.order.id]
        self._newest = newest
        self._clock = clock
        self._view = newest()
        self._left_out: frozenset[str] = frozenset()
        """The silent engines that the operator ticked."""
        self.draft: OrderDraft | None = None
        self.fault = ""
        """Why there is no draft."""
        self.trouble = ""
        """Why the last one could not be signed."""
        self.is_signing = False

    def compose(self) -> ComposeResult:
        with Vertical(id="box"):
            yield FleetTitle(self)
            yield FleetFacts(self)
            with Horizontal(classes="row"):
                yield Static("Engines", classes="label")
                yield Input(ALL, id="engines", placeholder="an engine's name", select_on_focus=False)
                if self.verb.stands:
                    yield Static("Stands for", classes="label")
                    yield Input(USUAL, id="for", select_on_focus=False)
            with Horizontal(classes="row"):
                yield Static("Why", classes="label")
                needed = self._view.snapshot is not None and self._view.snapshot.require_reason
                about = "a reason is required here" if needed else "optional"
                yield Input(id="why", placeholder=about, select_on_focus=False)
            yield Button("", id="partial", compact=True)
            yield Needed(self)
            with Horizontal(classes="row"):
                yield Static("Type", classes="label")
                yield Input(id="typed", select_on_focus=False)
            with Horizontal(id="buttons"):
                yield Button("Cancel", id="cancel", compact=True)
                yield Button("Order", id="order", compact=True)

    def on_mount(self) -> None:
        for field in self.query(Input):
            field.cursor_blink = False  # each blink costs bytes on a slow link
        self.show(self._newest())

    def show(self, view: View) -> None:
        """Recompute everything from the view; the targets stay, regardless of the selection."""
        self._view = view
        self._draw_up(view.snapshot)
        self._show_partial()
        for lines in self.query(Lines):
            lines.show(view)
        order = self.query_one("#order", Button)
        if order.has_focus and self.needed():
            self.query_one("#cancel", Button).focus()
        order.disabled = bool(self.needed())

    def _draw_up(self, snapshot: Snapshot | None) -> None:
        self.draft, self.fault = None, self.act.why_not_over_fleet(self._view, self.aim)
        if self.fault or snapshot is None:
            return
        try:
            draft = draft_request(snapshot, self.wanted(), now=self._clock())
            encode_order_text(draft.text)
        except (ConfigurationError, UnreadableError) as error:
            self.fault = str(error)
        else:
            self.draft = draft

    def wanted(self) -> FleetRequest:
        """Return the order as the fields have it. Raises ConfigurationError: one cannot be read."""
        named = tuple(filter(None, (one.strip() for one in self._text("#engines").split(","))))
        stands_for = None
        if self.verb.stands:
            stands_for = seconds_of(self._text("#for"))
            if stands_for is None:
                raise ConfigurationError(f"{repeated(self._text('#for'))!r} is no time such as 30m, 4h or 72h")
        if not named:
            raise ConfigurationError("no engine is named; all is all of them")
        command = self._command(self._text("#why"))
        return FleetRequest(command=command, engines=None if named == (ALL,) else named, stands_for=stands_for)

    def _command(self, why: str = "") -> Command:
        return replace(self.aim, why=why)

    def plain(self) -> FleetRequest:
        """Return the order for all engines, while the fields cannot be read."""
        return FleetRequest(command=self._command())

    def _text(self, field: str) -> str:
        return self.query_one(field, Input).value.strip()

    # -- what is still needed --------------------------------------------------------------------------------------

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
    def is_ticked(self) -> bool:
        """Whether the operator left out all engines that are silent now."""
        return self.silent <= self._left_out

    def needed(self) -> tuple[str, ...]:
        """Return what keeps it from being ordered; empty if it can be."""
        if self.draft is None:
            return (self.fault or "the fleet is unknown",)
        needs_reason = self._view.snapshot is not None and self._view.snapshot.require_reason
        return tuple(
            filter(
                None,
                (
                    "" if self.is_ticked else "tick the silent engines (left, space)",
                    "give a reason" if needs_reason and not self._text("#why") else "",
                    "" if typed_right(self._text("#typed"), self.to_type) else f"type {self.to_type}",
                ),
            )
        )

    def _show_partial(self) -> None:
        button, count = self.query_one("#partial", Button), self.silent_count
        button.set_class(not count, "hidden")
        verb = "engine is" if count == 1 else "engines are"
        mark = "x" if self.is_ticked else " "
        label = f"\\[{mark}] order the others, although {count} {verb} silent"
        if str(button.label) != label.replace("\\", ""):
            button.label = label

    @property
    def silent_count(self) -> int:
        """The number of silent engines, those without a name included."""
        return sum(int(one.split()[0]) if one.endswith(" unknown") else 1 for one in self.silent)

    # -- keys --------------------------------------------------------------------------------------------------------

    def on_key(self, event: events.Key) -> None:
        """Tick with space; pass other printable keys from a focused button to the text to type."""
        if not isinstance(self.focused, Button) or not event.is_printable or not event.character:
            return
        event.stop()
        if event.character == " ":
            if self.focused.id == "partial":
                self.tick()
            return
        field = self.query_one("#typed", Input)
        field.focus()
        field.insert_text_at_cursor(event.character)

    def tick(self) -> None:
        """Leave out the engines that are silent now, or take that back."""
        self._left_out = frozenset() if self.is_ticked else self.silent
        self.show(self._view)

    def action_cancel(self) -> None:
        self.dismiss(None)

    def action_other_button(self, way: int) -> None:
        """Move the focus to the next or the previous button, the tick included."""
        if way > 0:
            self.focus_next("Button")
        else:
            self.focus_previous("Button")

    def action_scroll(self, rows: int) -> None:
        """Scroll the facts."""
        self.query_one(FleetFacts).scroll_relative(y=rows, animate=False)

    @on(Input.Changed)
    def changed(self) -> None:
        """Draw the order up again."""
        self.trouble = ""
        self.show(self._view)

    @on(Button.Pressed)
    def pressed(self, event: Button.Pressed) -> None:
        match event.button.id:
            case "partial":
                self.tick()
            case "order":
                self.fire()
            case _:
                self.dismiss(None)

    @on(Input.Submitted)
    def submitted(self, event: Input.Submitted) -> None:
        """Order from the last field; move on from the others."""
        if event.input.id == "typed":
            self.fire()
        else:
            self.focus_next()

    def fire(self) -> None:
        """Return the order, unless something is needed."""
        self.show(self._newest())
        if self.draft is not None and not self.needed() and not self.is_signing:
            self.trouble, self.is_signing = "", True
            self.run_worker(self._sign(self.draft.confirm(self.draft.to_type)), group="signing", exclusive=True)
            self.show(self._view)

    async def _sign(self, text: OrderText) -> None:
        signed = encode_order_text(text)
        try:
            signature = await self.signer.sign(signed)
        except PairedError as error:
            self.trouble, self.is_signing = str(error), False
            self.show(self._view)
        else:
            self.dismiss(Order(text=text, signed=signed, signature=signature))


class FleetPart(Lines):
    """A part of the dialog."""

    ages: ClassVar[bool] = False  # its text contains the age of its figures

    def __init__(self, dialog: FleetDialog) -> None:
        super().__init__()
        self.dialog = dialog


class FleetTitle(FleetPart):
    """The reach, the order and its targets."""

    def lines(self, view: View, width: int, height: int) -> Sequence[Line]:
        hidden = self.dialog.query_one(FleetFacts).max_scroll_y > 0
        return (
            spread([Span(f" {self._title(view)}", Role.SUSPECT)], [Span("↑ ↓ " if hidden else "", Role.MUTED)], width),
        )

    def _title(self, view: View) -> str:
        fleet = view.snapshot.fleet if view.snapshot is not None else None
        try:
            wanted = self.dialog.wanted()
        except ConfigurationError:
            wanted = self.dialog.plain()
        return fleet_title(wanted, fleet) if fleet is not None else "The fleet"


class FleetFacts(FleetPart):
    """The facts, then a row for each engine. They scroll if they have no room."""

    def lines(self, view: View, width: int, height: int) -> Sequence[Line]:
        draft, snapshot = self.dialog.draft, view.snapshot
        if draft is None or snapshot is None or snapshot.fleet is None:
            return (BLANK,)
        wanted = self.dialog.wanted()
        facts = (*fleet_facts(snapshot, wanted, draft, now=view.now), ("Signed by", self.dialog.signer.key))
        lines: list[Line] = []
        for label, text in facts:
            role = Role.SUSPECT if label in ("Refuses", "Not reached") else Role.TEXT
            for number, part in enumerate(wrap(text, width - LABEL - 2, lines=MAX_ROWS)):
                if part or number == 0:
                    head = Span(f" {label if number == 0 else '':<{LABEL - 1}}", Role.MUTED)
                    lines.append(line(head, Span(part, role)))
        lines.append(rule("engine by engine: state, all its sends/s", width - 1))
        for one in engine_evidence(snapshot.fleet, wanted, draft, view.now):
            spans = [Span(f" {one.glyph} {fit(one.engine, 16)} {fit(one.state, 23)} {fit(one.sends, 9, 'right')}  ")]
            lines.append(Line(cut([*spans, Span(one.remark, Role.SUSPECT)], width - 1)))
        return lines


class Needed(FleetPart):
    """What is still needed, or why it cannot be ordered."""

    def lines(self, view: View, width: int, height: int) -> Sequence[Line]:
        text, role = self._sentence(view)
        return [line(Span(f" {part}", role)) for part in wrap(text, width - 2, lines=height)]

    def _sentence(self, view: View) -> tuple[str, Role]:
        if self.dialog.draft is None:
            return f"Cannot be ordered now: {self.dialog.fault or 'the fleet is unknown'}.", Role.FAILED_OVER
        if view.link is EngineLink.SILENT and view.snapshot:
            return f"The engine is silent: all this is of {clock(view.snapshot.at)}.", Role.FAILED_OVER
        if self.dialog.is_signing:
            return f"Signing with {self.dialog.signer.key}: a token may wait for a touch. Escape cancels.", Role.SUSPECT
        if self.dialog.trouble:
            return f"Nothing was ordered: {self.dialog.trouble}.", Role.FAILED_OVER
        reach = self.dialog.draft.text.reach
        engines = plural(reach, "engine") if reach else "all engines"
        if needed := self.dialog.needed():
            return f"To order {engines}: {', '.join(needed)}, then enter. Escape cancels.", Role.MUTED
        later = f", {self.dialog.silent_count} of them later" if self.dialog.silent else ""
        return f"Enter orders {engines}{later}. Escape cancels.", Role.SUSPECT
