"""The help: the page's own keys first, then the acts, then all others, from the table of actions; then the words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Final

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.screen import ModalScreen

from paired_servicebus.ui.commands.action_table import CONSOLE_ACTIONS, KEY_LINE, ConsoleAction, by_key
from paired_servicebus.ui.render.spans import BLANK, LOOKS, Line, Role, Span, cut, fit, line, wrap
from paired_servicebus.ui.state.view import Newest, View
from paired_servicebus.ui.widgets.frame.lines_widget import Lines

KEY: Final = 6
LABEL: Final = 20
GLOSSARY: Final = (
    ("backlog", "queues of the secondary that take sends for the primary"),
    ("parked", "a message in a backlog queue, for its destination"),
    ("stranded", "parked in a backlog queue that this pairing does not use"),
    ("syphon", "moves parked messages to their destinations"),
    ("ping", "a test send to the primary while it is failed over"),
    ("not accepting", "a backlog queue that gets no sends now, after failures"),
    ("refused", "a send that raised at its caller: nothing took it"),
    ("dead letter", "a message that was given up, with its reason"),
)
"""Words of the screen; the states have theirs below."""


class HelpScreen(ModalScreen[None]):
    """Closed by escape, `?` or `q`; arrows scroll."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,question_mark,q,enter", "close", show=False),
        Binding("down,j", "scroll(1)", show=False),
        Binding("up,k", "scroll(-1)", show=False),
        Binding("pagedown,space", "scroll(18)", show=False),
        Binding("pageup", "scroll(-18)", show=False),
        Binding("end,G", "scroll(1000)", show=False),
        Binding("home", "scroll(-1000)", show=False),
    ]
    DEFAULT_CSS = """
    HelpScreen { align: center middle; background: $background; }
    HelpScreen HelpText { width: 100%; max-width: 120; height: 100%; max-height: 40; border: round $role-muted;
                          overflow-y: auto; scrollbar-size-vertical: 1; }
    """

    def __init__(self, newest: Newest) -> None:
        super().__init__()
        self._newest = newest

    def compose(self) -> ComposeResult:
        yield HelpText()

    def on_mount(self) -> None:
        self.show(self._newest())

    def show(self, view: View) -> None:
        """Show the keys that work now."""
        self.query_one(HelpText).show(view)

    def action_close(self) -> None:
        self.dismiss(None)

    def action_scroll(self, lines: int) -> None:
        self.query_one(HelpText).scroll_relative(y=lines, animate=False)


class HelpText(Lines):
    """The whole help."""

    ages: ClassVar[bool] = False

    def lines(self, view: View, width: int, height: int) -> Sequence[Line]:
        """Return keys, then states; the scroll bar has a column."""
        width -= 1
        states = [_state_line(look.glyph, state, look.role, look.meaning) for state, look in LOOKS.items()]
        own = set(KEY_LINE[view.page])
        local = [action for action in by_key(view) if not action.changes]
        here = [action for action in local if action.id in own]
        return [
            _heading(f" Keys (arrows and page keys scroll, escape closes): the page {view.page}"),
            *_keys(here, view, width),
            BLANK,
            _heading(" Acts: only these change anything; x lists them for what is selected"),
            *_keys(_acts(), view, width),
            BLANK,
            _heading(" All other keys"),
            *_keys([action for action in local if action.id not in own], view, width),
            BLANK,
            _heading(" Words"),
            *[Line(cut([Span(f" {fit(word, KEY + LABEL)}"), Span(it, Role.MUTED)], width)) for word, it in GLOSSARY],
            BLANK,
            _heading(" States of an entity"),
            *[Line(cut(state, width)) for state in states],
            BLANK,
            Line(cut([Span(" Times are UTC. Grey figures are old. – means unknown.", Role.MUTED)], width)),
        ]


def _acts() -> Sequence[ConsoleAction]:
    """Return one act a label: a key that pauses or resumes has both."""
    acts = {action.label: action for action in reversed(CONSOLE_ACTIONS) if action.changes}
    return tuple(reversed(acts.values()))


def _keys(actions: Sequence[ConsoleAction], view: View, width: int) -> list[Line]:
    return [one for action in actions for one in _key(action, view, width)]


def _heading(text: str) -> Line:
    return Line((Span(text, Role.TITLE),))


def _key(action: ConsoleAction, view: View, width: int) -> list[Line]:
    """Return the key's help, or why it is not possible, in one or two lines."""
    reason = action.why_not(view)
    about = f"{action.help}; asks first" if action.dangerous or action.asks else action.help
    first, *rest = wrap(f"not now: {reason}" if reason else about, width - 1 - KEY - LABEL, lines=2)
    role = Role.SUSPECT if reason else Role.MUTED
    spans = [
        Span(f" {fit(view.keys.label(action), KEY)}", Role.MUTED if reason else Role.KEY),
        Span(fit(action.label, LABEL), Role.MUTED if reason else Role.TEXT),
        Span(first, role),
    ]
    return [Line(cut(spans, width)), *[line(" " * (1 + KEY + LABEL), Span(text, role)) for text in rest if text]]


def _state_line(glyph: str, word: str, role: Role, meaning: str) -> list[Span]:
    return [Span(f" {fit(f'{glyph} {word}', KEY + LABEL)}", role), Span(meaning, Role.MUTED)]
