"""`python -m tests.pictures.draw --all`: draws every picture in `screenshots/` from moments of real plays.

Each picture is a row of PICTURES. With `--play`, the scenarios are played again first (five minutes, with Spark) and
their moments kept beside the pictures; with moments' names after it (`--play outage coming-home`), only those. Without,
the same files give the same pictures, which a test compares.
"""

from __future__ import annotations

import asyncio
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from paired_servicebus.ui.display.profile import ProfileName
from paired_servicebus.ui.shell.screenshot import draw_page
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


def drawn(picture: Picture, folder: Path) -> str:
    """The picture as SVG, from the moment kept in `folder`.

    Raises:
        ProtocolError, UnreadableLineError, OSError: the moment cannot be read.
        RuntimeError: called inside a running event loop.
    """
    kept = read(capture_file(folder, picture.moment))
    drawing = draw_page(
        kept.snapshot,
        kept.records,
        size=picture.size,
        theme=picture.theme,
        profile=picture.profile,
        press=picture.press,
        past=None if kept.past is None else lambda *_: kept.past,
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
