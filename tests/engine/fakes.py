"""A pairing made of plain values, for tests of what surrounds one."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from console.core.entity import State
from console.core.errors import IllegalEventError
from console.core.snapshot import BilledView, EntityView, QueueView, SyphonStatus, SyphonView


def entity(path: str, state: State = State.HEALTHY) -> EntityView:
    """An entity's view with nothing special about it."""
    return EntityView(
        path=path, state=state, since=1.0, why="because", route="primary", sends_per_second=0.0, accepted=0, diverted=0,
        failed=0,
    )  # fmt: skip


@dataclass
class FakePairing:
    """Does what it is told and remembers it."""

    entities: dict[str, EntityView] = field(default_factory=dict)
    acts: list[tuple[str, ...]] = field(default_factory=list)
    syphon: SyphonView = field(default_factory=lambda: SyphonView(status=SyphonStatus.IDLE, text="nothing to move"))
    backlog_queue_count: int = 2
    primary_name: str = "contoso"
    secondary_name: str = "contoso-backup"

    def watch(self, path: str) -> None:
        self.entities[path] = entity(path, State.UNKNOWN)

    def force(self, path: str, *, by: str, why: str = "") -> str:
        return self._turn("force", path, State.FORCED, by, why)

    def pin(self, path: str, *, by: str, why: str = "") -> str:
        return self._turn("pin", path, State.PINNED, by, why)

    def release(self, path: str, *, by: str, why: str = "") -> str:
        if self.entities[path].state is State.HEALTHY:
            raise IllegalEventError(f"{path} is healthy: there is nothing to release")
        return self._turn("release", path, State.HEALTHY, by, why)

    def pause_syphon(self, *, by: str, why: str = "") -> str:
        self.acts.append(("pause", by, why))
        self.syphon = replace(self.syphon, status=SyphonStatus.PAUSED)
        return "the syphon is paused"

    def resume_syphon(self, *, by: str, why: str = "") -> str:
        self.acts.append(("resume", by, why))
        self.syphon = replace(self.syphon, status=SyphonStatus.IDLE)
        return "the syphon goes on"

    def entity_views(self) -> tuple[EntityView, ...]:
        return tuple(self.entities.values())

    def queue_views(self) -> tuple[QueueView, ...]:
        return tuple(
            QueueView(index=index, path=f"contoso/x-servicebus-transfer/{index}", in_rotation=True)
            for index in range(self.backlog_queue_count)
        )

    def syphon_view(self) -> SyphonView:
        return self.syphon

    def billed(self) -> BilledView:
        return BilledView(sends=3)

    def alarms(self) -> tuple[str, ...]:
        return ()

    def _turn(self, act: str, path: str, state: State, by: str, why: str) -> str:
        self.acts.append((act, path, by, why))
        self.entities[path] = entity(path, state)
        return f"{path} is {state} now"
