"""The steps until the first figures, in the place of the entities: what is over, what is waited for and since when."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from paired_servicebus.core.text.time_format import age
from paired_servicebus.ui.render.spans import Line, Role, Span, line, wrap
from paired_servicebus.ui.state.view import EngineLink, View

NAME: Final = 16
REASON_LINES: Final = 3
_LOOKS: Final = {True: ("✓", Role.HEALTHY), None: ("…", Role.TEXT), False: ("·", Role.MUTED)}


class _Step(NamedTuple):
    """One step. over: whether it is over; None: it is under way; False: it has not begun."""

    name: str
    text: str
    over: bool | None


def attach_lines(view: View, width: int) -> list[Line]:
    """Return the steps of a screen without figures."""
    return [drawn for step in _steps(view) for drawn in _lines(step, width)]


def _steps(view: View) -> Iterator[_Step]:
    answered = view.answered_at is not None
    for place, text in enumerate(view.start_steps):
        yield _Step("start", text, True if answered or place < len(view.start_steps) - 1 else None)
    if view.answered_at is not None:
        waited = _for(view.clock - view.answered_at)
        yield _Step("engine", "answers", True)
        yield _Step("first figures", f"asked for{waited}; an engine that starts reads its queues first", None)
        return
    if view.start_steps:
        yield _Step("engine", "answers once it runs", False)
    elif view.link is EngineLink.UNREACHABLE:
        yield _Step("engine", f"no answer{_for(view.clock - view.link_since)}: {view.link_reason}", None)
    else:
        yield _Step("engine", f"connecting to the engine of {view.pairing}", None)
    yield _Step("first figures", "come with its answer", False)


def _for(seconds: float) -> str:
    return f" for {age(seconds)}" if seconds >= 1 else ""


def _lines(step: _Step, width: int) -> Iterator[Line]:
    glyph, role = _LOOKS[step.over]
    texts = [text for text in wrap(step.text, width - NAME - 8, lines=REASON_LINES) if text]
    for place, text in enumerate(texts):
        head = f"   {glyph} {step.name:<{NAME}}" if place == 0 else " " * (NAME + 5)
        yield line(Span(head, role), Span(text, Role.MUTED if step.over is False else Role.TEXT))
