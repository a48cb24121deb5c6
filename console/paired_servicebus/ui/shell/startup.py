"""Builds the app from preferences, the engine's feed and its neighbours'.

Imports Textual: only `paired_servicebus.ui.run_dashboard` imports this, after it set Textual's variables.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from paired_servicebus.engine.control.control_client import user_name
from paired_servicebus.engine.instance.engine_paths import engine_paths, journals_here
from paired_servicebus.ui.display.profile import PROFILES, Profile, ScreenOptions, notifies_once, profile_for
from paired_servicebus.ui.display.terminal_app import Report
from paired_servicebus.ui.display.theme import folder, load_all, theme_for
from paired_servicebus.ui.engines.feed import EngineFeed, MultiEngineFeed, OrderSigner
from paired_servicebus.ui.shell.app import PairedApp, no_tables
from paired_servicebus.ui.shell.kept_choices import NAME, ChoiceKeeper
from paired_servicebus.ui.shell.preferences import Preferences, config_folder, load_preferences
from paired_servicebus.ui.state import incident_history
from paired_servicebus.ui.state.incident_history import IncidentHistory


@dataclass(frozen=True, slots=True)
class ScreenSettings:
    """The initial settings of the screen."""

    theme: str
    profile: Profile
    bell: bool = True
    notify: bool = True


def screen_settings(
    options: ScreenOptions, preferences: Preferences, keeper: ChoiceKeeper | None = None
) -> ScreenSettings:
    """Return the settings: options override console.toml, which overrides the terminal's variables.

    A theme that a key chose counts until console.toml or the terminal asks for another than at that time.
    """
    name = options.profile or preferences.profile
    profile = replace(PROFILES[name], notifies_once=notifies_once(os.environ)) if name else profile_for(os.environ)
    mouse = profile.mouse if preferences.mouse is None else preferences.mouse
    usual = preferences.theme or theme_for(os.environ, ascii_only=profile.ascii)
    theme = keeper.theme(usual, options.theme) if keeper is not None else usual
    os.environ.pop("NO_COLOR", None)  # a theme obeys it; Textual would send greys
    return ScreenSettings(
        theme,
        replace(profile, mouse=mouse and not options.no_mouse),
        bell=not options.no_bell and preferences.bell is not False,
        notify=preferences.notify is not False,
    )


def _past(shown_first: str, its_tables: Path, its_journal: Path | None, pairing: str, chosen: str) -> IncidentHistory:
    """Read the tables of the pairing on screen and every journal here; of a demo, its own journal alone."""
    here = journals_here()
    if pairing != shown_first:
        return incident_history.read_history(engine_paths(pairing).tables, chosen, journals=here, pairing=pairing)
    if its_journal is not None and its_journal not in here:
        return incident_history.read_history(its_tables, chosen, journals=(its_journal,))
    return incident_history.read_history(its_tables, chosen, journals=here, pairing=pairing)


def build_app(
    socket: Path,
    *,
    pairing: str,
    read_only: bool,
    engine_stays: bool,
    on_ready: Callable[[], None],
    wishes: ScreenOptions,
    tables: Path | None,
    journal: Path | None,
    signer: OrderSigner | None,
    start_steps: Callable[[], Sequence[str]],
    report: Report,
) -> PairedApp:
    """Build the app for the engine behind `socket`. See run_dashboard and PairedApp."""
    preferences = load_preferences(config_folder())
    keeper = ChoiceKeeper(engine_paths(pairing).state / NAME, pairing=pairing)
    settings = screen_settings(wishes, preferences, keeper)
    neighbours = MultiEngineFeed(socket, read_only=read_only) if engine_stays else None

    def ready() -> None:
        app.collector.start()
        on_ready()

    app = PairedApp(
        neighbours or EngineFeed(socket, read_only=read_only),
        others=neighbours,
        pairing=pairing,
        by=user_name(),
        read_only=read_only,
        engine_stays=engine_stays,
        report=report,
        on_ready=ready,
        themes=load_all(folder(), config_folder() / "themes"),
        theme=settings.theme,
        profile=settings.profile,
        bell=settings.bell,
        notify=settings.notify,
        notices=[preferences.notice] if preferences.notice else [],
        price=preferences.price,
        past=partial(_past, pairing, tables, journal) if tables is not None else no_tables,
        keys=preferences.keys,
        keeper=keeper,
        start_steps=start_steps,
        signer=signer,
    )
    return app
