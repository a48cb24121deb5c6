"""A changed key or secret is picked up without a restart.

pairing.toml and the files it points to are read again every few seconds, and at once when a namespace refuses us. What
lets us in is renewed in place (access.py) and counts from the next link on; links that are open stay open. All other
settings are the engine's until it ends, and a change of one is said once. The environment of a running process cannot
change: a secret that comes from there is renewed by a restart alone.
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
    """Reads the settings again, as long as `run` runs.

    Args:
        config: as the engine was started with.
        primary, secondary: what is renewed.
        say: told a sentence when something was renewed, or cannot be.
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
            self._take(found)
        except (ConfigurationError, ValueError) as error:
            self._say_once(f"{error}; the engine goes on with the settings that it has")

    def judging(self, rules: Judge = judge) -> Judge:
        """`rules`, and a look at the files whenever a namespace refused us."""

        def judged(error: BaseException) -> Judgement:
            judgement = rules(error)
            if judgement.kind in _REFUSED:
                self._hurry.set()
            return judgement

        return judged

    def _take(self, found: PairingConfig) -> None:
        for side, access in self._sides.items():
            renewed = access.renew(getattr(found, side))
            if renewed:
                text = f"{renewed} of the {side} namespace was renewed; links use it from when they next open"
                log.info("%s", text)
                self._say(text)
        if _lasting(found) == _lasting(self._config):
            self._said = ""
        else:
            self._say_once(
                f"{found.path} was changed, and not only in what lets us in: start the engine again to use the rest"
            )

    def _say_once(self, text: str) -> None:
        if text != self._said:
            log.warning("%s", text)
            self._say(text)
        self._said = text


def _lasting(config: PairingConfig) -> PairingConfig:
    """What takes a new engine when it changes."""
    return replace(config, primary=without_credentials(config.primary), secondary=without_credentials(config.secondary))
