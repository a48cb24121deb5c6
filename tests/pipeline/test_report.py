"""The incident report: every figure from tables in a test's hand, and the words that a person reads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from paired_servicebus.core.accounting.billing import Price
from paired_servicebus.core.errors import ConfigurationError, NoTablesError
from paired_servicebus.core.model import pairing_events as e
from paired_servicebus.core.model.verdict import FailureKind
from paired_servicebus.pipeline.report.report_command import Wording, as_text, chooser, moment
from paired_servicebus.pipeline.report.report_queries import last_report, report_of, report_since
from paired_servicebus.pipeline.report.report_values import TOGETHER, IncidentEpisode, Report, failovers, incidents
from paired_servicebus.pipeline.report.sentences import duration, percent
from tests.pipeline.report_tables import MemoryTables, run_report

T = 1_700_000_000.0
"""2023-11-14 22:13:20 UTC."""


def sends(at: float, accepted: int, failed: int = 0, route: str = "primary") -> e.SendsCounted:
    return e.SendsCounted(at=T + at, entity="orders", route=route, accepted=accepted, failed=failed, seconds=1.0)


def operations(at: float, **counts: int) -> e.OperationsCounted:
    nothing = dict.fromkeys(
        ("sends", "parked", "pings", "receives", "moves", "settlements", "sent_bytes", "parked_bytes", "moved_bytes"), 0
    )
    return e.OperationsCounted(at=T + at, **{**nothing, **counts})


START = e.EngineStarted(
    at=T - 20,
    pairing="shop",
    primary="weu.example",
    secondary="neu.example",
    backlog_queues=4,
    syphon=True,
    version="1",
)
EVENTS: tuple[e.Event, ...] = (
    START,
    *(sends(at, 10) for at in range(1, 61)),
    *(e.Delivered(at=T + at, entity="orders", message_id=f"d{at}") for at in range(1, 61)),
    e.StateChanged(at=T + 62, entity="orders", was="healthy", now="suspect", why="timeout"),
    sends(63, 0, 8),
    e.Refused(at=T + 63, entity="orders", message_id="r1", reason="timeout"),
    e.FailuresCounted(at=T + 63, entity="orders", route="primary", failure=FailureKind.TIMEOUT, count=8),
    e.StateChanged(at=T + 72, entity="orders", was="suspect", now="failed over", why="no send accepted for 10 s"),
    e.QueuePulled(at=T + 72.5, queue=3, reason="timeout"),
    *(e.Diverted(at=T + 73 + number, entity="orders", message_id=f"p{number}", queue=1) for number in range(20)),
    *(sends(at, 10, route="backlog/1") for at in range(74, 100)),
    e.QueueRead(at=T + 95, queue=1, depth=20, size_bytes=2000, dead_lettered=0, scheduled=0),
    *(
        e.PingFailed(at=T + at, entity="orders", number=number, reason="timeout", took=2.0)
        for number, at in enumerate((80, 85, 90), 1)
    ),
    e.Commanded(at=T + 91, command="pause-syphon", target="", by="anna", why="to look"),
    e.CommandEnded(at=T + 91.1, command_seq=0, outcome="done"),
    e.PingAccepted(at=T + 100, entity="orders", number=4, took=0.1),
    e.StateChanged(at=T + 100, entity="orders", was="failed over", now="healthy", why="a ping was accepted"),
    *(e.Moved(at=T + 101 + number, entity="orders", message_id=f"p{number}", queue=1) for number in range(18)),
    e.QueueRead(at=T + 120, queue=1, depth=2, size_bytes=200, dead_lettered=0, scheduled=0),
    *(sends(at, 10) for at in range(101, 201)),
    operations(30, sends=600, sent_bytes=1_500_000, receives=2),
    operations(90, sends=600, parked=20, parked_bytes=20_000, receives=6),
    operations(110, moves=18, settlements=18, moved_bytes=20_000, pings=4),
)
EPISODE: Mapping[str, object] = {
    "id": "e-one-orders-1",
    "pairing": "shop",
    "engine": "e",
    "boot": "one",
    "entity": "orders",
    "began_at": T + 62,
    "suspected_at": T + 62,
    "failed_over_at": T + 72,
    "first_diverted_at": T + 73,
    "first_ping_at": T + 100,
    "failed_back_at": T + 100,
    "backlog_empty_at": T + 119,
    "last_good_at": T + 60,
    "last_at": T + 119,
    "outcome": "failed back",
    "end_reason": "",
    "forced": False,
    "cause": "timeout",
    "pings_sent": 4,
    "parked": 20,
    "moved": 18,
    "dead_lettered": 0,
}


def records(*events: e.Event, engine: str = "e") -> list[e.Record]:
    found = []
    for number, event in enumerate(events, 1):
        if isinstance(event, e.CommandEnded):
            event = e.CommandEnded(at=event.at, command_seq=number - 1, outcome=event.outcome)
        found.append(e.Record(engine=engine, boot="one", seq=number, event=event))
    return found


def made(*more: e.Event, **rows: list[Mapping[str, object]]) -> MemoryTables:
    return _base(*more).again(**rows)


@cache
def _base(*more: e.Event) -> MemoryTables:
    return MemoryTables(records(*EVENTS, *more), rows={"episodes": [EPISODE]})


@cache
def whole() -> Report:
    """One incident of orders, two of its messages still parked."""
    return last_report(made())


@pytest.fixture
def report() -> Report:
    return whole()


def text_of(report: Report, price: Price | None = None) -> str:
    return as_text(report, Wording(price=price))


# -- figures -------------------------------------------------------------------------------------------------------


def test_the_times_of_a_failover_are_those_of_its_episodes(report: Report) -> None:
    (one,) = report.failovers

    assert one.entity == "orders"
    assert one.to_detect == pytest.approx(2.0), "from the last second with an accepted send"
    assert one.to_divert == pytest.approx(10.0)
    assert one.away == pytest.approx(28.0)
    assert one.to_drain == pytest.approx(19.0)
    assert (one.parked, one.pings, one.times, one.outcome) == (20, 4, 1, "failed back")


def test_it_begins_before_the_incident_and_ends_after_it(report: Report) -> None:
    assert report.since == pytest.approx(T + 32)
    assert report.until == pytest.approx(T + 134)


def test_callers_are_counted_by_route_kind_and_time(report: Report) -> None:
    (orders,) = report.entities

    assert (orders.failed, orders.failures, orders.refused) == (8, {"timeout": 8}, 1)
    assert orders.backlog_accepted == 260
    assert orders.share == pytest.approx(1 - 8 / (orders.primary_accepted + 260 + 8))
    assert orders.longest_without == pytest.approx(13.0)
    assert orders.blocked == pytest.approx(11.0), "from the failed attempts' second to the first diverted one's"


def test_dwell_is_of_the_messages_that_came_home(report: Report) -> None:
    (orders,) = report.entities

    assert (orders.parked, orders.home) == (20, 18)
    assert orders.middle == pytest.approx(28.0)
    assert orders.longest == pytest.approx(28.0)


def test_the_cost_is_of_the_incident_alone(report: Report) -> None:
    """The minute before had 2 receives, the incident's two have 6: 2 are beyond the usual rate."""
    caused = {one.cause: (one.caused, one.bytes) for one in report.cost.causes}

    assert (report.cost.minutes, report.cost.base_minutes) == (2, 1)
    assert caused == {
        "sends": (0, 0),
        "parked": (20, 20_000),
        "receives": (2, 0),
        "moves": (18, 20_000),
        "settlements": (18, 0),
        "pings": (4, 0),
    }


def test_cost_is_priced_where_a_price_is_known(report: Report) -> None:
    assert "0.0005 EUR" in text_of(report, Price(million_operations=8.0, currency="EUR"))


def test_orders_have_operator_reason_and_outcome(report: Report) -> None:
    (order,) = (one for one in report.timeline if one.is_order)

    assert order.text == 'order pause-syphon by anna: "to look": done'


# -- choices -------------------------------------------------------------------------------------------------------


def test_a_report_is_chosen_by_its_episode_or_since_a_time() -> None:
    with made() as tables:
        assert report_of(tables, "e-one-orders-1").failed_over == ("orders",)
        assert report_since(tables, T + 150).episodes == ()
        with pytest.raises(ConfigurationError, match=r"no episode 'x'.*e-one-orders-1"):
            report_of(tables, "x")
        with pytest.raises(ConfigurationError, match="nothing is recorded since then"):
            report_since(tables, T + 9999)


def test_a_pairing_is_chosen_and_the_others_are_named() -> None:
    other = records(replace(START, pairing="bank", secondary="x.example"), sends(90, 5), engine="bank@vm")
    later = {**EPISODE, "pairing": "bank", "engine": "bank@vm", "id": "b", "began_at": T + 80, "entity": "loans"}
    tables = MemoryTables([*records(*EVENTS), *other], rows={"episodes": [EPISODE, later]})
    assert last_report(tables).pairings == ("bank",), "the latest incident's"
    shop = last_report(tables, pairing="shop")
    assert (shop.pairings, shop.others, shop.failed_over) == (("shop",), ("bank",), ("orders",))
    assert "Not in this report: pairing bank; choose one with --pairing." in text_of(shop)
    assert report_since(tables, T).pairings == ("bank", "shop")
    with pytest.raises(ConfigurationError, match="no pairing 'x'; they have: bank, shop"):
        last_report(tables, pairing="x")


def test_absent_and_empty_tables_are_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="are empty"):
        last_report(MemoryTables())
    with pytest.raises(NoTablesError, match="paired pipeline --once"):
        run_report(tmp_path / "none", choose=last_report, wording=Wording(), out=None)


def episode(name: str, began: float, ended: float, *, pairing: str = "shop") -> IncidentEpisode:
    (one,) = whole().episodes
    begins = dict.fromkeys(("began_at", "suspected_at", "failed_over_at"), began)
    ends = dict.fromkeys(("failed_back_at", "last_at"), ended)
    unknown = dict.fromkeys(("last_good_at", "first_diverted_at", "first_ping_at", "backlog_empty_at"))
    return replace(one, id=name, entity=name, pairing=pairing, **begins, **ends, **unknown)


def test_episodes_of_a_pairing_that_touch_are_one_incident() -> None:
    first, second = episode("a", 0.0, 300.0), episode("b", 10.0, 20.0)
    third, fourth = episode("c", 300.0 + TOGETHER, 500.0), episode("d", 501.0 + TOGETHER, 900.0)
    other = episode("o", 15.0, 30.0, pairing="bank")

    assert incidents([fourth, third, second, first, other]) == [(first, second, third), (other,), (fourth,)]


def test_an_entitys_failovers_at_all_engines_are_one_row_with_the_worst_of_each() -> None:
    first, again, other = episode("a", 0.0, 300.0), episode("a", 400.0, 450.0), episode("a", 20.0, 350.0)
    slow = replace(other, engine="f", failed_back_at=None, outcome="open")
    (one,) = failovers((first, slow, again))
    assert (one.engines, one.times, one.failed_over_at, one.away) == (("e", "f"), 2, 0.0, 350.0)
    assert (one.outcome, one.failed_back_at) == ("open", None), "one engine is not back"
    (both,) = failovers((first, replace(other, engine="f"), again))
    assert (both.outcome, both.failed_back_at) == ("failed back", 450.0)


@pytest.mark.parametrize(
    ("text", "at"), [("2h", T - 7200), ("2023-11-14 22:13:20", T), ("2023-11-14T23:13:20+01:00", T)]
)
def test_a_time_is_ago_or_a_date(text: str, at: float) -> None:
    assert moment(text, now=T) == at


def test_impossible_choices_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="--since is 'yesterday'"):
        moment("yesterday")
    with pytest.raises(ConfigurationError, match="one of them at a time"):
        chooser(episode="a", since="2h")
    with pytest.raises(ConfigurationError, match="leave --pairing out"):
        chooser(episode="a", pairing="shop")


def test_a_share_is_never_rounded_up_to_all() -> None:
    assert percent(0.999999) == "99.99 %"
    assert percent(1.0) == "100 %"
    assert duration(9.25) == "9.2 s"
    assert duration(3700) == "1 h 1 min"
