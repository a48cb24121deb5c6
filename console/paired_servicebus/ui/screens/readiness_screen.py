"""The readiness page: whether a failover would work, and why, as `paired check` prints it.

The engine judges (core/operator/failover_readiness.py); the page shows each finding with its verdict, its evidence, the
age of that evidence and the remedy, the worst first. What was not checked is unknown.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Final

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.screen import ModalScreen

from paired_servicebus.core.model.snapshot import Finding, FindingVerdict, Readiness
from paired_servicebus.core.text.number_format import plural
from paired_servicebus.core.text.time_format import age, clock
from paired_servicebus.ui.render.spans import BLANK, Line, Role, Span, cut, fit, line, wrap
from paired_servicebus.ui.state.view import EngineLink, Newest, View
from paired_servicebus.ui.widgets.frame.lines_widget import Lines

LABEL: Final = 12
MAX_ROWS: Final = 8
"""Lines of one sentence."""
LOOKS: Final[dict[FindingVerdict, tuple[str, Role]]] = {
    FindingVerdict.NO: ("✗", Role.FAILED_OVER),
    FindingVerdict.WARN: ("!", Role.SUSPECT),
    FindingVerdict.UNKNOWN: ("○", Role.UNKNOWN),
    FindingVerdict.OK: ("●", Role.HEALTHY),
}
"""Glyph and role of each verdict, the worst first."""


class ReadinessScreen(ModalScreen[None]):
    """Closed by escape, `!` or `q`; arrows scroll."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,exclamation_mark,q,enter", "close", show=False),
        Binding("down,j", "scroll(1)", show=False),
        Binding("up,k", "scroll(-1)", show=False),
        Binding("pagedown,space,ctrl+f,ctrl+d", "scroll(16)", show=False),
        Binding("pageup,ctrl+b,ctrl+u", "scroll(-16)", show=False),
        Binding("end,G", "scroll(1000)", show=False),
        Binding("home,g", "scroll(-1000)", show=False),
    ]
    DEFAULT_CSS = """
    ReadinessScreen { align: center middle; background: $background; }
    ReadinessScreen Findings { width: 100%; max-width: 120; height: 100%; max-height: 40; border: round $role-muted;
                               overflow-y: auto; scrollbar-size-vertical: 1; }
    """

    def __init__(self, newest: Newest) -> None:
        super().__init__()
        self._newest = newest

    def compose(self) -> ComposeResult:
        yield Findings()

    def on_mount(self) -> None:
        self.show(self._newest())

    def show(self, view: View) -> None:
        """Show the newest findings."""
        self.query_one(Findings).show(view)

    def action_close(self) -> None:
        self.dismiss(None)

    def action_scroll(self, lines: int) -> None:
        self.query_one(Findings).scroll_relative(y=lines, animate=False)


class Findings(Lines):
    """The answer, then each finding."""

    def lines(self, view: View, width: int, height: int) -> Sequence[Line]:
        """Return all of it; the scroll bar has a column."""
        width -= 1
        found = view.snapshot.readiness if view.snapshot is not None else None
        head = [_heading(" Would a failover work? (arrows scroll, escape closes)", width), *_lost(view, width)]
        if found is None:
            text = "unknown: this engine has not checked it yet. paired check asks now."
            return [*head, *(line(Span(f" {part}", Role.UNKNOWN)) for part in _wrapped(text, width - 2))]
        findings = [one for verdict in LOOKS for one in found.of(verdict)]
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
    glyph, role = LOOKS[one.verdict]
    read = "not examined" if one.read_at is None else f"read {clock(one.read_at)}, {age(now - one.read_at)} ago"
    head = [Span(f" {glyph} {fit(one.verdict, LABEL - 3)}", role), Span(one.what, Role.TITLE)]
    rows = [Line(cut([*head, Span(f" · {read}", Role.MUTED)], width))]
    rows += [line(" " * LABEL, Span(part)) for part in _wrapped(one.evidence, width - LABEL - 1)]
    todo = f"do: {one.todo}" if one.todo else ""
    return rows + [line(" " * LABEL, Span(part, Role.KEY)) for part in _wrapped(todo, width - LABEL - 1)]


def _lost(view: View, width: int) -> list[Line]:
    """Return that the findings are old, because the engine sends nothing."""
    if view.snapshot is None or view.link not in (EngineLink.SILENT, EngineLink.UNREACHABLE):
        return []
    text = f" ✗ the engine is {view.link} since {clock(view.link_since)}: these findings are old"
    return [line(fit(text, width), ground=Role.STATEMENT)]


def _wrapped(text: str, width: int) -> list[str]:
    return [part for part in wrap(text, width, lines=MAX_ROWS) if part]


def _heading(text: str, width: int) -> Line:
    return Line(cut([Span(text, Role.TITLE)], width))
