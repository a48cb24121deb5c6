"""`python -m tests.pictures.draw --all`: draws every picture in `screenshots/` from moments of real plays.

Each picture is a row of PICTURES. With `--play`, the scenarios are played again first (five minutes, with Spark) and
their moments kept beside the pictures; with moments' names after it (`--play outage coming-home`), only those. Without,
the same files give the same pictures, which a test compares.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from paired_servicebus.core.model.pairing_events import Record
from paired_servicebus.core.model.snapshot import Snapshot
from paired_servicebus.core.series.graphs import Graphs
from paired_servicebus.ui.display.profile import ProfileName
from paired_servicebus.ui.shell.app import no_tables
from paired_servicebus.ui.shell.screenshot import SnapshotFeed, app_of, without_leading_spaces
from paired_servicebus.ui.state.incident_history import HistoryNews
from tests.pictures.captures import CAPTURE_POINTS, play, read

FOLDER: Final = Path("screenshots")
CAPTURES_FOLDER: Final = "moments"


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """A screen at a moment. `press`: the keys that lead to it from the dashboard, by Textual's names."""

    name: str
    moment: str
    size: tuple[int, int] = (100, 32)
    theme: str = "dark"
    profile: ProfileName = ProfileName.FULL
    press: tuple[str, ...] = ()


PICTURES: Final = (
    Picture(name="dashboard", moment="outage"),
    Picture(name="dashboard-light", moment="outage", theme="light"),
    Picture(name="dashboard-plain", moment="outage", size=(80, 24), profile=ProfileName.PLAIN),
    Picture(name="entity", moment="outage", press=("enter",)),
    Picture(name="release", moment="outage", press=("U",)),
    Picture(name="backlog", moment="backlog-queue-gone", size=(120, 32), press=("3", "down")),
    Picture(name="coming-home", moment="coming-home"),
    Picture(name="timeline", moment="coming-home", press=("4", "slash", *"orders", "enter")),
    Picture(name="cost", moment="coming-home", press=("5",)),
    Picture(name="history", moment="afterwards", size=(120, 32), press=("6",)),
    Picture(name="help", moment="outage", press=("question_mark",)),
)


async def draw_svg(
    snapshot: Snapshot,
    records: Sequence[Record] = (),
    *,
    size: tuple[int, int],
    theme: str,
    profile: ProfileName = ProfileName.FULL,
    press: Sequence[str] = (),
    past: HistoryNews | None = None,
    graphs: Graphs | None = None,
) -> str:
    """Return the dashboard of `snapshot` and `records` as SVG.

    Args:
        records: the engine's events, oldest first.
        size: columns and rows.
        theme: a theme's name.
        press: keys by Textual's names, pressed before.
        past: the content of the pipeline's tables; None: no tables.
        graphs: the figures over time; None: there are none yet.

    Raises:
        ValueError: unknown theme.
    """
    reads = no_tables if past is None else lambda *_: past
    app = app_of(SnapshotFeed(snapshot, records, graphs=graphs), snapshot, theme=theme, profile=profile, past=reads)
    async with app.run_test(size=size) as pilot:
        await app.workers.wait_for_complete()
        await pilot.pause()
        for key in press:
            await pilot.press(key)
            await app.workers.wait_for_complete()
            await pilot.pause()
        return without_leading_spaces(app.export_screenshot(title=f"paired {snapshot.pairing}"))


def drawn(picture: Picture, folder: Path) -> str:
    """The picture as SVG, from the moment kept in `folder`.

    Raises:
        ProtocolError, UnreadableLineError, OSError: the moment cannot be read.
        RuntimeError: called inside a running event loop.
    """
    kept = read(capture_file(folder, picture.moment))
    drawing = draw_svg(
        kept.snapshot,
        kept.records,
        size=picture.size,
        theme=picture.theme,
        profile=picture.profile,
        press=picture.press,
        past=kept.past,
        graphs=kept.graphs,
    )
    return asyncio.run(drawing)


def capture_file(folder: Path, name: str) -> Path:
    """Where a moment is kept."""
    return folder / CAPTURES_FOLDER / f"{name}.jsonl"


def main() -> int:
    """Draw them, after playing if `--play` says so."""
    words = set(sys.argv[1:])
    names = words & {moment.name for moment in CAPTURE_POINTS}
    if not words or words - names - {"--all", "--play"} or (names and "--play" not in words) or not FOLDER.is_dir():
        sys.stderr.write(f"{__doc__}\nRun it where screenshots/ is.\n")
        return 2
    if "--play" in words:
        (FOLDER / CAPTURES_FOLDER).mkdir(exist_ok=True)
        for moment in CAPTURE_POINTS:
            if names and moment.name not in names:
                continue
            play(moment, capture_file(FOLDER, moment.name))
    for picture in PICTURES:
        (FOLDER / f"{picture.name}.svg").write_text(drawn(picture, FOLDER))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
