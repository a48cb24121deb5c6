"""The counts of a pairing's backlog queues, read at the least cost: one list of the namespace's queues for all of them.

Counts that the list lacks are read queue by queue: if listing is refused, a queue is missing from the list, or the list
takes more requests.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from math import inf
from typing import Final

from azure.core.exceptions import AzureError

from paired_servicebus.core.backlog.parked_count import NOTHING, QueueCounters
from paired_servicebus.pairing.management.backlog_queues import CALL, depth
from paired_servicebus.pairing.management.management_port import (
    Depth,
    ListTooLongError,
    Management,
    is_refusal,
    is_transient,
)
from paired_servicebus.pairing.runtime.deadlines import bounded

LIST_RETRY_SECONDS: Final = 3600.0
"""Seconds until a list that was refused or too long is tried again."""

CountResult = Depth | Exception
"""A queue's counts, or the failure to read them."""


@dataclass(frozen=True, slots=True)
class DepthSample:
    """One queue's counts and the time of their reading."""

    depth: Depth
    read_at: float
    before: QueueCounters = NOTHING
    """This engine's work on the queue when the request began; `after`: when the answer arrived."""
    after: QueueCounters = NOTHING


class CountReader:
    """The reader of the counts.

    Args:
        queues: the paths of at least one queue by index, all under one prefix.
    """

    def __init__(self, admin: Management, queues: Mapping[int, str]) -> None:
        self._admin = admin
        self._queues = queues
        self._prefix = next(iter(queues.values())).rpartition("/")[0] + "/"
        self._no_list_before = -inf

    async def read(self) -> dict[int, CountResult]:
        """Read every queue's counts, by index."""
        try:
            listed = await self._list()
        except (AzureError, OSError, TimeoutError) as error:
            return dict.fromkeys(self._queues, error)
        found: dict[int, CountResult] = {}
        refusal: Exception | None = None
        for index, path in self._queues.items():
            result = listed.get(path.casefold()) or refusal or await self._read_single(path)
            if isinstance(result, Exception) and is_refusal(result):
                refusal = result  # the others would be refused as well
            found[index] = result
        return found

    async def _list(self) -> dict[str, Depth]:
        """Return the listed counts by path in lower case; empty if the list is of no use.

        Raises:
            AzureError, OSError, TimeoutError: nothing can be read now.
        """
        now = asyncio.get_running_loop().time()
        if now < self._no_list_before:
            return {}
        try:
            listing = self._admin.depths(self._prefix, pages=len(self._queues))
            return await bounded(listing, CALL, "listing the backlog queues")
        except ListTooLongError:
            pass
        except AzureError as error:
            if is_transient(error):
                raise
        self._no_list_before = now + LIST_RETRY_SECONDS
        return {}

    async def _read_single(self, path: str) -> CountResult:
        try:
            return await depth(self._admin, path)
        except (AzureError, OSError, TimeoutError) as error:
            return error
