"""The dashboard: one engine on a terminal, through its control socket alone.

`run_dashboard` opens it and returns when the person leaves; the engine goes on. Importing this module is cheap: the
terminal library is imported when a dashboard is opened.
"""

from __future__ import annotations

import gc
import getpass
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from console.ui.preferences import Preferences, config_folder, load_preferences
from console.ui.profile import PROFILES, Profile, Wishes, profile_for

ENVIRONMENT: Final = {"TEXTUAL_ANIMATIONS": "none", "TEXTUAL_FPS": "10", "TEXTUAL_SMOOTH_SCROLL": "0"}
"""Read by the terminal library when it is imported: what moves by itself costs bytes on a slow link."""
STALE: Final = ("COLUMNS", "LINES")
"""Of some other time or terminal, where they are set; the library would believe them and never see a change."""


def run_dashboard(
    socket: Path,
    *,
    config_name: str,
    read_only: bool = False,
    engine_stays: bool = True,
    on_ready: Callable[[], None] | None = None,
    size: tuple[int, int] | None = None,
    wishes: Wishes | None = None,
    tables: Path | None = None,
) -> int:
    """Shows the engine behind `socket` until the person leaves.

    Args:
        socket: the engine's control socket. It need not answer yet: the screen says so and goes on trying.
        config_name: the pairing's name.
        read_only: look, don't touch.
        engine_stays: whether the engine goes on when the person leaves; False for a demo's, so that the screen says so.
        on_ready: called once, after the first paint.
        size: columns and rows; those of the terminal unless given.
        wishes: what the command line asks of the screen; the person's console.toml and the terminal decide the rest.
        tables: the folder of the pipeline's tables, for the page "history"; None: there is none.

    Returns:
        The exit status: 0, or 1 after an unexpected error, which is then in a file that one sentence on stderr names.
    """
    for name, value in ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    for name in STALE:
        os.environ.pop(name, None)
    from console.ui.app import PairedApp
    from console.ui.around import FeedWithNeighbours
    from console.ui.crash import CrashLog
    from console.ui.feed import EngineFeed
    from console.ui.theme import folder, load_all

    def ready() -> None:
        gc.freeze()  # what stays for good is not looked through again: that took up to 150 ms at a time
        if on_ready is not None:
            on_ready()

    own = config_folder()
    chosen = load_preferences(own)
    look = _look(wishes or Wishes(), chosen)
    feed = EngineFeed(socket, read_only=read_only)
    crash = CrashLog(config_name)
    crash.quiet_libraries()
    around = FeedWithNeighbours(feed, socket, read_only=read_only) if engine_stays else None
    app = PairedApp(
        around or feed,
        others=around,
        pairing=config_name,
        by=user_name(),
        read_only=read_only,
        engine_stays=engine_stays,
        report=crash.report,
        on_ready=ready,
        themes=load_all(folder(), own / "themes"),
        theme=look.theme,
        profile=look.profile,
        bell=look.bell,
        notices=[chosen.notice] if chosen.notice else [],
        price=chosen.price,
        tables=tables,
        keys=chosen.keys,
    )
    try:
        status = app.run(mouse=look.mouse, size=size)
    except Exception as error:  # noqa: BLE001 - nothing may reach the terminal as a traceback
        crash.report(error)
        status = 1
    if crash.said:
        sys.stderr.write(f"paired: {crash.said}\n")
        return 1
    return status or 0


@dataclass(frozen=True, slots=True)
class _Look:
    theme: str
    profile: Profile
    mouse: bool
    bell: bool


def _look(wishes: Wishes, chosen: Preferences) -> _Look:
    """What a flag says goes before the person's file, and that before the terminal's variables."""
    from console.ui.theme import theme_for

    asked = wishes.profile or chosen.profile
    profile = PROFILES[asked] if asked else profile_for(os.environ)
    theme = wishes.theme or chosen.theme or theme_for(os.environ, ascii_only=profile.ascii)
    os.environ.pop("NO_COLOR", None)  # ours to obey, by a theme: the library would send greys
    return _Look(
        theme,
        profile,
        mouse=not wishes.no_mouse and (profile.mouse if chosen.mouse is None else chosen.mouse),
        bell=not wishes.no_bell and chosen.bell is not False,
    )


def user_name() -> str:
    """Who gives commands from here, for the audit; the number where the user has no name."""
    try:
        return getpass.getuser()
    except (OSError, KeyError):
        return f"uid {os.getuid()}"
