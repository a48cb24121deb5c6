"""The dashboard as a picture, without a terminal: the same app over a feed that says what it is given and no more."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from paired_servicebus.core.errors import EngineNotRunningError
from paired_servicebus.core.model.pairing_events import Record
from paired_servicebus.core.model.snapshot import Snapshot
from paired_servicebus.core.operator.actions import BY_ID, Scope, to_fire
from paired_servicebus.engine.control.control_client import ControlClient
from paired_servicebus.engine.control.protocol import Armed
from paired_servicebus.ui.display.profile import PROFILES, ProfileName
from paired_servicebus.ui.display.theme import load_all
from paired_servicebus.ui.engines.feed import NOT_ARMED, FireRequest, Tell
from paired_servicebus.ui.shell.app import PairedApp, no_tables
from paired_servicebus.ui.state.incident_history import HistoryNews
from paired_servicebus.ui.state.view import Records

ARMED: Final = 30.0
"""Seconds that a question is open, as the engine's guard has it."""


class SnapshotFeed:
    """A feed of one snapshot."""

    def __init__(self, snapshot: Snapshot, records: Sequence[Record]) -> None:
        self._snapshot = snapshot
        self._records = records

    async def run(self, tell: Tell) -> None:
        """Tells it."""
        tell(Records(self._records))
        tell(self._snapshot)

    async def arm(self, verb: str, *, targets: tuple[str, ...], scope: str = "", by: str) -> Armed:
        """As an engine would, so that the question can be shown; nothing is behind it."""
        to_type = to_fire(BY_ID[verb], self._snapshot, Scope(scope) if scope else BY_ID[verb].scope, targets)
        return Armed(id=0, token="", to_type=to_type, seconds=ARMED, until=self._snapshot.at + ARMED)

    async def command(
        self, verb: str, *, targets: tuple[str, ...], scope: str = "", by: str, fired: FireRequest = NOT_ARMED
    ) -> str:
        """Nothing is behind a picture."""
        raise NotImplementedError(f"a picture takes no {verb}")


_SPACES_FIRST: Final = re.compile(r'x="([0-9.]+)"( y="[0-9.]+") textLength="([0-9.]+)"([^>]*)>((?:&#160;)+)')
_CELL: Final = 12.2
"""Width of a cell in the pictures that the terminal library makes."""


def _without_leading_spaces(svg: str) -> str:
    """The same picture with every text starting at its first letter: librsvg and others drop the spaces before it."""

    def moved(match: re.Match[str]) -> str:
        x, y, length, rest, spaces = match.groups()
        width = spaces.count(";") * _CELL
        return f'x="{float(x) + width:g}"{y} textLength="{float(length) - width:g}"{rest}>'

    return _SPACES_FIRST.sub(moved, svg)


async def draw_svg(
    snapshot: Snapshot,
    records: Sequence[Record] = (),
    *,
    size: tuple[int, int],
    theme: str,
    profile: ProfileName = ProfileName.FULL,
    press: Sequence[str] = (),
    past: HistoryNews | None = None,
) -> str:
    """Like `render_svg`, inside a running event loop; after the keys of `press`, by Textual's names, were pressed.
    `past`: what the pipeline's tables hold; None: there are none."""
    themes = load_all()
    if theme not in (known := [each.name for each in themes.themes]):
        raise ValueError(f"there is no theme {theme!r}; there are {', '.join(known)}")
    app = PairedApp(
        SnapshotFeed(snapshot, records),
        pairing=snapshot.pairing,
        by="",
        themes=themes,
        profile=PROFILES[profile],
        now=lambda: snapshot.at,
        monotonic=lambda: 0.0,
        past=no_tables if past is None else lambda *_: past,
    )
    app.theme = theme
    async with app.run_test(size=size) as pilot:
        await app.workers.wait_for_complete()
        await pilot.pause()
        for key in press:
            await pilot.press(key)
            await app.workers.wait_for_complete()
            await pilot.pause()
        return _without_leading_spaces(app.export_screenshot(title=f"paired {snapshot.pairing}"))


def render_svg(snapshot: Snapshot, records: Sequence[Record] = (), *, size: tuple[int, int], theme: str) -> str:
    """The dashboard that shows `snapshot` and `records`, as SVG.

    Args:
        snapshot: what to show.
        records: the engine's events, oldest first.
        size: columns and rows.
        theme: a theme's name.

    Raises:
        ValueError: there is no such theme.
        RuntimeError: called inside a running event loop; `draw_svg` is for there.
    """
    return asyncio.run(draw_svg(snapshot, records, size=size, theme=theme))


SIZE: Final = (140, 40)
STORY: Final = 5.0
"""Seconds that an engine has to tell how it stands and how it came to that."""


async def picture(socket: Path, *, size: tuple[int, int] = SIZE, theme: str = "dark") -> str:
    """The dashboard on the engine behind `socket`, as SVG.

    Raises:
        ControlError: the engine cannot be reached, or says nothing.
    """
    client = await ControlClient.connect(socket)
    try:
        snapshot, records = await _story(client, socket)
    finally:
        await client.close()
    return await draw_svg(snapshot, records, size=size, theme=theme)


async def _story(client: ControlClient, socket: Path) -> tuple[Snapshot, Sequence[Record]]:
    """The second snapshot, or a later one with depths of now, and the events before it: the engine tells its history
    after the first."""
    found: Snapshot | None = None
    records: list[Record] = []
    try:
        async with asyncio.timeout(STORY):
            async for update in client.updates():
                if isinstance(update, Record):
                    records.append(update)
                elif isinstance(update, Snapshot):
                    if found is not None and not update.reading:
                        return update, records
                    found = update
    except TimeoutError:
        pass  # an engine that makes no second one: the first has its time on it
    if found is None:
        raise EngineNotRunningError(f"the engine at {socket} did not say within {STORY:g} s how it stands")
    return found, records
