"""The dashboard as a picture, without a terminal: the same app over a fixed feed."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from paired_servicebus.core.errors import EngineNotRunningError
from paired_servicebus.core.model.command import Command
from paired_servicebus.core.model.pairing_events import Record
from paired_servicebus.core.model.snapshot import Snapshot
from paired_servicebus.core.operator.action_row import ARMED_SECONDS, to_fire
from paired_servicebus.core.operator.actions import BY_ID
from paired_servicebus.core.series.graphs import Graphs, follow
from paired_servicebus.engine.control.control_client import ControlClient
from paired_servicebus.engine.control.protocol import Armed
from paired_servicebus.ui.display.profile import PROFILES, ProfileName
from paired_servicebus.ui.display.theme import load_all
from paired_servicebus.ui.engines.feed import Emit, EngineFeed
from paired_servicebus.ui.shell.app import PairedApp, ReadPast, no_tables
from paired_servicebus.ui.state.view import Page, Reached, Records


class SnapshotFeed(EngineFeed):
    """A feed of one snapshot and its figures over time, without an engine."""

    def __init__(self, snapshot: Snapshot, records: Sequence[Record], *, graphs: Graphs | None = None) -> None:
        super().__init__(Path())
        self._snapshot = snapshot
        self._records = records
        self._graphs = graphs

    async def run(self, emit: Emit) -> None:
        emit(Reached())
        if self._graphs is not None:
            emit(self._graphs)
        emit(Records(self._records))
        emit(self._snapshot)

    async def arm(self, command: Command) -> Armed:
        """Return the answer of an engine, so that the dialog opens."""
        to_type = to_fire(BY_ID[command.action_id], self._snapshot, command)
        return Armed(id=0, token="", to_type=to_type, seconds=ARMED_SECONDS, until=self._snapshot.at + ARMED_SECONDS)


_SPACES_FIRST: Final = re.compile(r'x="([0-9.]+)"( y="[0-9.]+") textLength="([0-9.]+)"([^>]*)>((?:&#160;)+)')
_CELL: Final = 12.2
"""Width of a cell in Textual's pictures."""


def without_leading_spaces(svg: str) -> str:
    """Return the picture with every text at its first letter: librsvg and others drop leading spaces."""

    def moved(match: re.Match[str]) -> str:
        x, y, length, rest, spaces = match.groups()
        width = spaces.count(";") * _CELL
        return f'x="{float(x) + width:g}"{y} textLength="{float(length) - width:g}"{rest}>'

    return _SPACES_FIRST.sub(moved, svg)


async def draw_page(
    snapshot: Snapshot,
    records: Sequence[Record] = (),
    *,
    page: Page = Page.PAIRING,
    press: Sequence[str] = (),
    size: tuple[int, int],
    theme: str = "dark",
    profile: ProfileName = ProfileName.FULL,
    as_text: bool = False,
    past: ReadPast | None = None,
    graphs: Graphs | None = None,
) -> str:
    """Return a page as SVG, or as lines of text without colours and without spaces at their ends.

    Args:
        records: the engine's events, oldest first.
        press: keys by Textual's names, pressed before.
        size: columns and rows.
        past: reads the incidents; None: there are no tables.
        graphs: the figures over time; None: there are none yet.

    Raises:
        ValueError: unknown theme.
    """
    themes = load_all()
    if theme not in (known := [each.name for each in themes.themes]):
        raise ValueError(f"unknown theme {theme!r}; known are {', '.join(known)}")
    app = PairedApp(
        SnapshotFeed(snapshot, records, graphs=graphs),
        pairing=snapshot.pairing,
        by="",
        themes=themes,
        theme=theme,
        profile=PROFILES[profile],
        now=lambda: snapshot.at,
        monotonic=lambda: 0.0,
        past=past or no_tables,
    )
    async with app.run_test(size=size) as pilot:
        await app.workers.wait_for_complete()
        await pilot.pause()
        app.turn_to(page)
        for key in ("", *press):
            if key:
                await pilot.press(key)
            await app.workers.wait_for_complete()
            await pilot.pause()
        if as_text:
            return "\n".join(strip.text.rstrip() for strip in app.screen._compositor.render_strips())
        return without_leading_spaces(app.export_screenshot(title=f"paired {snapshot.pairing}"))


SIZE: Final = (140, 40)
FIRST_SNAPSHOT_TIMEOUT_SECONDS: Final = 5.0
"""For the snapshot and the history."""
GRAPHS_TIMEOUT_SECONDS: Final = 2.0
"""For the figures over time, from the connection on; a young engine has none yet."""


async def picture(
    socket: Path,
    *,
    size: tuple[int, int] = SIZE,
    theme: str = "dark",
    page: Page = Page.PAIRING,
    as_text: bool = False,
    past: ReadPast | None = None,
) -> str:
    """Return a page of the engine behind `socket` as SVG, or as text.

    Raises:
        ControlError: the engine is unreachable or silent.
        ValueError: unknown theme.
    """
    client = await ControlClient.connect(socket, graphs=True)
    try:
        snapshot, records, graphs = await _read_engine(client, socket)
    finally:
        await client.close()
    return await draw_page(
        snapshot,
        records,
        page=page,
        size=size,
        theme=theme,
        as_text=as_text,
        past=past,
        graphs=graphs,
    )


async def _read_engine(client: ControlClient, socket: Path) -> tuple[Snapshot, Sequence[Record], Graphs | None]:
    """Return the second snapshot, or a later one with current depths, the events before it, and the graphs.

    The engine sends its history after the first.
    """
    found: Snapshot | None = None
    records: list[Record] = []
    graphs: Graphs | None = None
    clock = asyncio.get_running_loop()
    last_wait = clock.time() + GRAPHS_TIMEOUT_SECONDS
    try:
        async with asyncio.timeout(FIRST_SNAPSHOT_TIMEOUT_SECONDS):
            async for update in client.updates():
                if isinstance(update, Record):
                    records.append(update)
                elif isinstance(update, Graphs):
                    graphs = follow(graphs, update)
                elif isinstance(update, Snapshot):
                    waited = graphs is not None or clock.time() >= last_wait
                    if found is not None and not update.reading and waited:
                        return update, records, graphs
                    found = update
    except TimeoutError:
        pass  # no second one: the first shows its time
    if found is None:
        raise EngineNotRunningError(
            f"the engine at {socket} sent no snapshot within {FIRST_SNAPSHOT_TIMEOUT_SECONDS:g} s"
        )
    return found, records, graphs
