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
from paired_servicebus.core.drill.drill_plan import EFFECT_SECONDS, PARTS, DrillPart, DrillPlan, EntityKind
from paired_servicebus.core.errors import DrillError
from paired_servicebus.pairing.management.backlog_queues import first_line
from paired_servicebus.pairing.management.management_port import (
    QueueStatus,
    QueueWanted,
    is_there_already,
    is_transient,
)
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
        await self._make_queue(self._secondary, marker_path(self._note.run))
        for part in self._plan.parts:
            await self.make_part(part)

    async def make_part(self, part: DrillPart) -> None:
        """Make an entity in the primary. Raises DrillError."""
        path, admin = self.path(part.role), self._primary.admin
        if part.kind is EntityKind.TOPIC:
            await self._make(self._primary, path, lambda: admin.create_topic(path, metadata=str(self._note)))
            await self._make(self._primary, path, lambda: admin.create_subscription(path, SUBSCRIPTION))
        else:
            await self._make_queue(self._primary, path, sessions=part.kind is EntityKind.SESSION_QUEUE)

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

    async def remove(self) -> list[str]:
        """Delete everything under the drill's name; return the paths that may remain, with their namespace.

        The last pass finds nothing: a creation that was cut off may have reached the namespace after its deletion.
        """
        remains = list(self.paths)
        for _ in range(REMOVAL_PASSES):
            remains = await self._remove_once() or await self._listed()
            if not remains:
                break
            await asyncio.sleep(RETRY_PAUSE)
        return remains

    async def _remove_once(self) -> list[str]:
        """Delete by name, then the listed backlog queues, the marker queue last; return what remains."""
        topics = {self.path(part.role) for part in self._plan.parts if part.kind is EntityKind.TOPIC}
        remains = [path for path in self.paths if not await self._primary.delete(path, is_topic=path in topics)]
        try:
            backlog = [path for path in await self._listed_in(self._secondary) if is_backlog(path)]
        except (AzureError, OSError, TimeoutError) as error:
            return [*remains, self._not_listed(error)]
        remains += [path for path in backlog if not await self._secondary.delete(path)]
        marker = marker_path(self._note.run)
        if not remains and not await self._secondary.delete(marker):
            remains.append(marker)
        return remains

    async def _listed(self) -> list[str]:
        """Return the paths that both namespaces list; a sentence if one does not answer."""
        try:
            return [*await self._listed_in(self._primary), *await self._listed_in(self._secondary)]
        except (AzureError, OSError, TimeoutError) as error:
            return [self._not_listed(error)]

    async def _listed_in(self, namespace: ManagedNamespace) -> list[str]:
        """Return the paths of the drill's entities. Raises azure-core's errors, OSError, TimeoutError."""
        prefix = f"{drill_name(self._note.run)}/"
        queues = await bounded(namespace.admin.queues(prefix), MANAGING, "listing queues")
        paths = [one.path for one in queues]
        if namespace is self._primary and self._plan.parts == PARTS:
            paths += [one.path for one in await bounded(namespace.admin.topics(prefix), MANAGING, "listing topics")]
        return [path for path in paths if run_of(path) == self._note.run]

    def _not_listed(self, error: Exception) -> str:
        return f"{drill_name(self._note.run)}/… (the namespace does not list its entities: {first_line(error)})"

    async def _make_queue(self, namespace: ManagedNamespace, path: str, *, sessions: bool = False) -> None:
        wanted = QueueWanted(sessions=sessions, metadata=str(self._note))
        await self._make(namespace, path, lambda: namespace.admin.create_queue(path, wanted))

    async def _make(self, namespace: ManagedNamespace, path: str, act: Callable[[], Awaitable[None]]) -> None:
        try:
            await _insist(lambda: namespace.make(act))
        except NotPermittedError as error:
            raise DrillError(lacks_manage(namespace.side)) from error
        except (AzureError, OSError, TimeoutError) as error:
            raise DrillError(
                f"the {namespace.side} namespace {namespace.host} does not make {path}: {first_line(error)}"
            ) from error

    async def _set_status(self, role: DrillRole, status: QueueStatus) -> None:
        path, admin = self.path(role), self._primary.admin
        try:
            await _insist(lambda: bounded(admin.set_status(path, status), MANAGING, f"changing {path}"))
        except (AzureError, OSError, TimeoutError) as error:
            raise DrillError(f"{path} cannot be set to {status}: {first_line(error)}") from error


async def _insist(act: Callable[[], Awaitable[None]]) -> None:
    """Repeat a request for EFFECT_SECONDS while its failure is transient. Raises its last error.

    A namespace that still deletes a queue refuses to make it again. An entity that exists was made by an earlier try:
    the drill's id is random.
    """
    end = asyncio.get_running_loop().time() + EFFECT_SECONDS
    while True:
        try:
            return await act()
        except (AzureError, OSError, TimeoutError) as error:
            if is_there_already(error):
                return None
            is_lasting = isinstance(error, AzureError) and not is_transient(error)
            if is_lasting or asyncio.get_running_loop().time() > end:
                raise
        await asyncio.sleep(RETRY_PAUSE)


def lacks_manage(side: Side) -> str:
    """Return the sentence about a credential without Manage."""
    return (
        f"a drill makes, disables and deletes entities of its own, and the credential of the {side} namespace lacks "
        "Manage: nothing can be made there. With Send and Listen, paired check says whether a failover would work, and "
        "paired demo shows one on this machine"
    )
