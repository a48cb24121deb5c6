"""The dashboard: one engine on a terminal, through its control socket alone.

`run_dashboard` opens it and returns when the person leaves; the engine goes on. Importing this module is cheap: the
terminal library is imported when a dashboard is opened.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Final

from paired_servicebus.printing import report_error
from paired_servicebus.ui.display.profile import ScreenOptions
from paired_servicebus.ui.shell.preferences import config_folder, load_preferences

ENVIRONMENT: Final = {"TEXTUAL_ANIMATIONS": "none", "TEXTUAL_FPS": "30", "TEXTUAL_SMOOTH_SCROLL": "0"}
"""Read by the terminal library when it is imported: what moves by itself costs bytes on a slow link."""
STALE: Final = ("COLUMNS", "LINES")
"""Of some other time or terminal, where they are set; the library would believe them and never see a change."""


def run_dashboard(
    socket: Path,
    *,
    config_name: str,
    read_only: bool = False,
    engine_stays: bool = True,
    on_ready: Callable[[], None] = lambda: None,
    wishes: ScreenOptions | None = None,
    tables: Path | None = None,
) -> int:
    """Shows the engine behind `socket` until the person leaves.

    Args:
        socket: the engine's control socket. It need not answer yet: the screen says so and goes on trying.
        config_name: the pairing's name.
        read_only: look, don't touch.
        engine_stays: whether the engine goes on when the person leaves; False for a demo's, so that the screen says so.
        on_ready: called once, after the first paint.
        wishes: what the command line asks of the screen; the person's console.toml and the terminal decide the rest.
        tables: the folder of the pipeline's tables, for the page "history"; None: there is none.

    Returns:
        The exit status: 0, or 1 after an unexpected error, which is then in a file that one sentence on stderr names.
    """
    for name, value in ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    for name in STALE:
        os.environ.pop(name, None)
    from paired_servicebus.ui.display.crash_log import CrashLog
    from paired_servicebus.ui.shell.startup import dashboard, screen_settings  # with the terminal library behind it

    chosen = load_preferences(config_folder())
    look = screen_settings(wishes or ScreenOptions(), chosen)
    crash = CrashLog(config_name)
    crash.quiet_libraries()
    app = dashboard(
        socket,
        pairing=config_name,
        read_only=read_only,
        engine_stays=engine_stays,
        tables=tables,
        look=look,
        chosen=chosen,
        on_ready=on_ready,
        report=crash.report,
    )
    try:
        status = app.run(mouse=look.mouse)
    except Exception as error:  # noqa: BLE001 - nothing may reach the terminal as a traceback
        crash.report(error)
        status = 1
    if crash.said:
        report_error(crash.said)
        return 1
    return status or 0
