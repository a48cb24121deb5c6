"""Made-up deployments of a pairing on four hosts: two applications' web hosts, one that pays, and a jump host.

Each is told as what every engine sees; the snapshot of one of them is made by the code that engines run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from paired_servicebus.core.fleet.roster import EngineReport, merge_entities
from paired_servicebus.core.model.entity_state import WELL, State
from paired_servicebus.core.model.fleet_view import (
    FleetEngine,
    FleetEntityState,
    FleetFigures,
    FleetOrder,
    FleetStatus,
    FleetView,
    Takes,
)
from paired_servicebus.core.model.snapshot import (
    EntityView,
    ParkedView,
    Readiness,
    Snapshot,
    SyphonStatus,
    Trouble,
    TroubleKind,
)
from paired_servicebus.core.text.time_format import clock
from tests.fleet_views import at

from .conftest import AT, MadeUp

JUMP: Final = "jump"
"""The host of `paired up`: it sends nothing and runs the syphon."""
SENDERS: Final = ("web-1", "web-2", "pay-1")
MADE: Final = MadeUp()


def entity(path: str, state: State = State.HEALTHY, **changes: Any) -> EntityView:
    """An entity of one engine."""
    if state is State.HEALTHY:
        return MADE.entity(path, **{"sends_per_second": 4.0} | changes)
    return MADE.entity(path, state, **changes)


def over(path: str, began: str = "13:57:41", **changes: Any) -> EntityView:
    """An entity that one engine failed over after some refused calls."""
    began_at = at(began)
    base = {
        "since": began_at + 17, "first_failure_at": began_at, "first_failure_kind": "timeout", "route": "backlog/3",
        "why": f"timeout since {began}; ping 4 failed 14:02:03 (timeout); next 14:02:23", "refused": 26,
        "refused_in_outage": 26, "refused_at": began_at + 41, "next_ping_at": AT + 12, "last_ping_at": AT - 8,
        "sends_per_second": 1.1, "pings": 4,
    }  # fmt: skip
    return MADE.failed_over(path, **base | changes)


def lost(path: str, state: State = State.FAILED_OVER, **changes: Any) -> EntityView:
    """An entity whose calls fail: both namespaces are away since 14 s."""
    base = {
        "refused_per_second": 3.4, "refused_since": AT - 12, "refused": 40, "refused_in_outage": 40, "refused_at": AT,
        "sends_per_second": 0.0, "route": "nowhere", "first_failure_at": AT - 14,
    }  # fmt: skip
    return over(
        path, **base | {"state": state, "since": AT - 4, "why": "timeout since 14:01:57; first ping 14:02:58"} | changes
    )


def busy(path: str, **changes: Any) -> EntityView:
    """An entity whose calls wait, and some fail, because the namespace is busy; none is accepted."""
    base = {
        "throttled": 12, "throttled_since": AT - 22, "refused_per_second": 0.8, "refused_since": AT - 9, "refused": 8,
        "refused_at": AT, "refusals": (("the namespace is busy", 8),), "sends_per_second": 0.0,
    }  # fmt: skip
    return entity(path, **base | changes)


def hanging(path: str) -> EntityView:
    """An entity whose last call timed out 22 s ago; the next has no answer yet."""
    began = AT - 22
    base = {
        "since": began, "first_failure_at": began, "first_failure_kind": "timeout", "fails_over_at": AT + 6,
        "why": f"timeout {clock(began)}; fails over at {clock(AT + 6)} unless a send succeeds",
        "refused": 1, "refused_in_outage": 1, "refused_at": began, "refused_since": began, "sends_per_second": 0.0,
    }  # fmt: skip
    return entity(path, State.SUSPECT, **base)


@dataclass(frozen=True)
class Host:
    """One engine: what it sees, and whether it reports."""

    entities: tuple[EntityView, ...] = ()
    status: FleetStatus = FleetStatus.REPORTING
    heard_at: float = AT - 3
    syphon: SyphonStatus = SyphonStatus.OFF


@dataclass(frozen=True)
class Deployment:
    """The engines by name, what the console's engine knows beside, and the fleet's own state."""

    hosts: Mapping[str, Host]
    here: dict[str, Any] = field(default_factory=dict)
    """Fields of the snapshot of whichever engine the console is at."""
    fleet: dict[str, Any] = field(default_factory=dict)
    reported: Mapping[str, Host] = field(default_factory=dict)
    """What others have of engines whose latest figures did not reach the board."""

    def seen_from(self, name: str) -> Snapshot:
        """The snapshot of one engine."""
        reports = [
            EngineReport(engine=_engine(each, host), entities=host.entities, destinations=(), answers=())
            for each, host in {**self.hosts, **self.reported}.items()
        ]
        others = [one for one in reports if one.engine.engine != name]
        view = FleetView(
            me=name, my_boot=f"boot of {name}", engines=tuple(one.engine for one in reports),
            entities=merge_entities(others), read_at=AT - 3, watched=True, look_seconds=5.0, read_every=5.0,
        )  # fmt: skip
        mine = self.hosts[name]
        elsewhere = tuple(
            each for each, one in self.hosts.items() if one.syphon is not SyphonStatus.OFF and each != name
        )
        syphon = MADE.syphon(
            mine.syphon, text="holds messages until their destinations accept them", elsewhere=elsewhere
        )
        snapshot = MADE.snapshot(**{"fleet": replace(view, **self.fleet), "syphon": syphon} | self.here)
        return replace(snapshot, engine=name, entities=mine.entities)


def _engine(name: str, host: Host) -> FleetEngine:
    states = {state: sum(one.state is state for one in host.entities) for state in State}
    figures = FleetFigures(
        at=host.heard_at, sends_per_second=sum(one.sends_per_second for one in host.entities), accepted=900,
        diverted=13, refused=0, refused_per_second=sum(one.refused_per_second for one in host.entities), moved=0,
        parked=None,
    )  # fmt: skip
    return FleetEngine(
        engine=name, boot=f"boot of {name}", host=f"host of {name}", pid=4001, program="shop", version="1.0",
        environment="production", status=host.status, heard_at=host.heard_at, started_at=AT - 9000,
        states=tuple((state, number) for state, number in states.items() if number),
        not_well=tuple(
            FleetEntityState(path=one.path, state=one.state, since=one.since)
            for one in host.entities
            if one.state not in WELL
        ),
        queues=tuple(range(10)), syphon=host.syphon.value, takes=Takes.SIGNED, signers="abc", newest_order=0.0,
        figures=figures,
    )  # fmt: skip


ALL: Final = ("orders", "payments", "audit")
WELL_HOST: Final = Host(tuple(entity(path) for path in ALL))


def _hosts(**changes: Host) -> dict[str, Host]:
    """Three senders that are well and the jump host, but for the changes, by name with an underscore."""
    hosts = dict.fromkeys(SENDERS, WELL_HOST) | {JUMP: Host(syphon=SyphonStatus.IDLE)}
    return hosts | {name.replace("_", "-"): host for name, host in changes.items()}


def _with(make: Callable[[str], EntityView], *paths: str) -> Host:
    return Host(tuple(make(path) if path in paths else entity(path) for path in ALL))


def _parked(messages: int, **changes: Any) -> ParkedView:
    return ParkedView(messages=messages, read_at=AT - 2, known=10, queues=10, **changes)


PAYMENTS: Final = _with(over, "payments")
EVERY: Final = _with(over, *ALL)
OVERED: Final = Host(syphon=SyphonStatus.WAITING)


def _closed(reason: str = "connection refused", *indices: int) -> Any:
    shut = {"in_rotation": False, "pulled_since": AT - 12, "pulled_reason": reason}
    return tuple(replace(one, **shut) if not indices or one.index in indices else one for one in MADE.queues())


FORCED: Final = FleetOrder(
    id="o1", verb="force", targets=("payments",), by="kim", at=at("13:40:00"), until=at("17:40:00"),
    done=("web-1", "web-2"), refused=(("pay-1", "read-only"), ("jump", "read-only")), why="planned work",
)  # fmt: skip
UNREAD: Final = {
    "trouble": "connection refused", "trouble_since": AT - 9, "read_at": AT - 13,
}  # fmt: skip
AWAY: Final = Trouble(kind=TroubleKind.BACKLOG_UNREAD, reason="connection refused", since=AT - 13)
DEPLOYMENTS: Final[dict[str, Deployment]] = {
    "all well": Deployment(_hosts()),
    "one entity down at others": Deployment(
        _hosts(web_2=PAYMENTS, pay_1=PAYMENTS, jump=OVERED), {"parked": _parked(213)}
    ),
    "all down everywhere": Deployment(
        _hosts(web_1=EVERY, web_2=EVERY, pay_1=EVERY, jump=OVERED), {"parked": _parked(1_205)}
    ),
    "throttled": Deployment(
        _hosts(**{name: _with(busy, "payments") for name in ("web_1", "web_2", "pay_1")})
    ),
    "a black hole before its first time-out": Deployment(_hosts(
        web_1=_with(lambda path: entity(path, unanswered_since=AT - 17, sends_per_second=0.0), "orders"),
        web_2=_with(lambda path: entity(path, unanswered_since=AT - 12, sends_per_second=0.0), "orders"),
    )),
    "a black hole between time-outs": Deployment(
        _hosts(web_1=_with(hanging, "orders"), web_2=_with(hanging, "orders"))
    ),
    "total loss with the board": Deployment(
        _hosts(web_1=_with(lost, *ALL)),
        {"queues": _closed(), "troubles": (AWAY,), "readiness": Readiness(at=AT, findings=())}, UNREAD,
        {"web-1": WELL_HOST},
    ),
    "one engine silent": Deployment(
        _hosts(pay_1=replace(WELL_HOST, status=FleetStatus.SILENT, heard_at=at("13:58:10")))
    ),
    "expected never heard": Deployment(_hosts(), fleet={"expected": 7}),
    "a backlog queue refusing": Deployment(
        _hosts(web_1=PAYMENTS, web_2=PAYMENTS, pay_1=PAYMENTS, jump=OVERED),
        {"queues": _closed("entity disabled", 6), "parked": _parked(213)},
    ),
    "an engine without senders": Deployment(_hosts(web_2=Host())),
    "a flapping primary": Deployment(
        _hosts(web_1=_with(lambda path: over(path, "14:02:01", failovers=9), "orders"), web_2=_with(
            lambda path: entity(path, State.SUSPECT, since=AT - 2, fails_over_at=AT + 6, first_failure_at=AT - 2,
                                first_failure_kind="connection lost",
                                why="connection lost 14:02:09; fails over at 14:02:17 unless a send succeeds"),
            "orders")),
        {"parked": _parked(31)},
    ),
    "healed a minute ago": Deployment(
        _hosts(jump=Host(syphon=SyphonStatus.RUNNING)),
        {"parked": _parked(402, draining_since=AT - 50, drained_per_second=9.8, empty_at=AT + 41)},
    ),
    "forced over the fleet": Deployment(
        _hosts(web_1=_with(MADE.forced, "payments"), web_2=_with(MADE.forced, "payments"), jump=OVERED),
        {"parked": _parked(80)}, {"orders": (FORCED,)},
    ),
    "brownout": Deployment(_hosts(**{
        name: _with(lambda path: entity(path, p99=7.2, is_slow=True), "orders") for name in ("web_1", "web_2", "pay_1")
    })),
    "stranded and dead letters during an outage": Deployment(
        _hosts(web_1=PAYMENTS, web_2=PAYMENTS, pay_1=PAYMENTS, jump=OVERED),
        {"parked": _parked(213), "unused": MADE.unused(),
         "queues": tuple(replace(one, dead_lettered=7 if one.index == 2 else 0) for one in MADE.queues())},
    ),
}  # fmt: skip
