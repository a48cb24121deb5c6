"""Pages of text over the screen: the help, and whether a failover would work. Arrows and page keys scroll."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Final

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.screen import ModalScreen

from paired_servicebus.core.model.snapshot import Finding, FindingVerdict, Readiness
from paired_servicebus.core.text.number_format import plural
from paired_servicebus.core.text.time_format import age, clock
from paired_servicebus.ui.commands.action_table import CONSOLE_ACTIONS, KEY_LINE, ConsoleAction, by_key
from paired_servicebus.ui.render.spans import BLANK, LOOKS, Line, Role, Span, cut, fit, line, paragraph, wrap
from paired_servicebus.ui.state.view import EngineLink, Newest, View
from paired_servicebus.ui.widgets.frame.lines_widget import Lines


class TextScreen(ModalScreen[None]):
    """A text as long as it is, over the page."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q,enter,question_mark,exclamation_mark", "close", show=False),
        Binding("down,j", "scroll(1)", show=False),
        Binding("up,k", "scroll(-1)", show=False),
        Binding("pagedown,space,ctrl+f,ctrl+d", "scroll(16)", show=False),
        Binding("pageup,ctrl+b,ctrl+u", "scroll(-16)", show=False),
        Binding("end,G", "scroll(1000)", show=False),
        Binding("home,g", "scroll(-1000)", show=False),
    ]
    DEFAULT_CSS = """
    TextScreen { align: center middle; background: $background; }
    TextScreen Lines { width: 100%; max-width: 120; height: 100%; max-height: 40; border: round $role-muted;
                       overflow-y: auto; scrollbar-size-vertical: 1; }
    """

    def __init__(self, newest: Newest, text: Lines) -> None:
        super().__init__()
        self._newest = newest
        self._text = text

    def compose(self) -> ComposeResult:
        yield self._text

    def on_mount(self) -> None:
        self.show(self._newest())

    def show(self, view: View) -> None:
        """Show the text as it is now."""
        self._text.show(view)

    def action_close(self) -> None:
        self.dismiss(None)

    def action_scroll(self, lines: int) -> None:
        self._text.scroll_relative(y=lines, animate=False)


# The help: the page's own keys first, then the acts, then all others, from the table of actions; then the words.

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


class HelpText(Lines):
    """The whole help."""

    ages: ClassVar[bool] = False

    def lines(self, view: View, width: int, height: int) -> Sequence[Line]:
        """Return keys, then states; the scroll bar has a column."""
        width -= 1
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
            *[_meaning(word, Role.TEXT, it, width) for word, it in GLOSSARY],
            BLANK,
            _heading(" States of an entity"),
            *[_meaning(f"{look.glyph} {state}", look.role, look.meaning, width) for state, look in LOOKS.items()],
            BLANK,
            Line(cut([Span(" Times are UTC. Grey figures are old. – means unknown.", Role.MUTED)], width)),
        ]


def _meaning(word: str, role: Role, text: str, width: int) -> Line:
    return Line(cut([Span(f" {fit(word, KEY + LABEL)}", role), Span(text, Role.MUTED)], width))


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
    first, *rest = wrap(f"not now: {reason}" if reason else about, width - 1 - KEY - LABEL, lines=2) or [""]
    role = Role.SUSPECT if reason else Role.MUTED
    spans = [
        Span(f" {fit(action.key(view.keys), KEY)}", Role.MUTED if reason else Role.KEY),
        Span(fit(action.label, LABEL), Role.MUTED if reason else Role.TEXT),
        Span(first, role),
    ]
    return [Line(cut(spans, width)), *[line(" " * (1 + KEY + LABEL), Span(text, role)) for text in rest]]


# The readiness page: whether a failover would work, and why, as `paired check` prints it.
#
# The engine judges (core/operator/failover_readiness.py). The page shows each finding with its verdict, its evidence,
# the age of that evidence and the remedy, the worst first. What was not checked is unknown.

FINDING_LABEL: Final = 12
FINDING_LOOKS: Final[dict[FindingVerdict, tuple[str, Role]]] = {
    FindingVerdict.NO: ("✗", Role.FAILED_OVER),
    FindingVerdict.WARN: ("!", Role.SUSPECT),
    FindingVerdict.UNKNOWN: ("○", Role.UNKNOWN),
    FindingVerdict.OK: ("●", Role.HEALTHY),
}
"""Glyph and role of each verdict, the worst first."""


class Findings(Lines):
    """The answer, then each finding."""

    def lines(self, view: View, width: int, height: int) -> Sequence[Line]:
        """Return all of it; the scroll bar has a column."""
        width -= 1
        found = view.snapshot.readiness if view.snapshot is not None else None
        head = [_heading(" Would a failover work? (arrows scroll, escape closes)"), *_lost(view, width)]
        if found is None:
            text = "unknown: this engine has not checked it yet. paired check asks now."
            return [*head, *paragraph(text, width, Role.UNKNOWN)]
        findings = [one for verdict in FINDING_LOOKS for one in found.of(verdict)]
        rows = [row for one in findings for row in (*_finding(one, view.now, width), BLANK)]
        return [*head, _answer(found, view.now, width), BLANK, *rows]


def _answer(found: Readiness, now: float, width: int) -> Line:
    """Return the answer in one line, with the number of each verdict and the age of the check."""
    if not found.ready:
        text, role = "✗ no", Role.FAILED_OVER
    elif found.of(FindingVerdict.WARN):
        text, role = "! yes", Role.SUSPECT
    elif len(found.of(FindingVerdict.OK)) == len(found.findings):
        text, role = "● yes", Role.HEALTHY
    else:
        text, role = "○ yes, as far as it is known", Role.UNKNOWN
    counts = (
        plural(len(found.of(FindingVerdict.NO)), "obstacle"),
        plural(len(found.of(FindingVerdict.WARN)), "warning"),
        f"{len(found.of(FindingVerdict.UNKNOWN))} unknown",
    )
    shown = "".join(f", {one}" for one in counts if not one.startswith("0 "))
    checked = f" · checked {clock(found.at)}, {age(now - found.at)} ago"
    return Line(cut([Span(f" {text}", role), Span(shown), Span(checked, Role.MUTED)], width))


def _finding(one: Finding, now: float, width: int) -> list[Line]:
    """Return verdict and name, the evidence with its age, and the remedy."""
    glyph, role = FINDING_LOOKS[one.verdict]
    read = "not examined" if one.read_at is None else f"read {clock(one.read_at)}, {age(now - one.read_at)} ago"
    head = [Span(f" {glyph} {fit(one.verdict, FINDING_LABEL - 3)}", role), Span(one.what, Role.TITLE)]
    rows = [Line(cut([*head, Span(f" · {read}", Role.MUTED)], width))]
    rows += paragraph(one.evidence, width, indent=FINDING_LABEL)
    return rows + paragraph(f"do: {one.todo}" if one.todo else "", width, Role.KEY, indent=FINDING_LABEL)


def _lost(view: View, width: int) -> list[Line]:
    """Return that the findings are old, because the engine sends nothing."""
    if view.snapshot is None or view.link not in (EngineLink.SILENT, EngineLink.UNREACHABLE):
        return []
    text = f" ✗ the engine is {view.link} since {clock(view.link_since)}: these findings are old"
    return [line(fit(text, width), ground=Role.STATEMENT)]
