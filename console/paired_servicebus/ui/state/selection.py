"""The operator's choices on a screen: the selected row, marks, filter and order. Pure functions from View to View.

A selection is a name, so it follows its row. Not here: the order of rows (view.py).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final, NamedTuple

from paired_servicebus.ui.state.incident_history import IncidentHistory
from paired_servicebus.ui.state.log_entries import Log, LogEntry
from paired_servicebus.ui.state.view import (
    FOLD,
    SORTS,
    Page,
    TimelinePosition,
    View,
    alarms_of,
    frozen_order,
    has_all,
    needs_eyes,
    unused_queues,
)

# From the first lines to the page that explains the worst of them.


def explain(view: View) -> View | None:
    """Return the view on the page of the worst alarm, with its subject selected; None: nothing is wrong.

    Without an alarm it is the page of the worst entity.
    """
    snapshot = view.snapshot
    if snapshot is None:
        return None
    worst = next(iter(alarms_of(snapshot)), None)
    subject = worst.subject if worst is not None else ""
    entity = view.entity_at(subject) or next((one for one in view.listed if needs_eyes(one)), None)
    if worst is None and entity is None:
        return None
    queue = next((one for one in snapshot.queues if subject and subject in (one.path, str(one.index))), None)
    view = replace(view, selected=entity.path, on_fold=False) if entity is not None else view
    view = replace(view, queue=str(queue.index), on_unused=False) if queue is not None else view
    page = list(Page)[worst.page - 1] if worst is not None else Page.ENTITY
    return replace(view, page=Page.ENTITY if page is Page.PAIRING and entity is not None else page)


# Reading the timeline: the listed events, the selected one, and the search for a time or a word.
#
# An entry is selected by its number, so that new events move nothing; without a selection the newest is followed.

_TIME: Final = re.compile(r"(?:(\d{4}-\d{2}-\d{2})[ T])?(\d{1,2}):(\d{2})(?::(\d{2}))?")


def entries(log: Log, words: str) -> Sequence[LogEntry]:
    """Return the entries that have all the words, oldest first."""
    wanted = words.casefold().split()
    return [entry for entry in log if has_all(_text(entry), wanted)] if wanted else log


def place_of(shown: Sequence[LogEntry], cursor: int | None) -> int:
    """Return the place of the selected entry, or of the one after it; -1 if nothing is shown."""
    numbers = [entry.number for entry in shown] if cursor is not None else []
    if cursor in numbers:
        return numbers.index(cursor)
    return next((place for place, number in enumerate(numbers) if 0 < (cursor or 0) < number), len(shown) - 1)


def move_cursor(log: Log, position: TimelinePosition, steps: int) -> TimelinePosition:
    """Return the selection further down; at the end it follows the newest event."""
    shown = entries(log, position.filter)
    return _at(position, shown, max(0, place_of(shown, position.cursor) + steps))


def go_to_time(log: Log, position: TimelinePosition, at: float) -> TimelinePosition:
    """Return the selection at the first entry from that time on."""
    shown = entries(log, position.filter)
    return _at(position, shown, next((place for place, entry in enumerate(shown) if entry.at >= at), len(shown) - 1))


def parse_time(text: str, now: float) -> float | None:
    """Return a UTC time from "14:02", "14:02:03" or "2026-11-20 14:02"; None if it is invalid.

    Without a day it is the latest such time before `now`.
    """
    match = _TIME.fullmatch(text.strip())
    if match is None:
        return None
    day, hour, minute, second = match.groups()
    today = datetime.fromtimestamp(now, UTC)
    try:
        base = datetime.fromisoformat(day).replace(tzinfo=UTC) if day else today
        wanted = base.replace(hour=int(hour), minute=int(minute), second=int(second or 0), microsecond=0)
    except ValueError:
        return None
    return (wanted - timedelta(days=1) if not day and wanted > today else wanted).timestamp()


def _at(position: TimelinePosition, shown: Sequence[LogEntry], place: int) -> TimelinePosition:
    last = place >= len(shown) - 1
    return replace(position, cursor=None if last else shown[place].number)


def _text(entry: LogEntry) -> str:
    return f"{entry.engine} {entry.sentence.subject} {entry.text} {entry.kind}".casefold()


class PageRows(NamedTuple):
    """A page's rows by name, the selected one, and how another one is selected."""

    names: Sequence[Any]
    here: Any
    select: Callable[[View, Any], View]


def move_selection(view: View, steps: int) -> View:
    """Return the view with the page's selection `steps` rows further down, between both ends."""
    if view.page is Page.TIMELINE:
        return replace(view, timeline_position=move_cursor(view.events, view.timeline_position, steps))
    rows = _rows_of(view)
    if not rows.names:
        return view
    place = rows.names.index(rows.here) if rows.here in rows.names else -1 if steps > 0 else 0
    return rows.select(view, rows.names[max(0, min(len(rows.names) - 1, place + steps))])


def _rows_of(view: View) -> PageRows:
    """Return the page's rows; only the table of entities has the fold among them."""
    match view.page:
        case Page.COST:
            return PageRows((), "", lambda view, _: view)
        case Page.BACKLOG:
            return PageRows(_queue_rows(view), (view.on_unused, view.unused if view.on_unused else view.queue), _queue)
        case Page.HISTORY:
            past = view.past or IncidentHistory()
            return PageRows([one.episode for one in past.incidents], past.chosen, _incident)
        case Page.ENGINES:
            names = ["", *(one.name for one in view.neighbours)]
            return PageRows(names, view.engine, lambda view, name: replace(view, engine=name))
        case Page.CLIENTS:
            ids = [client.id for client in view.clients]
            return PageRows(ids, view.client, lambda view, client: replace(view, client=client))
        case Page.PAIRING:
            return PageRows(view.rows.names, FOLD if view.on_fold else view.selected, _entity)
        case _:
            return PageRows([entity.path for entity in view.listed], view.selected, _entity)


def _entity(view: View, name: str) -> View:
    return replace(view, selected=name, on_fold=name == FOLD)


def _queue_rows(view: View) -> list[tuple[bool, str]]:
    """Return whether each is an unused queue, and its index or path."""
    if view.snapshot is None:
        return []
    unused = [(True, queue.path) for queue in unused_queues(view.snapshot)]
    return [(False, str(queue.index)) for queue in view.snapshot.queues] + unused


def _queue(view: View, row: tuple[bool, str]) -> View:
    on_unused, name = row
    return replace(view, on_unused=True, unused=name) if on_unused else replace(view, on_unused=False, queue=name)


def _incident(view: View, episode: str) -> View:
    """Return the view with another incident, whose report is read next."""
    if view.past is None or episode == view.past.chosen:
        return view
    return replace(view, past=replace(view.past, chosen=episode, report=()))


def toggle_fold(view: View) -> View:
    """Return the view with the quiet entities' rows shown, or folded into one; the fold stays selected."""
    return replace(view, is_unfolded=not view.is_unfolded)


def turn_to_page(view: View, page: Page) -> View:
    """Return the view on another page, with a row selected there."""
    view = replace(view, page=page, incident_open=False)
    if page is Page.ENTITY and view.on_fold:
        folded = view.rows.quiet or view.listed  # a resize may have ended the fold
        view = replace(view, on_fold=False, selected=folded[0].path if folded else "")
    return move_selection(view, 0) if page is Page.BACKLOG and not view.queue else view


def mark(view: View) -> View:
    """Toggle the mark of the selected entity and select the next. On the engines page: of the engine."""
    if view.page is Page.ENGINES:
        chosen = view.chosen ^ {view.engine} if view.engine else view.chosen
        return move_selection(replace(view, chosen=chosen), 1)
    if view.on_fold:
        return toggle_fold(view)
    if not view.selected:
        return view
    return move_selection(replace(view, marks=view.marks ^ {view.selected}), 1)


def mark_all(view: View) -> View:
    """Mark every listed entity; on the engines page, every engine."""
    if view.page is Page.ENGINES:
        return replace(view, chosen=frozenset(one.name for one in view.neighbours))
    return _with_row(replace(view, marks=frozenset(entity.path for entity in view.listed)))


def unmark_all(view: View) -> View:
    """Remove all marks; on the engines page, commands then reach the engine on screen only."""
    if view.page is Page.ENGINES:
        return replace(view, chosen=frozenset())
    return replace(view, marks=frozenset())


def apply_filter(view: View, words: str) -> View:
    """Return the view with only the rows that match the words; the selection stays if it is still listed."""
    if view.page is Page.TIMELINE:
        return replace(view, timeline_position=replace(view.timeline_position, filter=words))
    view = replace(view, filter=words, on_fold=False)
    return _with_row(view)


def _with_row(view: View) -> View:
    """Return the view with the first listed entity selected, unless the selected row is there."""
    names = view.rows.names
    if (FOLD if view.on_fold else view.selected) in names:
        return view
    return replace(view, selected=next(iter(names), ""), on_fold=False)


def toggle_pings(view: View) -> View:
    """Return the view that lists each ping, or folds them; the reader stays at the same time."""
    position, other = view.timeline_position, replace(view, each_ping=not view.each_ping)
    shown = entries(view.events, position.filter)
    place = place_of(shown, position.cursor)
    if position.cursor is None or place < 0:
        return other
    return replace(other, timeline_position=go_to_time(other.events, position, shown[place].at))


def next_sort_order(view: View) -> View:
    """Return the view sorted in the next way; one that is not live is frozen now."""
    names = list(SORTS)
    sort = names[(names.index(view.sort) + 1) % len(names)]
    order = frozen_order(view.entities, sort)
    return _with_row(replace(view, sort=sort, order=order, sorted_at=view.now, on_fold=False))


def drop_marks(view: View, targets: tuple[str, ...]) -> View:
    """Remove the marks of the last command's targets, so that the next command does not hit them unnoticed."""
    if view.page is Page.ENGINES:
        return replace(view, chosen=frozenset())
    return replace(view, marks=view.marks - frozenset(targets))
