"""The entities of one drill: made, made to fail, made to work again, deleted.

Each request has a deadline. Deletion goes by name: all names under the drill's own random id are its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from azure.core.exceptions import AzureError

from paired_servicebus.core.drill.drill_names import (
    DrillNote,
    DrillRole,
    drill_name,
    is_backlog,
    marker_path,
    role_path,
    run_of,
)
from paired_servicebus.core.drill.drill_plan import EFFECT_SECONDS, DrillPart, DrillPlan, EntityKind
from paired_servicebus.core.errors import DrillError
from paired_servicebus.pairing.management.backlog_queues import first_line
from paired_servicebus.pairing.management.management_port import QueueStatus, QueueWanted
from paired_servicebus.pairing.runtime.deadlines import bounded
from paired_servicebus.temporary_entities.managed_namespace import (
    MANAGING,
    ManagedNamespace,
    NotPermittedError,
    Side,
)

SUBSCRIPTION: Final = "receiver"
REMOVAL_PASSES: Final = 3
RETRY_PAUSE: Final = 1.0


class DrillEntities:
    """The entities of one drill in both namespaces."""

    def __init__(self, namespaces: Mapping[Side, ManagedNamespace], plan: DrillPlan, note: DrillNote) -> None:
        self._primary = namespaces[Side.PRIMARY]
        self._secondary = namespaces[Side.SECONDARY]
        self._plan = plan
        self._note = note

    def path(self, role: DrillRole) -> str:
        """Return the path of an entity in the primary namespace."""
        return role_path(self._note.run, role)

    @property
    def paths(self) -> tuple[str, ...]:
        """The paths of the entities in the primary namespace."""
        return tuple(self.path(part.role) for part in self._plan.parts)

    async def make(self) -> None:
        """Make the marker queue, then the entities in the primary. Raises DrillError."""
        marker = marker_path(self._note.run)
        await self._make(self._secondary, marker, self._queue(self._secondary, marker, sessions=False))
        for part in self._plan.parts:
            await self._make_part(part)

    async def disable(self, role: DrillRole) -> None:
        """Refuse sends to a queue. Raises DrillError."""
        await self._set_status(role, QueueStatus.SEND_DISABLED)

    async def enable(self, role: DrillRole) -> None:
        """Accept sends to a queue again. Raises DrillError."""
        await self._set_status(role, QueueStatus.ACTIVE)

    async def delete(self, role: DrillRole) -> None:
        """Delete a queue. Raises DrillError."""
        if not await self._primary.delete(self.path(role)):
            raise DrillError(f"{self.path(role)} cannot be deleted in the primary namespace")

    async def remake(self, part: DrillPart) -> None:
        """Make a deleted queue again, for EFFECT_SECONDS while the namespace still deletes it. Raises DrillError."""
        end = asyncio.get_running_loop().time() + EFFECT_SECONDS
        while True:
            try:
                return await self._make_part(part)
            except DrillError:
                if asyncio.get_running_loop().time() > end:
                    raise
            await asyncio.sleep(RETRY_PAUSE)

    async def remove(self) -> list[str]:
        """Delete everything under the drill's name; return the paths that may remain, with their namespace."""
        remains: list[str] = []
        for _ in range(REMOVAL_PASSES):
            remains = await self._remove_once()
            if not remains:
                break
            await asyncio.sleep(RETRY_PAUSE)
        return remains

    async def _remove_once(self) -> list[str]:
        """Delete by name, then the listed rest, the marker queue last; return what remains."""
        remains = []
        for part in self._plan.parts:
            path = self.path(part.role)
            if not await self._primary.delete(path, is_topic=part.kind is EntityKind.TOPIC):
                remains.append(f"{path} in the {self._primary.side} namespace")
        prefix = f"{drill_name(self._note.run)}/"
        try:
            queues = await bounded(self._secondary.admin.queues(prefix), MANAGING, "listing queues")
        except (AzureError, OSError, TimeoutError):
            return [*remains, f"{prefix}… in the {self._secondary.side} namespace"]
        for path in (one.path for one in queues if is_backlog(one.path) and run_of(one.path) == self._note.run):
            if not await self._secondary.delete(path):
                remains.append(f"{path} in the {self._secondary.side} namespace")
        marker = marker_path(self._note.run)
        if not remains and not await self._secondary.delete(marker):
            remains.append(f"{marker} in the {self._secondary.side} namespace")
        return remains

    async def _make_part(self, part: DrillPart) -> None:
        path = self.path(part.role)
        if part.kind is EntityKind.TOPIC:
            make = self._topic(path)
        else:
            make = self._queue(self._primary, path, sessions=part.kind is EntityKind.SESSION_QUEUE)
        await self._make(self._primary, path, make)

    def _topic(self, path: str) -> Callable[[], Awaitable[None]]:
        return lambda: self._primary.admin.create_topic(path, subscription=SUBSCRIPTION, metadata=str(self._note))

    def _queue(self, namespace: ManagedNamespace, path: str, *, sessions: bool) -> Callable[[], Awaitable[None]]:
        wanted = QueueWanted(sessions=sessions, metadata=str(self._note))
        return lambda: namespace.admin.create_queue(path, wanted)

    async def _make(self, namespace: ManagedNamespace, path: str, act: Callable[[], Awaitable[None]]) -> None:
        try:
            await namespace.make(act)
        except NotPermittedError as error:
            raise DrillError(lacks_manage(namespace.side)) from error
        except (AzureError, OSError, TimeoutError) as error:
            raise DrillError(
                f"the {namespace.side} namespace {namespace.host} does not make {path}: {first_line(error)}"
            ) from error

    async def _set_status(self, role: DrillRole, status: QueueStatus) -> None:
        path = self.path(role)
        try:
            await bounded(self._primary.admin.set_status(path, status), MANAGING, f"changing {path}")
        except (AzureError, OSError, TimeoutError) as error:
            raise DrillError(f"{path} cannot be set to {status}: {first_line(error)}") from error


def lacks_manage(side: Side) -> str:
    """Return the sentence about a credential without Manage."""
    return (
        f"a drill makes, disables and deletes entities of its own, and the credential of the {side} namespace lacks "
        "Manage: nothing can be made there. With Send and Listen, paired check says whether a failover would work, and "
        "paired demo shows one on this machine"
    )
