"""The tab bar in the header: the pages with their keys, as many by name as fit, the present one always.

Page 7 shows the number of engines, page 8 that of the gateway's clients; "!" where an engine is unhealthy.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from paired_servicebus.ui.render.spans import Role, Span
from paired_servicebus.ui.state.view import Page, View


class Tab(NamedTuple):
    """One page's cells in the bar."""

    page: Page
    text: str
    trouble: bool = False


def tabs(view: View, room: int) -> tuple[Tab, ...]:
    """Return the tabs that fit into so many cells, each with a cell after it."""
    pages = list(Page)
    named = {view.page}
    if _width(view, named) > room:  # without room for all numbers: the present page only
        alone = Tab(view.page, _text(view, view.page, named), trouble=False)
        return (alone,) if len(alone.text) < room else ()
    for page in pages:
        if _width(view, named | {page}) <= room:
            named.add(page)
    return tuple(Tab(page, _text(view, page, named), page is Page.ENGINES and _unwell(view)) for page in pages)


def tab_spans(shown: Sequence[Tab], view: View) -> list[Span]:
    """Return the bar: the present page in brackets."""
    spans: list[Span] = []
    for tab in shown:
        role = Role.TITLE if tab.page is view.page else Role.SUSPECT if tab.trouble else Role.MUTED
        spans += [Span(tab.text, role), Span(" ")]
    return spans


def tab_at(shown: Sequence[Tab], cell: int) -> Page | None:
    """Return the page whose tab has that cell of the bar."""
    for tab in shown:
        if cell <= len(tab.text):
            return tab.page if cell >= 0 else None
        cell -= len(tab.text) + 1
    return None


def _width(view: View, named: set[Page]) -> int:
    return sum(len(_text(view, page, named)) + 1 for page in Page)


def _text(view: View, page: Page, named: set[Page]) -> str:
    number = list(Page).index(page) + 1
    text = f"{number} {page.title()}{_count(view, page)}" if page in named else str(number)
    text += "!" if page is Page.ENGINES and _unwell(view) else ""
    return f"[{text}]" if page is view.page else text


def _count(view: View, page: Page) -> str:
    """Return the number of engines, or of clients; empty if there is one engine, or no gateway."""
    snapshot = view.snapshot
    if page is Page.ENGINES:
        fleet = snapshot.fleet if snapshot is not None else None
        engines = len(fleet.engines) if fleet is not None else 1 + len(view.neighbours)
        return f" {engines}" if engines > 1 else ""
    if page is Page.CLIENTS and snapshot is not None and snapshot.gateway is not None:
        return f" {len(snapshot.gateway.clients)}"
    return ""


def _unwell(view: View) -> bool:
    return any(one.trouble for one in view.neighbours)
