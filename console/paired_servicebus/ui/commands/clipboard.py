"""Texts to copy from a page into the terminal's clipboard (OSC 52, which SSH carries), or into a new file.

They are the selected row, its name and its command lines, the last answer, and the timeline as listed. No text can
move a cursor, end a line or contain a secret. Terminals do not confirm OSC 52; tmux needs `set-clipboard on`.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, NamedTuple

from paired_servicebus.core.operator.actions import ACTIONS
from paired_servicebus.core.operator.order_checks import to_type
from paired_servicebus.core.operator.targets import Scope, entity_at, queue_at
from paired_servicebus.core.text.masking import masked
from paired_servicebus.core.text.number_format import plural, rate
from paired_servicebus.core.text.untrusted_text import harmless
from paired_servicebus.ui.state import selection
from paired_servicebus.ui.state.log_entries import LogEntry
from paired_servicebus.ui.state.view import Page, View

MAX_CLIPBOARD_BYTES: Final = 74_994
"""Bytes that every clipboard accepts: terminals limit base64 to some 100,000."""


class CopyItem(NamedTuple):
    """A label and the text."""

    label: str
    text: str


Found = tuple[str, *tuple[str, ...]]
"""A label and the text's lines; a line break within one of them is untrusted."""


def copy_items(view: View) -> tuple[CopyItem, ...]:
    """Return the texts to copy from this page now."""
    found = [*_selected(view), *_story(view), *_last(view)]
    return tuple(
        CopyItem(harmless(label), "\n".join(harmless(masked(line)) for line in lines)) for label, *lines in found
    )


def write_new(path: Path, text: str) -> Path:
    """Write a new file and return its path.

    Raises:
        OSError: it exists, or cannot be written.
    """
    path = path.expanduser().absolute()
    with path.open("x", encoding="utf-8") as file:
        file.write(text + "\n")
    return path


def file_name(piece: CopyItem, at: float) -> str:
    """Return a file name for the item that sorts by time and needs no quoting."""
    label = "-".join("".join(c if c.isascii() and c.isalnum() else " " for c in piece.label).split()[:4])
    return f"paired-{datetime.fromtimestamp(at, UTC):%Y%m%dT%H%M%SZ}-{label}.txt"


# -- what is selected ------------------------------------------------------------------------------------------------


def _selected(view: View) -> Iterator[Found]:
    if view.page is Page.BACKLOG and view.on_unused and view.unused:
        yield from _unused(view)
    elif view.page is Page.BACKLOG and view.queue:
        yield from _queue(view)
    elif view.page in (Page.PAIRING, Page.ENTITY):
        yield from _entities(view)


def _entities(view: View) -> Iterator[Found]:
    marked = view.marked if view.page is Page.PAIRING else ()  # the entity page ignores marks
    paths = marked or ((view.selected,) if view.selected else ())
    found = [one for path in paths if view.snapshot and (one := entity_at(view.snapshot, path)) is not None]
    if not found:
        return
    name = found[0].path if len(found) == 1 else plural(len(found), "entity", "entities")
    yield (f"name of {name}", shlex.join(one.path for one in found) if len(found) > 1 else found[0].path)
    rows = [
        f"{one.path}: {one.state} since {_time(one.since)}; {one.route}, {rate(one.sends_per_second)}/s; {one.why}"
        for one in found
    ]
    yield (f"row of {name}", *rows)
    yield from _verbs(view, Scope.ENTITY, tuple(one.path for one in found))


def _queue(view: View) -> Iterator[Found]:
    one = queue_at(view.snapshot, view.queue) if view.snapshot else None
    if one is None:
        return
    yield (f"name of backlog/{one.index}", one.path)
    counts = "unknown" if one.depth is None else f"{one.depth:,}, and {one.dead_lettered or 0:,} dead-lettered"
    out = "" if one.in_rotation else f"; accepts no sends: {one.pulled_reason}"
    read = f" (read {_time(one.read_at)})" if one.read_at is not None else ""
    yield (f"row of backlog/{one.index}", f"{one.path}: messages {counts}{read}{out}")
    yield from _verbs(view, Scope.QUEUE, (str(one.index),))


def _unused(view: View) -> Iterator[Found]:
    queues = view.snapshot.unused.queues if view.snapshot else ()
    for one in queues:
        if one.path == view.unused:
            yield (f"name of unused queue {one.index}", one.path)
            counts = (
                "unknown" if one.messages is None else f"{one.messages:,}, {one.dead_lettered or 0:,} dead-lettered"
            )
            active = "unknown" if one.last_active is None else _time(one.last_active)
            row = f"{one.path}: messages {counts}; {one.status}; last active {active}"
            yield (f"row of unused queue {one.index}", row)
            yield from _verbs(view, Scope.UNUSED, (one.path,))


def _verbs(view: View, scope: Scope, targets: tuple[str, ...]) -> Iterator[Found]:
    """Yield the command lines for the targets; none for a name that is unsafe in a shell."""
    if view.snapshot is None or not all(target.isprintable() for target in targets):
        return
    for order in ACTIONS:
        if order.scopes[0] is scope:
            yes = to_type(view.snapshot, scope, targets)
            words = ["paired", *order.verb.split(), *targets, *(["--yes", yes] if order.dangerous else [])]
            engine = ["--engine", view.snapshot.pairing]
            yield (f"command: {order.label}", shlex.join([*words, *engine]))


# -- what happened ---------------------------------------------------------------------------------------------------


def _story(view: View) -> Iterator[Found]:
    if view.page is not Page.TIMELINE:
        return
    shown = selection.entries(view.events, view.timeline_position.filter)
    place = selection.place_of(shown, view.timeline_position.cursor)
    if place >= 0:
        yield ("selected event", _event_line(shown[place]))
        yield (f"timeline, {plural(len(shown), 'event')} as listed", *map(_event_line, shown))


def _event_line(entry: LogEntry) -> str:
    return f"{_time(entry.at)} {entry.sentence.subject} {entry.text}"


def _last(view: View) -> Iterator[Found]:
    if view.answer is not None:
        yield ("last answer", f"{_time(view.answer.at)} {view.answer.text}")


def _time(at: float) -> str:
    return f"{datetime.fromtimestamp(at, UTC):%Y-%m-%d %H:%M:%S}Z"
