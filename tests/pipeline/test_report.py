"""The incident report: every figure from tables in a test's hand, and the words that a person reads."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from paired_servicebus.core.accounting.billing import Price
from paired_servicebus.core.errors import ConfigurationError, NoTablesError
from paired_servicebus.core.model.pairing_events import (
    Commanded,
    CommandEnded,
    Delivered,
    Diverted,
    EngineStarted,
    Event,
    FailuresCounted,
    Moved,
    OperationsCounted,
    PingAccepted,
    PingFailed,
    QueuePulled,
    QueueRead,
    Record,
    Refused,
    SendsCounted,
    StateChanged,
)
from paired_servicebus.core.model.verdict import FailureKind
from paired_servicebus.pipeline.report.incident import TOGETHER, IncidentEpisode, incidents, shared_fates
from paired_servicebus.pipeline.report.queries.episode_queries import read_incidents
from paired_servicebus.pipeline.report.report_command import as_object, as_text, chooser, moment, run_report
from paired_servicebus.pipeline.report.report_queries import last_report, report_of, report_since
from paired_servicebus.pipeline.report.report_values import Report
from paired_servicebus.pipeline.report.report_words import percent, seconds
from tests.pipeline.report_tables import MemoryTables

T = 1_700_000_000.0
"""2023-11-14 22:13:20 UTC."""


def sends(at: float, accepted: int, failed: int = 0, route: str = "primary") -> SendsCounted:
    return SendsCounted(at=T + at, entity="orders", route=route, accepted=accepted, failed=failed, seconds=1.0)


def operations(at: float, **counts: int) -> OperationsCounted:
    nothing = dict.fromkeys(
        ("sends", "parked", "pings", "receives", "moves", "settlements", "sent_bytes", "parked_bytes", "moved_bytes"), 0
    )
    return OperationsCounted(at=T + at, **{**nothing, **counts})


START = EngineStarted(
    at=T - 20,
    pairing="shop",
    primary="weu.example",
    secondary="neu.example",
    backlog_queues=4,
    syphon=True,
    version="1",
)
EVENTS: tuple[Event, ...] = (
    START,
    *(sends(at, 10) for at in range(1, 61)),
    *(Delivered(at=T + at, entity="orders", message_id=f"d{at}") for at in range(1, 61)),
    StateChanged(at=T + 62, entity="orders", was="healthy", now="suspect", why="timeout"),
    sends(63, 0, 8),
    Refused(at=T + 63, entity="orders", message_id="r1", reason="timeout"),
    FailuresCounted(at=T + 63, entity="orders", route="primary", failure=FailureKind.TIMEOUT, count=8),
    StateChanged(at=T + 72, entity="orders", was="suspect", now="failed over", why="no send accepted for 10 s"),
    QueuePulled(at=T + 72.5, queue=3, reason="timeout"),
    *(Diverted(at=T + 73 + number, entity="orders", message_id=f"p{number}", queue=1) for number in range(20)),
    *(sends(at, 10, route="backlog/1") for at in range(74, 100)),
    QueueRead(at=T + 95, queue=1, depth=20, size_bytes=2000, dead_lettered=0, scheduled=0),
    *(
        PingFailed(at=T + at, entity="orders", number=number, reason="timeout", took=2.0)
        for number, at in enumerate((80, 85, 90), 1)
    ),
    Commanded(at=T + 91, command="pause-syphon", target="", by="anna", why="to look"),
    CommandEnded(at=T + 91.1, command_seq=0, outcome="done"),
    PingAccepted(at=T + 100, entity="orders", number=4, took=0.1),
    StateChanged(at=T + 100, entity="orders", was="failed over", now="healthy", why="a ping was accepted"),
    *(Moved(at=T + 101 + number, entity="orders", message_id=f"p{number}", queue=1) for number in range(18)),
    QueueRead(at=T + 120, queue=1, depth=2, size_bytes=200, dead_lettered=0, scheduled=0),
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


def records(*events: Event, engine: str = "e") -> list[Record]:
    found = []
    for number, event in enumerate(events, 1):
        if isinstance(event, CommandEnded):
            event = CommandEnded(at=event.at, command_seq=number - 1, outcome=event.outcome)
        found.append(Record(engine=engine, boot="one", seq=number, event=event))
    return found


def made(*more: Event, **rows: list[Mapping[str, object]]) -> MemoryTables:
    return MemoryTables(records(*EVENTS, *more), rows={"episodes": [EPISODE], **rows})


@pytest.fixture(scope="module")
def report() -> Report:
    """One incident of orders, two of its messages still parked."""
    return last_report(made())


def markdown(report: Report, price: Price | None = None) -> str:
    return as_text(report, "md", price=price)


# -- figures -------------------------------------------------------------------------------------------------------


def test_the_times_of_a_fate_are_those_of_its_episodes(report: Report) -> None:
    (fate,) = report.fates

    assert fate.entities == ("orders",)
    assert fate.to_detect == pytest.approx((2.0, 2.0)), "from the last second with an accepted send"
    assert fate.to_divert == pytest.approx((10.0, 10.0))
    assert fate.away == pytest.approx((28.0, 28.0))
    assert fate.to_drain == pytest.approx((19.0, 19.0))
    assert (fate.parked, fate.pings, fate.times) == (20, 4, (1, 1))


def test_it_begins_before_the_incident_and_ends_after_it(report: Report) -> None:
    assert report.since == pytest.approx(T + 32)
    assert report.until == pytest.approx(T + 134)


def test_callers_are_counted_by_route_kind_and_time(report: Report) -> None:
    (orders,) = report.callers

    assert (orders.failed, orders.failures, orders.refused) == (8, {"timeout": 8}, 1)
    assert orders.backlog_accepted == 260
    assert orders.share == pytest.approx(1 - 8 / (orders.primary_accepted + 260 + 8))
    assert orders.longest_without == pytest.approx(13.0)
    assert orders.blocked == pytest.approx(11.0), "from the failed attempts' second to the first diverted one's"


def test_dwell_is_of_the_messages_that_came_home(report: Report) -> None:
    (orders,) = report.dwell

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
    text = markdown(report, Price(million_operations=8.0, currency="EUR"))
    assert (
        "**62 billed operations and 0.0 MB, 0.0005 EUR** in 2 minutes, beyond the rate of the 1 minute before." in text
    )
    assert "The price of a million operations is not set" in markdown(report)


def test_acts_have_operator_reason_and_outcome(report: Report) -> None:
    (act,) = report.acts

    assert (act.by, act.what, act.why, act.outcomes) == ("anna", "pause-syphon", "to look", {"done": 1})


def test_the_timeline_folds_repeats(report: Report) -> None:
    lines = {entry.text: entry for entry in report.timeline}

    assert lines["healthy → suspect: timeout"].about == ("orders",)
    assert lines["left the rotation: timeout"].about == ("backlog/3",)
    assert lines["a ping was not accepted: timeout"].times == 3
    assert 'order pause-syphon by anna: "to look"' in lines


def test_missing_records_are_named_with_their_engine() -> None:
    lacking = made()
    lacking.rows("update made_engines set missing = 3, complete_to = make_timestamp(1700000060000000)")
    report = last_report(lacking)
    assert report.unknowns[0] == (
        "the journal of e lacks 3 records (complete to 2023-11-14 22:14:20 UTC): figures may be too small"
    )


# -- words ---------------------------------------------------------------------------------------------------------


def test_the_impact_is_first(report: Report) -> None:
    """Who, from when to when, how long callers were refused, how many messages were parked, and the verdict."""
    title, _, _, _, impact, *_ = markdown(report).split("\n")

    assert title == "# Incident of 2023-11-14 22:14:22 UTC: orders failed over"
    assert impact == (
        "From 2023-11-14 22:14:22 to 22:15:00 UTC (38.0 s), senders to orders of pairing shop could not reach the "
        "primary namespace weu.example. Callers were refused or slow for 11.0 s at most; 8 attempts failed; 1 message "
        "refused. 20 messages were parked in the backlog of neu.example; 18 of them are home, 2 still parked. "
        "**Nothing was lost so far, by the namespaces' answers: 2 still parked.**"
    )


def test_pairing_environment_and_namespaces_are_named(report: Report) -> None:
    text = markdown(replace(report, environment="production"))
    for name, value in (
        ("pairing", "shop"),
        ("environment", "production"),
        ("primary namespace", "weu.example"),
        ("secondary namespace", "neu.example"),
    ):
        assert [line for line in text.splitlines() if line.startswith(f"| {name} ") and f" {value} " in line]


def test_cause_and_actions_are_left_to_people(report: Report) -> None:
    text = markdown(report)
    assert text.index("## Timeline") < text.index("## Cause") < text.index("## Actions")
    assert "| action | who | until |" in text


def test_three_entities_with_one_fate_are_told_once() -> None:
    """A finding of the past: three identical entities made three identical paragraphs, rows and curves."""
    names = ("orders", "payments", "invoices")
    episodes = [
        {**EPISODE, "entity": name, "id": name, "failed_over_at": T + 72 + place} for place, name in enumerate(names)
    ]
    counts = [
        SendsCounted(at=T + at, entity=name, route="primary", accepted=10, failed=0, seconds=1.0)
        for name in names[1:]
        for at in range(1, 61)
    ]
    changes = [
        StateChanged(at=T + 72 + place, entity=name, was="suspect", now="failed over", why="no send accepted for 10 s")
        for place, name in enumerate(names)
        if place
    ]
    report = last_report(made(*counts, *changes, episodes=episodes))
    (fate,), (callers,) = report.fates, report.callers
    assert fate.entities == callers.entities == names
    (failed_over,) = (entry for entry in report.timeline if "→ failed over" in entry.text)
    assert failed_over.about == names
    assert markdown(report).count("no send accepted for 10 s") == 1


def test_entities_of_another_fate_are_another_group() -> None:
    other = {**EPISODE, "entity": "payments", "id": "p", "failed_back_at": None, "outcome": "engine ended",
             "end_reason": "the engine stopped: SIGTERM", "backlog_empty_at": None}  # fmt: skip
    report = last_report(made(episodes=[EPISODE, other]))
    assert [fate.entities for fate in report.fates] == [("orders",), ("payments",)]
    assert (
        "**payments** failed over at 22:14:32, 10.0 s after the first failure: timeout. Engine ended (the engine "
        in (markdown(report))
    )


def test_out_of_order_is_explained_beside_nothing_lost() -> None:
    tables = made()
    tables.rows("update made_audit set out_of_order = true where message_id in ('p1', 'p2')")
    text = markdown(last_report(tables))
    assert "2 messages out of order, which is no loss: while messages wait in the backlog, newer ones overtake" in text


@pytest.mark.parametrize(
    ("status", "verdict"),
    [
        ("lost", "MESSAGES WERE LOST: 2 lost."),
        ("missing", "MESSAGES WERE LOST: 2 missing."),
        ("unknown", "Whether anything was lost is unknown for 2 messages."),
        ("in flight", "Nothing was lost so far, by the namespaces' answers: 2 in flight."),
    ],
)
def test_the_verdict_names_the_messages_against_it(status: str, verdict: str) -> None:
    tables = made()
    tables.rows(f"update made_audit set status = '{status}' where message_id in ('p18', 'p19')")
    report = last_report(tables)
    assert f"**{verdict}**" in markdown(report)
    (finding,) = (one for one in report.judgement.findings if one.status == status)
    assert finding.named == ("p18 (orders)", "p19 (orders)")


def test_missing_messages_without_a_name_are_counted_as_missing() -> None:
    tables = made()
    tables.rows("update made_audit set among_missing = 1 where status = 'parked'")
    assert "**MESSAGES WERE LOST: 1 missing.**" in markdown(last_report(tables))


def test_without_receipts_of_direct_sends_only_parked_messages_are_judged() -> None:
    """journal = "parked" records no direct send, so that nothing is known of them."""
    tables = made()
    tables.rows("update made_audit set direct = 0")
    verdict = "No parked message was lost so far, by the namespaces' answers: 2 still parked."
    assert f"**{verdict} Direct sends are not recorded one by one.**" in markdown(last_report(tables))


def test_the_verdict_names_its_basis() -> None:
    tables = made()
    tables.rows("update made_verdicts set receivers_told = true")
    assert "Nothing was lost so far, by the receivers' records: " in markdown(last_report(tables))
    tables.rows("insert into made_verdicts by name select pairing, 'payments' as entity from made_verdicts limit 1")
    assert "the receivers' records at 1 of 2 entities and the namespaces' answers at the others: " in (
        markdown(last_report(tables))
    )


def test_an_incomplete_journal_is_no_certainty() -> None:
    tables = made()
    tables.rows("update made_verdicts set journals = 20, journals_complete = 18")
    assert "**No loss is known, but not every journal is here. 18 of 20 journals are complete" in (
        markdown(last_report(tables))
    )


def test_the_incidents_figures_stand_beside_all_that_is_recorded(report: Report) -> None:
    """The Delivered of the first half minute are recorded, and before this incident."""
    rows = [line.split("|")[1:4] for line in markdown(report).splitlines() if line.startswith("| attempted")]
    assert [[cell.strip() for cell in row] for row in rows] == [["attempted", "50", "81"]]


def test_a_time_without_receipts_is_not_judged() -> None:
    report = last_report(MemoryTables(records(START, *(sends(at, 10) for at in range(1, 61)))))
    text = markdown(report)
    assert "# Nothing failed over from 2023-11-14 22:13:00 to 2023-11-14 22:14:20 UTC" in text
    assert "**No message of this time was recorded one by one, so none is judged" in text
    assert "## Cause" not in text
    unjudged = last_report(MemoryTables(records(*EVENTS), rows={"audit": [], "verdicts": []}))
    assert "is not judged yet: paired pipeline" in markdown(unjudged)


def test_a_forced_failover_has_no_first_failure() -> None:
    forced = {**EPISODE, "suspected_at": None, "forced": True}
    text = markdown(last_report(made(episodes=[forced])))
    assert "**orders** failed over at 22:14:32: an operator forced it. Back on the primary at 22:15:00" in text
    assert "senders to orders of pairing shop were diverted by an operator" in text


def test_an_open_episode_is_marked() -> None:
    still = {**EPISODE, "failed_back_at": None, "backlog_empty_at": None, "outcome": "open", "first_ping_at": None}
    text = markdown(last_report(made(episodes=[still])))
    assert "22:14:22 UTC, not over: orders failed over" in text
    assert "It is not over." in text
    assert "Not back on the primary yet." in text


def test_an_order_of_the_fleet_is_one_act_at_its_engines() -> None:
    """Three engines carry it out; the incident is one, and so is its timeline."""
    order = Commanded(at=T + 91, command="pause-syphon", target="", by="anna (fleet)", why="x (order 7 of the fleet)")
    done = CommandEnded(at=T + 91.5, command_seq=0, outcome="done")
    names = [f"shop@vm-{number}" for number in (1, 2, 3)]
    played = [record for name in names for record in records(START, *EVENTS[62:], order, done, engine=name)]
    episodes = [{**EPISODE, "engine": name, "id": name} for name in names]
    report = last_report(MemoryTables(played, rows={"episodes": episodes}))
    (act,) = (one for one in report.acts if one.by == "anna (fleet)")
    assert (act.engines, act.outcomes) == (tuple(names), {"done": 3})
    assert report.fates[0].engines == tuple(names)
    assert "at all 3 engines" in markdown(report)


def test_the_object_has_every_value(report: Report) -> None:
    found = json.loads(as_object(report))

    assert found["source"]["batch"] == 7
    assert found["episodes"][0]["id"] == "e-one-orders-1"
    assert found["verdict"] == "Nothing was lost so far, by the namespaces' answers: 2 still parked."
    assert found["headline"].endswith("orders failed over")


# -- choices -------------------------------------------------------------------------------------------------------


def test_a_report_is_chosen_by_its_episode_or_since_a_time() -> None:
    with made() as tables:
        assert report_of(tables, "e-one-orders-1").entities == ("orders",)
        assert report_since(tables, T + 150).episodes == ()
        with pytest.raises(ConfigurationError, match=r"no episode 'x'.*e-one-orders-1"):
            report_of(tables, "x")
        with pytest.raises(ConfigurationError, match="nothing is recorded since then"):
            report_since(tables, T + 9999)


def test_a_pairing_is_chosen_and_the_others_are_named() -> None:
    other = records(replace(START, pairing="bank"), sends(90, 5), engine="bank@vm")
    later = {**EPISODE, "pairing": "bank", "engine": "bank@vm", "id": "b", "began_at": T + 80, "entity": "loans"}
    tables = MemoryTables([*records(*EVENTS), *other], rows={"episodes": [EPISODE, later]})
    assert last_report(tables).pairings == ("bank",), "the latest incident's"
    shop = last_report(tables, pairing="shop")
    assert (shop.pairings, shop.others, shop.entities) == (("shop",), ("bank",), ("orders",))
    assert "bank: choose one with --pairing" in markdown(shop)
    assert report_since(tables, T).pairings == ("bank", "shop")
    with pytest.raises(ConfigurationError, match="no pairing 'x'; they have: bank, shop"):
        last_report(tables, pairing="x")


def test_absent_and_empty_tables_are_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="are empty"):
        last_report(MemoryTables())
    with pytest.raises(NoTablesError, match="paired pipeline --once"):
        run_report(tmp_path / "none", choose=last_report, format_="md", out=None, price=None)


def episode(name: str, began: float, ended: float, *, pairing: str = "shop") -> IncidentEpisode:
    return IncidentEpisode(
        id=name,
        pairing=pairing,
        engine="e",
        boot="one",
        entity=name,
        outcome="failed back",
        end_reason="",
        forced=False,
        cause="",
        began_at=began,
        last_good_at=None,
        suspected_at=began,
        failed_over_at=began,
        first_diverted_at=None,
        first_ping_at=None,
        failed_back_at=ended,
        backlog_empty_at=None,
        last_at=ended,
        parked=0,
        moved=0,
        dead_lettered=0,
        pings=0,
    )


def test_episodes_of_a_pairing_that_touch_are_one_incident() -> None:
    first, second = episode("a", 0.0, 300.0), episode("b", 10.0, 20.0)
    third, fourth = episode("c", 300.0 + TOGETHER, 500.0), episode("d", 501.0 + TOGETHER, 900.0)
    other = episode("o", 15.0, 30.0, pairing="bank")

    assert incidents([fourth, third, second, first, other]) == [(first, second, third), (other,), (fourth,)]


def test_fates_are_shared_within_half_a_minute() -> None:
    near, far = episode("b", 20.0, 320.0), episode("c", 60.0, 320.0)
    fates = shared_fates((episode("a", 0.0, 300.0), near, far))
    assert [fate.entities for fate in fates] == [("a", "b"), ("c",)]


def test_incidents_are_read_oldest_first() -> None:
    assert [[one.id for one in chain] for chain in read_incidents(made())] == [["e-one-orders-1"]]


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
    assert seconds(59.94) == "59.9 s"
    assert seconds(59.96) == "1 min 00 s"
    assert seconds(3700) == "1 h 01 min"
    assert seconds(90_000) == "1 d 01 h"
