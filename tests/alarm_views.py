"""Made-up troubles for the tests of alarms, screens and verbs."""

from __future__ import annotations

from dataclasses import replace

from paired_servicebus.core.model.pairing_condition import PairingCondition
from paired_servicebus.core.model.snapshot import (
    Finding,
    FindingVerdict,
    Readiness,
    SyphonStatus,
    SyphonView,
    Trouble,
    TroubleKind,
)

NOON = 1_777_636_800.0
"""2026-05-01 12:00:00 UTC."""


def trouble(kind: TroubleKind, what: str = "", reason: str = "timeout", since: float | None = None) -> Trouble:
    return Trouble(kind=kind, what=what, reason=reason, since=since)


def remarks(*reasons: str) -> tuple[Trouble, ...]:
    """Alarms whose sentences are these reasons."""
    return tuple(trouble(TroubleKind.OTHER_NAME, str(number), reason) for number, reason in enumerate(reasons))


def obstacle(at: float, evidence: str, todo: str = "check the network") -> Readiness:
    """Readiness with one finding that says no."""
    return Readiness(at=at, findings=(Finding(what="x", verdict=FindingVerdict.NO, evidence=evidence, todo=todo),))


def condition(**changes: object) -> PairingCondition:
    """A pairing of which nothing is known."""
    syphon = SyphonView(status=SyphonStatus.IDLE, text="nothing to move")
    base = PairingCondition(at=NOON, read_at=NOON, primary="contoso", secondary="contoso-backup", syphon=syphon)
    return replace(base, **changes)  # type: ignore[arg-type]
