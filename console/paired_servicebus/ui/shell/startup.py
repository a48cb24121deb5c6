"""Builds the app from preferences, the engine's feed and its neighbours'.

Imports Textual: only `paired_servicebus.ui.run_dashboard` imports this, after it set Textual's variables.

"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from paired_servicebus.engine.control.control_client import user_name
from paired_servicebus.engine.instance.engine_paths import engine_paths
from paired_servicebus.ui.display.profile import PROFILES, Profile, ScreenOptions, profile_for
from paired_servicebus.ui.display.terminal_app import Report
from paired_servicebus.ui.display.theme import folder, load_all, theme_for
from paired_servicebus.ui.engines.feed import EngineFeed
from paired_servicebus.ui.engines.other_engines import MultiEngineFeed
from paired_servicebus.ui.shell.app import PairedApp, no_tables
from paired_servicebus.ui.shell.preferences import Preferences, config_folder
from paired_servicebus.ui.state import incident_history
from paired_servicebus.ui.state.incident_history import HistoryNews


@dataclass(frozen=True, slots=True)
class ScreenSettings:
    """The initial settings of the screen."""

    theme: str
    profile: Profile
    mouse: bool
    bell: bool


def screen_settings(wishes: ScreenOptions, chosen: Preferences) -> ScreenSettings:
    """Return the settings: options override console.toml, which overrides the terminal's variables."""
    asked = wishes.profile or chosen.profile
    profile = PROFILES[asked] if asked else profile_for(os.environ)
    theme = wishes.theme or chosen.theme or theme_for(os.environ, ascii_only=profile.ascii)
    os.environ.pop("NO_COLOR", None)  # a theme obeys it; Textual would send greys
    return ScreenSettings(
        theme,
        profile,
        mouse=not wishes.no_mouse and (profile.mouse if chosen.mouse is None else chosen.mouse),
        bell=not wishes.no_bell and chosen.bell is not False,
    )


def _past(shown_first: str, its_tables: Path, pairing: str, chosen: str) -> HistoryNews:
    """Read the tables of the engine on screen; other engines have theirs in their default folder."""
    return incident_history.read_history(its_tables if pairing == shown_first else engine_paths(pairing).tables, chosen)


def build_app(
    socket: Path,
    *,
    pairing: str,
    read_only: bool,
    engine_stays: bool,
    tables: Path | None,
    look: ScreenSettings,
    chosen: Preferences,
    on_ready: Callable[[], None],
    report: Report,
) -> PairedApp:
    """Build the app for the engine behind `socket`. See PairedApp."""
    feed = EngineFeed(socket, read_only=read_only)
    around = MultiEngineFeed(feed, socket, read_only=read_only) if engine_stays else None
    return PairedApp(
        around or feed,
        others=around,
        pairing=pairing,
        by=user_name(),
        read_only=read_only,
        engine_stays=engine_stays,
        report=report,
        on_ready=on_ready,
        themes=load_all(folder(), config_folder() / "themes"),
        theme=look.theme,
        profile=look.profile,
        bell=look.bell,
        notices=[chosen.notice] if chosen.notice else [],
        price=chosen.price,
        past=partial(_past, pairing, tables) if tables is not None else no_tables,
        keys=chosen.keys,
    )
