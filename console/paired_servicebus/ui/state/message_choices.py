"""The operator's place among the messages of a backlog queue: part of the queue, page, row, filter. Pure functions.

Not here: asking the engine (screens/messages_screen.py), and drawing (widgets/message_list.py).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from paired_servicebus.core.model.message_view import (
    MAX_LETTERS_BEFORE,
    MAX_ROWS,
    MAX_SEARCHED,
    MessageKind,
    MessagePage,
    MessageRow,
)
from paired_servicebus.ui.state.view import View


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageTab:
    """A part of a queue. path, name: the queue's."""

    path: str
    name: str
    kind: MessageKind
    index: str = ""
    """The queue's index, if it is in use; only there dead letters can be re-driven."""

    @property
    def title(self) -> str:
        return f"{self.kind} {self.name}" if self.kind is MessageKind.STRANDED else self.kind.value


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageChoices:
    """Everything about the list but the view."""

    tab: MessageTab
    page: MessagePage | None = None
    """None: not read yet, or `trouble`."""
    trouble: str = ""
    """Why the engine did not show them."""
    is_looking: bool = False
    selected: int = 0
    """The place of the selected row among those listed."""
    filter: str = ""
    """Words of the listed rows, while they are typed."""
    wanted: str = ""
    """The search over the queue; empty: none."""
    marks: frozenset[int] = frozenset()
    """Sequence numbers of the messages for the next act, in place of the selected one."""
    starts: tuple[tuple[int, int], ...] = ((1, 0),)
    """The pages up to this one: where each starts, and the number of messages before it."""

    @property
    def listed(self) -> tuple[MessageRow, ...]:
        """The rows that match the filter."""
        rows = self.page.rows if self.page is not None else ()
        words = self.filter.casefold().split()
        if not words:
            return rows
        return tuple(row for row in rows if all(word in _searched(row) for word in words))

    @property
    def row(self) -> MessageRow | None:
        listed = self.listed
        return listed[min(self.selected, len(listed) - 1)] if listed else None

    @property
    def chosen(self) -> tuple[int, ...]:
        """Sequence numbers of the marked messages, or of the selected one."""
        return tuple(sorted(self.marks)) or ((self.row.number,) if self.row is not None else ())


def _searched(row: MessageRow) -> str:
    note = "poison?" if row.is_poison else ""
    return " ".join((row.destination, row.message_id, row.session, row.reason, row.state, note)).casefold()


def tabs_of(view: View) -> tuple[MessageTab, ...]:
    """Return the parts that can be shown from the selected queue; () if none is selected.

    A queue in use has its three parts, then each unused queue with messages. An unused queue has its own two.
    """
    snapshot = view.snapshot
    if snapshot is None:
        return ()
    if view.on_unused:
        return _unused_tabs(view.unused)
    queue = next((one for one in snapshot.queues if str(one.index) == view.queue), None)
    if queue is None:
        return ()
    index, name = str(queue.index), f"backlog/{queue.index}"
    kinds = (MessageKind.ACTIVE, MessageKind.DEFERRED, MessageKind.DEAD)
    own = tuple(MessageTab(path=queue.path, name=name, kind=kind, index=index) for kind in kinds)
    stranded = tuple(_unused_tabs(one.path)[0] for one in snapshot.unused.queues if one.messages)
    return own + stranded


def tabs_of_entity(path: str) -> tuple[MessageTab, ...]:
    """Return the parts of any entity of a namespace."""
    kinds = (MessageKind.ACTIVE, MessageKind.DEFERRED, MessageKind.DEAD)
    return tuple(MessageTab(path=path, name=path, kind=kind) for kind in kinds)


def tabs_everywhere(view: View) -> tuple[MessageTab, ...]:
    """Return the parts of every backlog queue, then of every entity: all messages but the dead letters, then these."""
    snapshot = view.snapshot
    if snapshot is None:
        return ()
    places = {one.path: f"backlog/{one.index}" for one in snapshot.queues}
    places |= {one.path: f"backlog/{one.index}" for one in snapshot.unused.queues}
    places |= {one.path: one.path for one in view.entities}
    kinds = (MessageKind.STRANDED, MessageKind.DEAD)
    return tuple(MessageTab(path=path, name=name, kind=kind) for path, name in places.items() for kind in kinds)


def _unused_tabs(path: str) -> tuple[MessageTab, ...]:
    name = f"backlog/{path.rpartition('/')[2]}"
    return tuple(MessageTab(path=path, name=name, kind=kind) for kind in (MessageKind.STRANDED, MessageKind.DEAD))


def first_tab(view: View, tabs: tuple[MessageTab, ...]) -> MessageTab:
    """Return the tab to open: the first of the queue's own with messages, or with an unknown number of them."""
    own = [tab for tab in tabs if tab.path == tabs[0].path]
    return next((tab for tab in own if number_in(view, tab) != 0), tabs[0])


def number_in(view: View, tab: MessageTab) -> int | None:
    """Return the number of messages in this part, by the latest counts; None: unknown."""
    snapshot = view.snapshot
    if snapshot is None:
        return view.counts.get((tab.path, tab.kind))
    unused = next((one for one in snapshot.unused.queues if one.path == tab.path), None)
    queue = next((one for one in snapshot.queues if one.path == tab.path), None)
    if tab.kind is MessageKind.DEAD:
        return unused.dead_lettered if unused is not None else queue.dead_lettered if queue is not None else None
    if unused is not None:
        return unused.messages
    if queue is None:
        return None
    held, all_of_them = queue.set_aside, queue.parked
    if tab.kind is MessageKind.DEFERRED or all_of_them is None:
        return held if tab.kind is MessageKind.DEFERRED else None
    return max(0, all_of_them - (held or 0))


def next_tab(choices: MessageChoices, tabs: tuple[MessageTab, ...], steps: int) -> MessageChoices:
    """Return the choices on another part, at its start; the filter stays."""
    if not tabs:
        return choices
    place = tabs.index(choices.tab) if choices.tab in tabs else 0
    return MessageChoices(tab=tabs[(place + steps) % len(tabs)], filter=choices.filter, is_looking=True)


def move(choices: MessageChoices, steps: int) -> MessageChoices:
    """Return the choices with the selection `steps` rows further down, between both ends."""
    last = len(choices.listed) - 1
    return replace(choices, selected=max(0, min(last, min(choices.selected, last) + steps)))


def toggle_mark(choices: MessageChoices) -> MessageChoices:
    """Return the choices with the selected message marked, or not any more, and the next one selected."""
    if choices.row is None:
        return choices
    return move(replace(choices, marks=choices.marks ^ {choices.row.number}), 1)


def why_no_redrive(choices: MessageChoices) -> str:
    """Return why the chosen messages cannot be re-driven, as far as it is known here; empty if they can."""
    if not choices.tab.index:
        return "only a queue in use is re-driven; page 3 moves stranded messages"
    if choices.tab.kind is not MessageKind.DEAD:
        return "only dead letters are re-driven: tab shows them"
    if not choices.chosen:
        return "no dead letter is selected"
    before = _letters_before(choices)
    if before is not None and before > MAX_LETTERS_BEFORE:
        return f"{before:,} older dead letters, at most {MAX_LETTERS_BEFORE:,}: R on page 3"
    return ""


def _letters_before(choices: MessageChoices) -> int | None:
    """Return the number of other dead letters before the last chosen one; None: it is not on this page."""
    numbers = [row.number for row in choices.page.rows] if choices.page is not None else []
    last = choices.chosen[-1]
    if choices.wanted or last not in numbers:  # a search lists only some
        return None
    return choices.starts[-1][1] + numbers.index(last) + 1 - len(choices.chosen)


def with_page(choices: MessageChoices, page: MessagePage) -> MessageChoices:
    """Return the choices after the engine's answer; the selected message stays selected if it is there."""
    before = choices.row.number if choices.row is not None else 0
    new = replace(choices, page=page, trouble="", is_looking=False)
    numbers = [row.number for row in new.listed]
    return replace(new, selected=numbers.index(before) if before in numbers else 0)


def search(choices: MessageChoices, wanted: str) -> MessageChoices:
    """Return the choices that search the queue from its start, or list it without a search; the marks stay."""
    return MessageChoices(tab=choices.tab, wanted=wanted.strip(), is_looking=True, marks=choices.marks)


def with_more(choices: MessageChoices, page: MessagePage) -> MessageChoices:
    """Return the choices after a further answer to the same search."""
    found = choices.page
    if found is None:
        return with_page(choices, page)
    joined = replace(page, rows=(*found.rows, *page.rows), looked_at=found.looked_at + page.looked_at)
    return with_page(choices, joined)


def goes_on(choices: MessageChoices) -> bool:
    """Return whether the search has more to read: it is not at the end, nor at one of its bounds."""
    page = choices.page
    if page is None or not choices.wanted or not page.next_number:
        return False
    return len(page.rows) < MAX_ROWS and choices.starts[-1][1] + page.looked_at < MAX_SEARCHED


def turn_page(choices: MessageChoices, pages: int) -> MessageChoices | None:
    """Return the choices that ask for the next page, or for the page before; None at either end."""
    starts = choices.starts[:-1]
    if pages > 0:
        if choices.page is None or not choices.page.next_number:
            return None
        before = choices.starts[-1][1] + choices.page.looked_at
        starts = (*choices.starts, (choices.page.next_number, before))
    return replace(choices, starts=starts, selected=0, is_looking=True) if starts else None
