"""The console: shows one engine on a terminal, through the engine's control socket only.

`run_dashboard` opens it and returns when the operator leaves. Importing this module does not import Textual.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from paired_servicebus.printing import report_error
from paired_servicebus.ui.display.profile import ScreenOptions
from paired_servicebus.ui.shell.preferences import config_folder, load_preferences

if TYPE_CHECKING:
    from paired_servicebus.ui.display.crash_log import CrashLog
    from paired_servicebus.ui.display.terminal_app import TerminalApp
    from paired_servicebus.ui.engines.feed import OrderSigner
    from paired_servicebus.ui.shell.browse_app import EntitySource

ENVIRONMENT: Final = {"TEXTUAL_ANIMATIONS": "none", "TEXTUAL_FPS": "30", "TEXTUAL_SMOOTH_SCROLL": "0"}
"""Textual reads these when it is imported: animations cost bytes on a slow link."""
STALE: Final = ("COLUMNS", "LINES")
"""Removed: Textual would trust them and would miss later changes of the terminal's size."""


def run_dashboard(
    socket: Path,
    *,
    config_name: str,
    read_only: bool = False,
    engine_stays: bool = True,
    on_ready: Callable[[], None] = lambda: None,
    wishes: ScreenOptions | None = None,
    tables: Path | None = None,
    journal: Path | None = None,
    signer: OrderSigner | None = None,
    start_steps: Callable[[], Sequence[str]] = tuple,
) -> int:
    """Show the engine behind `socket` until the operator leaves.

    Args:
        socket: the engine's control socket; while it does not answer, the screen shows that and retries.
        config_name: the pairing's name.
        read_only: send no commands.
        engine_stays: False for a demo, which stops its engine when the operator leaves.
        on_ready: called once, after the first paint.
        wishes: options of the command line; console.toml and the terminal decide the rest.
        tables: the folder of the pipeline's tables, for the incidents page; None: no tables.
        journal: the folder of the engine's journal, for the same page; None: it is not read.
        signer: the operator's key, for orders over the fleet; None: they are not possible from this screen.
        start_steps: returns what the caller starts before the engine, the newest last; shown until the first figures.

    Returns the exit status: 0, 1 after an unexpected error, which is logged to a file and reported on stderr, or 128
    and the number of the signal that ended it; without its terminal it ends as by SIGHUP.
    """
    _prepare_environment()
    gc.disable()  # until the first paint: collections would take a tenth of the start
    from paired_servicebus.ui.shell.startup import build_app  # imports Textual

    crash = _open_crash_log(config_name)
    app = build_app(
        socket,
        pairing=config_name,
        read_only=read_only,
        engine_stays=engine_stays,
        on_ready=on_ready,
        wishes=wishes or ScreenOptions(),
        tables=tables,
        journal=journal,
        signer=signer,
        start_steps=start_steps,
        report=crash.report,
    )
    try:
        return _run(app, crash)
    finally:
        app.keep_choices()


def run_browser(
    source: EntitySource, *, namespace: str, entity: str, by: str, close: Callable[[], Awaitable[None]]
) -> int:
    """Show the messages of a namespace's entities until the operator leaves; return the exit status.

    Args:
        namespace: its host, as it is shown.
        entity: the entity to open; empty: one is picked from the list.
        by: the operator's name.
        close: called at the end, in the screen's loop.
    """
    _prepare_environment()
    from paired_servicebus.ui.shell.browse_app import BrowseApp  # imports Textual
    from paired_servicebus.ui.shell.startup import screen_settings

    crash = _open_crash_log("browse")
    settings = screen_settings(ScreenOptions(no_mouse=True), load_preferences(config_folder()))
    app = BrowseApp(
        source, namespace=namespace, entity=entity, by=by, close=close, settings=settings, report=crash.report
    )
    return _run(app, crash)


def _open_crash_log(name: str) -> CrashLog:
    """Return the log of unexpected errors, and keep what libraries print from the screen."""
    from paired_servicebus.ui.display.crash_log import CrashLog

    crash = CrashLog(name)
    crash.quiet_libraries()
    return crash


def _run(app: TerminalApp, crash: CrashLog) -> int:
    """Run a screen and return the exit status; the terminal is as it was before, whatever happens."""
    status: int | None = None
    try:
        status = app.run(mouse=app.profile.mouse)
    except Exception as error:  # noqa: BLE001 - nothing may reach the terminal as a traceback
        crash.report(error)
    finally:
        app.restore_terminal()
    if crash.sentence:
        report_error(crash.sentence)
        return 1
    return status or 0


def _prepare_environment() -> None:
    """Set what Textual reads when it is imported."""
    for name, value in ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    for name in STALE:
        os.environ.pop(name, None)
