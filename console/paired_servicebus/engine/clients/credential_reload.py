"""Reloads changed keys and secrets without a restart.

The reloader reads pairing.toml and the files it names every few seconds, and immediately after a namespace refuses a
credential. It renews credentials in place (namespace_credentials.py); new links use them, open links stay open. A
change of any other setting is reported once and needs a restart. So does a secret from the environment, which cannot
change in a running process.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from paired_servicebus.config import PairingConfig, load_config
from paired_servicebus.core.errors import ConfigurationError
from paired_servicebus.core.model.verdict import FailureKind, Judge, Judgement, judge
from paired_servicebus.engine.clients.namespace_credentials import NamespaceCredentials, without_credentials

RELOAD_INTERVAL: Final = 5.0
"""Seconds between two readings of the files."""
MIN_RELOAD_INTERVAL: Final = 1.0
"""Seconds between two readings at least, however often a namespace refuses us."""
_REFUSED: Final = (FailureKind.UNAUTHENTICATED, FailureKind.UNAUTHORIZED)

log = logging.getLogger(__name__)


class CredentialReloader:
    """Reads the settings again while `run` runs.

    Args:
        config: the engine's settings at its start.
        primary, secondary: the credentials to renew.
        say: receives a sentence about each renewal or failure.
    """

    def __init__(
        self,
        config: PairingConfig,
        primary: NamespaceCredentials,
        secondary: NamespaceCredentials,
        say: Callable[[str], object],
    ) -> None:
        self._config = config
        self._sides = {"primary": primary, "secondary": secondary}
        self._say = say
        self._hurry = asyncio.Event()
        self._said = ""

    async def run(self) -> None:
        """Read and renew until cancelled."""
        while True:
            try:
                async with asyncio.timeout(RELOAD_INTERVAL - MIN_RELOAD_INTERVAL):
                    await self._hurry.wait()
            except TimeoutError:
                pass
            self._hurry.clear()
            await self.read()
            await asyncio.sleep(MIN_RELOAD_INTERVAL)

    async def read(self) -> None:
        """Read the files once, beside the event loop: they may lie on a slow disk."""
        try:
            found = await asyncio.to_thread(load_config, self._config.path)
            self._apply(found)
        except (ConfigurationError, ValueError) as error:
            self._say_once(f"{error}; the engine continues with its present settings")

    def judging(self, rules: Judge = judge) -> Judge:
        """Wrap `rules`: reload the files soon after a namespace refuses a credential."""

        def judged(error: BaseException) -> Judgement:
            judgement = rules(error)
            if judgement.kind in _REFUSED:
                self._hurry.set()
            return judgement

        return judged

    def _apply(self, found: PairingConfig) -> None:
        for side, access in self._sides.items():
            renewed = access.renew(getattr(found, side))
            if renewed:
                text = f"{renewed} of the {side} namespace was renewed; links use it from when they next open"
                log.info("%s", text)
                self._say(text)
        if _restart_settings(found) == _restart_settings(self._config):
            self._said = ""
        else:
            self._say_once(
                f"{found.path} was changed, and not only its credentials: restart the engine to apply the rest"
            )

    def _say_once(self, text: str) -> None:
        if text != self._said:
            log.warning("%s", text)
            self._say(text)
        self._said = text


def _restart_settings(config: PairingConfig) -> PairingConfig:
    """Return the settings that need a new engine when they change."""
    return replace(config, primary=without_credentials(config.primary), secondary=without_credentials(config.secondary))
