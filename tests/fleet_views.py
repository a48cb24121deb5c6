"""Made-up fleets for the tests of sentences, verbs, metrics and screens."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from paired_servicebus.core.model.entity_state import State
from paired_servicebus.core.model.fleet_view import (
    FleetEngine,
    FleetEntity,
    FleetEntityState,
    FleetFigures,
    FleetOrder,
    FleetStatus,
    FleetView,
    Takes,
)
from paired_servicebus.core.model.pairing_fold import PairingView, fold
from paired_servicebus.core.model.snapshot import EntityView

AT = datetime(2026, 11, 20, 14, 2, 11, tzinfo=UTC).timestamp()
ENTITIES = ("orders", "payments", "audit")


def at(text: str) -> float:
    """14:02:03 on that day."""
    clock = datetime.strptime(text, "%H:%M:%S").time()
    return datetime.combine(datetime.fromtimestamp(AT, UTC).date(), clock, UTC).timestamp()


def engine(number: int, state: State = State.HEALTHY, **changes: Any) -> FleetEngine:
    """The engine of one host: `payments` in `state`, everything else healthy."""
    bad = state is not State.HEALTHY
    base = FleetEngine(
        engine=f"web-{number}", boot=f"b{number}", host=f"host-{number}", pid=4000 + number, program="shop",
        version="1.0", environment="production", status=FleetStatus.REPORTING, heard_at=AT - 3, started_at=AT - 9000,
        states=((state, 1), (State.HEALTHY, 2)) if bad else ((State.HEALTHY, 3),),
        not_well=(FleetEntityState(path="payments", state=state, since=at("14:01:58")),) if bad else (),
        queues=(0, 1), syphon="off", takes=Takes.SIGNED, signers="abc", newest_order=0.0,
        figures=FleetFigures(
            at=AT - 3, sends_per_second=38.0, accepted=1000, diverted=10, refused=0, refused_per_second=0.0, moved=0,
            parked=None,
        ),
    )  # fmt: skip
    return replace(base, **changes)


def own(path: str = "payments", state: State = State.HEALTHY, **changes: Any) -> EntityView:
    """An entity of the engine whose view it is."""
    base = EntityView(
        path=path, state=state, since=AT - 60, why="", route="primary", sends_per_second=2.0, accepted=5, diverted=0,
        failed=0,
    )  # fmt: skip
    return replace(base, **changes)


def seen(view: FleetView) -> PairingView:
    """The pairing by an engine that is well, and that has this view of the fleet."""
    return fold(tuple(own(path) for path in ENTITIES), view, AT)


def outage(**changes: Any) -> FleetView:
    """Twenty engines: payments failed over in 15, healthy in 3, two engines silent; one order stands.

    The entities are those of the engines but web-16, whose view it is.
    """
    over = [engine(number, State.FAILED_OVER) for number in range(1, 16)]
    well = [engine(16), engine(17, takes=Takes.READ_ONLY), engine(18, syphon="running")]
    silent = [
        engine(19, engine="pay-3", status=FleetStatus.SILENT, heard_at=at("13:58:10")),
        engine(20, engine="pay-4", status=FleetStatus.SILENT, heard_at=at("13:58:40")),
    ]
    since = tuple((one.engine, State.FAILED_OVER, at("14:01:58")) for one in over)
    payments = FleetEntity(
        path="payments", states=((State.FAILED_OVER, 15), (State.HEALTHY, 2)), silent=2, unreported=2, engines=since,
        first_failure_at=at("14:00:58"), causes=(("timeout", 15),), sends_per_second=570.0, refused_per_second=0.0,
        refused_in_outage=19, refused_at=at("14:02:03"), routes=(("backlog", 15), ("primary", 2)),
        next_ping_at=AT + 5, last_ping_at=AT - 8, last_ping_good=False,
    )  # fmt: skip
    healthy = [
        FleetEntity(
            path=path, states=((State.HEALTHY, 17),), silent=2, unreported=2, sends_per_second=646.0,
            refused_per_second=0.0, routes=(("primary", 17),),
        )
        for path in ("orders", "audit")
    ]  # fmt: skip
    order = FleetOrder(
        id="o1", verb="force", targets=("audit",), by="operator-a", at=at("14:02:00"), until=at("18:02:00"),
        done=tuple(one.engine for one in (*over, *well[:1], *well[2:])), refused=(("web-17", "read-only"),),
        silent=(("pay-3", at("13:58:10")), ("pay-4", at("13:58:40"))),
    )  # fmt: skip
    base = FleetView(
        me="web-16", engines=(*over, *well, *silent), entities=(payments, *healthy), orders=(order,),
        read_at=AT - 3, watched=True, look_seconds=5.0, expected=20,
    )  # fmt: skip
    return replace(base, **changes)


def total_loss() -> FleetView:
    """Twenty engines that lose every send: their three entities failed over in 18, two engines are silent."""
    lost = replace(engine(1, State.FAILED_OVER).figures, sends_per_second=0.0, refused=90, refused_per_second=12.0)
    over = [engine(number, State.FAILED_OVER, figures=lost) for number in range(1, 19)]
    since = tuple((one.engine, State.FAILED_OVER, at("14:01:55")) for one in over[1:])
    entities = tuple(
        FleetEntity(
            path=path, states=((State.FAILED_OVER, 17),), silent=2, unreported=2, engines=since, sends_per_second=0.0,
            refused_per_second=68.0, refused_in_outage=1530, refused_at=AT, refused_since=at("14:01:56"),
            failing=tuple(sorted(one.engine for one in over[1:])), failing_count=17, first_failure_at=at("14:01:55"),
            causes=(("timeout", 17),), routes=(("nowhere", 17),),
        )
        for path in ENTITIES
    )  # fmt: skip
    return replace(outage(orders=()), me="web-1", engines=(*over, *outage().engines[-2:]), entities=entities)


def calm() -> FleetView:
    """Three healthy engines."""
    return FleetView(
        me="web-1", engines=tuple(engine(number) for number in (1, 2, 3)), read_at=AT - 3,
        entities=tuple(
            FleetEntity(
                path=path, states=((State.HEALTHY, 2),), sends_per_second=76.0, refused_per_second=0.0,
                routes=(("primary", 2),),
            )
            for path in ENTITIES
        ),
    )  # fmt: skip
