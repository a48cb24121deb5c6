"""A namespace in which a command makes entities: each request within a deadline, each refusal once."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

from azure.core.exceptions import AzureError, ResourceNotFoundError

from paired_servicebus.core.model.namespace_info import ServiceTier
from paired_servicebus.pairing.management.management_port import TopicManagement, is_refusal, is_transient
from paired_servicebus.pairing.runtime.deadlines import bounded

MANAGING: Final = 20.0
"""Seconds for one management request."""
DELETE_TRIES: Final = 3
RETRY_PAUSE: Final = 1.0

log = logging.getLogger(__name__)


class Side(StrEnum):
    """A namespace of the pairing; its name in all results."""

    PRIMARY = "primary"
    SECONDARY = "secondary"


class NotPermittedError(Exception):
    """The credential lacks a right that the command needs."""


@dataclass(slots=True)
class ManagedNamespace:
    """One namespace. refused: why no entity can be made there, once known."""

    side: Side
    host: str
    admin: TopicManagement
    tier: ServiceTier = field(default=ServiceTier.UNKNOWN, kw_only=True)
    refused: str = field(default="", kw_only=True)
    making: asyncio.Lock = field(default_factory=asyncio.Lock, kw_only=True)

    async def make(self, act: Callable[[], Any]) -> None:
        """Create an entity. Raises NotPermittedError, and azure-core's errors."""
        async with self.making:  # a refusal is learned once, not by each caller
            if self.refused:
                raise NotPermittedError(self.refused)
            try:
                await bounded(act(), MANAGING, "making an entity")
            except AzureError as error:
                if is_refusal(error):
                    self.refused = f"the credential of the {self.side} namespace lacks Manage, which queues need"
                    raise NotPermittedError(self.refused) from error
                raise

    async def delete(self, path: str, *, is_topic: bool = False) -> bool:
        """Delete a queue or topic if it exists; return whether it is certainly gone."""
        act = self.admin.delete_topic if is_topic else self.admin.delete_queue
        for attempt in range(DELETE_TRIES):
            try:
                await bounded(act(path), MANAGING, "deleting an entity")
                return True
            except ResourceNotFoundError:
                return True
            except (AzureError, OSError, TimeoutError) as error:
                log.info("an entity was not deleted: %s", type(error).__name__)
                if isinstance(error, AzureError) and not is_transient(error):
                    return False
            await asyncio.sleep(RETRY_PAUSE * attempt)
        return False
