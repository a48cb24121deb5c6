"""A synthetic hour, for a journal without failures: three entities with one message a second each.

It has the kinds of outage in SPEC.md section 1: a node restart, throttling, a silent data centre, an unstable entity.
Every seed draws the start and end of each within its bounds.
"""

from __future__ import annotations

from typing import Final

from paired_servicebus.core.model.verdict import FailureKind
from paired_servicebus.pipeline.rehearsal.histories.recorded_history import (
    OfferedLoad,
    Outage,
    RateStep,
    RecordedHistory,
    TimeBounds,
)

ENTITIES: Final = ("orders", "payments", "audit")
SECONDS: Final = 3600.0
_SILENT: Final = tuple(
    Outage(path, FailureKind.TIMEOUT, TimeBounds(1500.0, 1502.0), TimeBounds(1620.0, 1860.0)) for path in ENTITIES
)
_FLAPS: Final = tuple(
    Outage("orders", FailureKind.CONNECTION, TimeBounds(at, at + 5.0), TimeBounds(at + 10.0, at + 35.0))
    for at in (2700.0, 2760.0, 2820.0)
)

HOUR: Final = RecordedHistory(
    source="a made-up hour",
    seconds=SECONDS,
    entities=ENTITIES,
    queues=10,
    loads=tuple(OfferedLoad(path=path, steps=(RateStep(0.0, 1.0),)) for path in ENTITIES),
    outages=(
        Outage("orders", FailureKind.INTERNAL, TimeBounds(300.0, 360.0), TimeBounds(380.0, 480.0)),
        Outage("audit", FailureKind.CONNECTION, TimeBounds(600.0, 900.0), TimeBounds(902.0, 910.0)),
        Outage("payments", FailureKind.BUSY, TimeBounds(1000.0, 1060.0), TimeBounds(1080.0, 1200.0), 0.5),
        *_SILENT,
        *_FLAPS,
    ),
    unknown=("anything of your own namespaces: nothing that failed was recorded, so the hour is made up",),
)
