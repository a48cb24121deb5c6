"""A list to pick from, over the page: the menu of acts, the command bar, the texts to copy.

Typed words narrow it, unless its choices have keys: then a key picks. What is not possible stays, with its reason.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Final

from textual import events, on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widgets import Input

from paired_servicebus.core.text.untrusted_text import harmless
from paired_servicebus.ui.render.spans import BLANK, Line, Role, Span, cut, fit, line, wrap
from paired_servicebus.ui.state.view import View
from paired_servicebus.ui.widgets.frame.lines_widget import Lines

KEY: Final = 7
MOST_LABEL: Final = 44
ABOUT_ROWS: Final = 2
ALL_ROWS: Final = 1_000_000
FILLERS: Final = frozenset(
    ("a", "an", "are", "did", "do", "does", "has", "have", "how", "i", "is", "it", "me", "my", "of", "on", "show",
     "the", "to", "was", "we", "were")
)  # fmt: skip
"""Words of a question that find nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """One row. words: other words that find it. hidden: listed only when its words are typed. by_tab: done by tab."""

    label: str
    about: str
    do: Callable[[], object]
    key: str = ""
    words: str = ""
    possible: bool = True
    hidden: bool = False
    by_tab: Callable[[], object] | None = None


def markup(text: str) -> str:
    """Escape a text for Textual, which expects markup."""
    return harmless(text).replace("[", r"\[")


def narrowed(choices: Sequence[Choice], typed: str) -> list[Choice]:
    """Return the choices with all the typed words: by their label before by other words; without words, all shown."""
    asked = typed.casefold().replace("?", " ").split()
    words = [word for word in asked if word not in FILLERS] or asked
    if not words:
        return [one for one in choices if not one.hidden]
    found = [one for one in choices if all(word in f"{one.label} {one.words}".casefold() for word in words)]
    return sorted(found, key=lambda one: _distance(one.label.casefold(), words))


def _distance(label: str, words: Sequence[str]) -> int:
    """Return 0 if the label begins with the first word, 1 if it has all words, else 2."""
    if label.startswith(words[0]):
        return 0
    return 1 if all(word in label for word in words) else 2


class PickList(ModalScreen[Choice | None]):
    """Returns the picked choice, or None. `placeholder` empty: nothing is typed, and the choices' keys pick."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "leave", show=False),
        Binding("enter", "pick", show=False),
        Binding("tab", "pick_by_tab", show=False, priority=True),
        Binding("up,ctrl+p", "move(-1)", show=False, priority=True),
        Binding("down,ctrl+n", "move(1)", show=False, priority=True),
        Binding("pageup", "move(-10)", show=False, priority=True),
        Binding("pagedown", "move(10)", show=False, priority=True),
    ]
    DEFAULT_CSS = """
    PickList { align: center top; background: transparent; }
    PickList #box { width: 100%; max-width: 110; height: auto; max-height: 100%; margin-top: 2;
                    border: round $role-key; background: $background; }
    PickList Input { height: 1; width: 100%; border: none; padding: 0 1; background: $panel; color: $foreground; }
    PickList Input:focus { border: none; background: $panel; }
    PickList PickRows { height: 12; }
    PickList PickAbout { height: 3; }
    """

    def __init__(self, title: str, choices: Sequence[Choice], view: View, *, placeholder: str = "") -> None:
        super().__init__()
        self.heading = title
        self._choices = choices
        self._shown_view = view
        self._placeholder = placeholder
        self.typed = ""
        self.listed = narrowed(choices, "")
        self.place = 0

    def compose(self) -> ComposeResult:
        with Vertical(id="box") as box:
            box.border_title = markup(self.heading)
            if self._placeholder:
                yield Input(placeholder=self._placeholder, compact=True)
            yield PickRows(self)
            yield PickAbout(self)

    def on_mount(self) -> None:
        """Stop the blinking cursor, which costs bytes."""
        for field in self.query(Input):
            field.cursor_blink = False
        self._draw()

    def show(self, view: View) -> None:
        """Keep the list as it was opened: its targets stay."""

    def on_key(self, event: events.Key) -> None:
        """Pick by a choice's key, or move as in a page's list; type what came before the input existed."""
        if self._placeholder:
            if event.is_printable and event.character:
                event.stop()
                self.query_one(Input).insert_text_at_cursor(event.character)
            return
        steps = {"j": 1, "k": -1, "g": -ALL_ROWS, "G": ALL_ROWS, "home": -ALL_ROWS, "end": ALL_ROWS}.get(event.key)
        picked = next((one for one in self.listed if one.key and one.key == event.character), None)
        if picked is not None:
            self.dismiss(picked)
        elif steps is not None:
            self.action_move(steps)
        elif event.key in ("x", "q"):
            self.dismiss(None)

    @on(Input.Changed)
    def narrow(self, event: Input.Changed) -> None:
        """List what has the typed words."""
        self.typed, self.place = event.value, 0
        self.listed = narrowed(self._choices, event.value)
        self._draw()

    @on(Input.Submitted)
    def action_pick(self) -> None:
        """Return the selected choice."""
        if self.listed:
            self.dismiss(self.listed[self.place])

    def action_pick_by_tab(self) -> None:
        """Return the selected choice with its other act, if it has one."""
        chosen = self.listed[self.place] if self.listed else None
        if chosen is not None and chosen.by_tab is not None:
            self.dismiss(replace(chosen, do=chosen.by_tab))

    def pick_row(self, place: int) -> None:
        """Return the choice of a clicked row."""
        if place < len(self.listed):
            self.dismiss(self.listed[place])

    def action_leave(self) -> None:
        self.dismiss(None)

    def action_move(self, steps: int) -> None:
        """Select another row."""
        self.place = max(0, min(len(self.listed) - 1, self.place + steps))
        self._draw()

    def _draw(self) -> None:
        for lines in self.query(Lines):
            lines.show(self._shown_view)
        self.query_one(PickRows).keep_in_sight(self.place)


class PickPart(Lines):
    """A part of the list."""

    ages: ClassVar[bool] = False

    def __init__(self, dialog: PickList) -> None:
        super().__init__()
        self._dialog = dialog


class PickRows(PickPart):
    """The rows: key, label, and what it does or why it is not possible."""

    def lines(self, view: View, width: int, height: int) -> Sequence[Line]:
        dialog = self._dialog
        if not dialog.listed:
            return [line(Span(fit(f" nothing found for “{dialog.typed}”", width), Role.SUSPECT))]
        keys = KEY if any(one.key for one in dialog.listed) else 0
        label = min(MOST_LABEL, max(len(one.label) for one in dialog.listed) + 2, max(10, width - keys - 12))
        return [_row(one, keys, label, width, one is dialog.listed[dialog.place]) for one in dialog.listed]

    def on_click(self, event: events.Click) -> None:
        self._dialog.pick_row(event.y + self.scroll_offset.y)

    def on_mouse_scroll_down(self) -> None:
        self._dialog.action_move(1)

    def on_mouse_scroll_up(self) -> None:
        self._dialog.action_move(-1)


def _row(one: Choice, keys: int, label: int, width: int, selected: bool) -> Line:
    quiet = Role.TEXT if one.possible else Role.MUTED
    spans = [
        Span(f" {fit(one.key, keys)}" if keys else " ", Role.KEY if one.possible else Role.MUTED),
        Span(fit(one.label, label - 1) + " ", quiet),
        Span(fit(one.about, max(0, width - 1 - keys - label)), Role.MUTED),
    ]
    return Line(cut(spans, width), Role.SELECTED if selected else None)


class PickAbout(PickPart):
    """The selected choice in full, and the keys."""

    def lines(self, view: View, width: int, height: int) -> Sequence[Line]:
        dialog = self._dialog
        chosen = dialog.listed[dialog.place] if dialog.listed else None
        about = wrap(chosen.about, width - 2, lines=ABOUT_ROWS) if chosen else []
        role = Role.TEXT if chosen and chosen.possible else Role.SUSPECT
        texts = [line(Span(f" {text}", role)) for text in about]
        count = f"{dialog.place + 1} of {len(dialog.listed)}" if dialog.listed else "0"
        keys = line(Span(fit(f" {count} · enter does it · esc leaves", width), Role.MUTED))
        return [*texts, *[BLANK] * (ABOUT_ROWS - len(texts)), keys]
