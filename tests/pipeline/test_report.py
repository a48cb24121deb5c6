"""The incident report: every figure from tables in a test's hand, and the words that a person reads."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from paired_servicebus.core.accounting.billing import Price
from paired_servicebus.core.errors import ConfigurationError, NoTablesError
from paired_servicebus.core.model.pairing_events import (
    Commanded,
    CommandEnded,
    Delivered,
    Diverted,
    Event,
    FailuresCounted,
    MessageReceived,
    Moved,
    PingAccepted,
    PingFailed,
    QueuePulled,
    Record,
    SendsCounted,
    StateChanged,
)
from paired_servicebus.core.model.verdict import FailureKind
from paired_servicebus.pipeline.report.incident import TOGETHER, IncidentEpisode, Report, incidents
from paired_servicebus.pipeline.report.markdown_report import as_markdown, percent, seconds
from paired_servicebus.pipeline.report.report_command import as_object, chooser, moment, run_report, write_report
from paired_servicebus.pipeline.report.report_queries import last_report, read_incidents, report_of, report_since
from paired_servicebus.pipeline.table_store.audit_sql import IN_FLIGHT
from paired_servicebus.pipeline.table_store.manifest import RecordSpan
from paired_servicebus.pipeline.table_store.table_reader import Tables
from tests.pipeline.made_tables import make_tables, micros

T = 1_700_000_000.0
"""2023-11-14 22:13:20 UTC."""


def sends(at: float, accepted: int, failed: int = 0, route: str = "primary") -> SendsCounted:
    return SendsCounted(at=T + at, entity="orders", route=route, accepted=accepted, failed=failed, seconds=1.0)


EVENTS: tuple[Event, ...] = (
    *(sends(at, 10) for at in range(1, 61)),
    *(Delivered(at=T + at, entity="orders", message_id=f"d{at}") for at in range(1, 61)),
    StateChanged(at=T + 62, entity="orders", was="healthy", now="suspect", why="timeout"),
    sends(63, 0, 8),
    FailuresCounted(at=T + 63, entity="orders", route="primary", failure=FailureKind.TIMEOUT, count=8),
    StateChanged(at=T + 72, entity="orders", was="suspect", now="failed over", why="no send accepted for 10 s"),
    QueuePulled(at=T + 72.5, queue=3, reason="timeout"),
    *(Diverted(at=T + 73 + number, entity="orders", message_id=f"p{number}", queue=1) for number in range(20)),
    *(sends(at, 10, route="backlog/1") for at in range(74, 100)),
    *(
        PingFailed(at=T + at, entity="orders", number=number, reason="timeout", took=2.0)
        for number, at in enumerate((80, 85, 90), 1)
    ),
    Commanded(at=T + 91, command="pause-syphon", target="", by="anna", why="to look"),
    CommandEnded(at=T + 91.1, command_seq=0, outcome="done"),
    PingAccepted(at=T + 100, entity="orders", number=4, took=0.1),
    StateChanged(at=T + 100, entity="orders", was="failed over", now="healthy", why="a ping was accepted"),
    *(Moved(at=T + 101 + number, entity="orders", message_id=f"p{number}", queue=1) for number in range(18)),
    *(sends(at, 10) for at in range(101, 201)),
)
EPISODE = {
    "id": "e-one-orders-1",
    "engine": "e",
    "boot": "one",
    "entity": "orders",
    "suspected_ts": micros(T + 62),
    "failed_over_ts": micros(T + 72),
    "first_ping_ts": micros(T + 100),
    "failed_back_ts": micros(T + 100),
    "backlog_empty_ts": micros(T + 119),
    "last_ts": micros(T + 119),
    "outcome": "failed back",
    "forced": False,
    "cause": "timeout",
    "why_back": "a ping was accepted",
    "pings_sent": 4,
    "pings_accepted": 1,
    "pings_failed": 3,
    "parked": 20,
    "moved": 18,
    "dead_lettered": 0,
    "acts": "[]",
    "late": 0,
}
COST = (
    {"engine": "e", "minute_ts": micros(T + 60), "cause": "sends", "operations": 600, "bytes": 1_500_000},
    {"engine": "e", "minute_ts": micros(T + 60), "cause": "parked", "operations": 20, "bytes": 20_000},
)


def records(*events: Event) -> list[Record]:
    found = []
    for number, event in enumerate(events, 1):
        if isinstance(event, CommandEnded):
            event = CommandEnded(at=event.at, command_seq=number - 1, outcome=event.outcome)
        found.append(Record(engine="e", boot="one", seq=number, event=event))
    return found


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One incident of orders, two of its messages still parked."""
    where = tmp_path_factory.mktemp("tables") / "tables"
    return make_tables(where, records(*EVENTS), episodes=[EPISODE], cost=COST, spans=[RecordSpan("e", "one", 4, 400)])


@pytest.fixture(scope="module")
def report(folder: Path) -> Report:
    with Tables.open(folder) as tables:
        return last_report(tables)


def test_the_times_of_an_episode_are_what_a_person_asks_for(report: Report) -> None:
    (episode,) = report.episodes

    assert episode.to_detect == pytest.approx(2.0), "from the last second with an accepted send"
    assert episode.to_divert == pytest.approx(10.0)
    assert episode.to_recover == pytest.approx(28.0)
    assert episode.to_drain == pytest.approx(19.0)
    assert episode.first_diverted_at == pytest.approx(T + 73)


def test_it_begins_before_the_incident_and_ends_after_it(report: Report) -> None:
    assert report.since == pytest.approx(T + 32)
    assert report.until == pytest.approx(T + 134)


def test_availability_counts_attempts_by_route_and_kind(report: Report) -> None:
    (orders,) = report.availability

    assert orders.failed == 8
    assert orders.failures == {"timeout": 8}
    assert orders.backlog_accepted == 260
    assert orders.share == pytest.approx(1 - 8 / (orders.primary_accepted + 260 + 8))
    assert orders.longest_without == pytest.approx(13.0)


def test_dwell_is_of_the_messages_that_came_home(report: Report) -> None:
    (orders,) = report.dwell

    assert (orders.parked, orders.home) == (20, 18)
    assert orders.middle == pytest.approx(28.0)
    assert orders.longest == pytest.approx(28.0)


def test_the_audit_names_what_is_still_parked(report: Report) -> None:
    assert report.audit.verdict == "nothing lost"
    assert report.audit.figures["parked"] == 2
    assert any("p18 (orders), p19 (orders)" in sentence for sentence in report.audit.evidence)


def test_the_audit_says_that_what_expired_at_its_destination_may_be_among_the_lost(tmp_path: Path) -> None:
    """Nothing leaves a receipt of that, so that a count of its own would be none."""
    events = [
        Delivered(at=T, entity="orders", message_id="m1"),
        Delivered(at=T - IN_FLIGHT, entity="orders", message_id="m2"),
        MessageReceived(at=T + 1, entity="orders", message_id="m1"),
    ]
    folder = make_tables(tmp_path / "tables", records(*EVENTS, *events), episodes=[EPISODE], cost=COST)
    with Tables.open(folder) as tables:
        found = report_since(tables, 0.0).audit
    assert found.verdict == "messages lost"
    (said,) = (sentence for sentence in found.evidence if "m2 (orders)" in sentence)
    assert "messages that expire at their destination leave no receipt and are among them" in said
    assert "expired" not in found.figures


def test_what_is_in_flight_is_said_with_its_age_and_is_not_called_lost(tmp_path: Path) -> None:
    """A consumer some seconds behind is healthy: its report does not begin with a loss."""
    end = max(event.at for event in EVENTS)
    events = [
        Delivered(at=T, entity="orders", message_id="m1"),
        MessageReceived(at=T + 1, entity="orders", message_id="m1"),
        Delivered(at=end - 30, entity="orders", message_id="m2"),
        Delivered(at=T, entity="payments", message_id="p1"),
    ]
    folder = make_tables(tmp_path / "tables", records(*EVENTS, *events), episodes=[EPISODE], cost=COST)
    with Tables.open(folder) as tables:
        report = report_since(tables, 0.0)
    assert (report.audit.verdict, report.audit.figures["lost"]) == ("nothing lost", 0)
    waiting = report.audit.figures["in_flight"]
    text = as_markdown(report)
    assert "**Nothing was lost so far** in all that is recorded: " in text
    assert f"{waiting} in flight (not received yet, the oldest for " in text
    assert "; lost after 15 min 00 s), 0 lost" in text
    (said,) = [sentence for sentence in report.audit.evidence if sentence.startswith("in flight: ")]
    assert said.endswith(f"and {waiting - 10} more")
    assert "p1 (payments)" not in text, "no receiver reports what payments gets"


def test_acts_say_who_did_what_and_what_came_of_it(report: Report) -> None:
    (act,) = report.acts

    assert (act.by, act.what, act.why, act.outcome) == ("anna", "pause-syphon", "to look", "done")


def test_the_timeline_says_what_repeats_once(report: Report) -> None:
    told = [(one.about, one.text) for one in report.timeline]

    assert ("orders", "healthy → suspect: timeout") in told
    assert ("backlog/3", "left the rotation: timeout") in told
    assert ("orders", "a ping was not accepted: timeout (again, 3 times in all)") in told


def test_missing_records_are_a_warning(report: Report) -> None:
    assert any("3 records are missing" in sentence for sentence in report.warnings)


def test_curves_add_up_to_what_was_sent_and_parked(report: Report) -> None:
    curves = report.curves
    primary, backlog, failed = curves.sends["orders"]

    assert sum(backlog.values) * curves.bucket == pytest.approx(260)
    assert sum(failed.values) * curves.bucket == pytest.approx(8)
    assert max(primary.values) <= 20
    assert max(curves.parked.values) == 20
    assert curves.parked.values[-1] == 2


def test_the_words_answer_what_a_person_asks_first(report: Report) -> None:
    text = as_markdown(report)

    assert text.startswith("# Incident of 2023-11-14 22:14:22 UTC: orders failed over\n")
    assert "As of batch 7, written 2023-11-14 22:28:20" in text
    assert "**orders** failed over at 22:14:32, 10.0 s after the first failure (timeout); back" in text
    assert "back on the primary at 22:15:00, its backlog empty at 22:15:19. 20 messages were parked." in text
    assert "**Nothing was lost** in all that is recorded: 80 accepted" in text
    assert "| orders | 99.1" in text, "of attempts were accepted"


def test_what_an_operator_forced_had_no_first_failure(tmp_path: Path) -> None:
    forced = {**EPISODE, "suspected_ts": None, "forced": True}
    with Tables.open(make_tables(tmp_path, records(*EVENTS), episodes=[forced])) as tables:
        text = as_markdown(last_report(tables))
    assert "**orders** failed over at 22:14:32 (forced by an operator); back" in text


def test_cost_is_priced_where_a_price_is_known(report: Report) -> None:
    assert "| all    | 620               | 1.5 | 0.0050 |" in as_markdown(
        report, price=Price(million_operations=8.0, currency="EUR")
    )
    assert "The price of a million operations is not set" in as_markdown(report)


def test_a_report_is_written_with_its_plots(report: Report, tmp_path: Path) -> None:
    path = write_report(report, tmp_path / "out")

    assert "![Messages parked](parked.svg)" in path.read_text()
    for name in ("sends.svg", "parked.svg"):
        root = ET.fromstring((path.parent / name).read_text())
        assert root.tag.endswith("svg")
        assert root.findall(".//{*}polyline")


def test_the_object_has_every_value(report: Report) -> None:
    told = json.loads(as_object(report))

    assert told["batch"] == 7
    assert told["episodes"][0]["id"] == "e-one-orders-1"
    assert told["audit"]["verdict"] == "nothing lost"


def test_a_report_is_chosen_by_its_episode_or_since_a_time(folder: Path) -> None:
    with Tables.open(folder) as tables:
        assert report_of(tables, "e-one-orders-1").entities == ("orders",)
        assert report_since(tables, T + 150).episodes == ()
        with pytest.raises(ConfigurationError, match=r"no episode 'x'.*e-one-orders-1"):
            report_of(tables, "x")
        with pytest.raises(ConfigurationError, match="nothing is recorded since then"):
            report_since(tables, T + 9999)


def test_without_a_failover_the_report_is_of_all_that_is_recorded(tmp_path: Path) -> None:
    folder = make_tables(tmp_path / "tables", records(*EVENTS[:60]), judged=False)

    with Tables.open(folder) as tables:
        report = last_report(tables)

    text = as_markdown(report)
    assert "nothing failed over between" in text
    assert "is not judged yet" in text
    assert report.episodes == ()


def test_an_episode_that_is_not_over_is_said_to_be_so(tmp_path: Path) -> None:
    still = {**EPISODE, "failed_back_ts": None, "backlog_empty_ts": None, "outcome": "open", "first_ping_ts": None}
    folder = make_tables(tmp_path / "tables", records(*EVENTS), episodes=[still])

    with Tables.open(folder) as tables:
        text = as_markdown(last_report(tables))

    assert "and not over" in text
    assert "it has not come back yet" in text


def test_empty_tables_and_none_at_all_are_said_in_a_sentence(tmp_path: Path) -> None:
    empty = make_tables(tmp_path / "tables", [])

    with Tables.open(empty) as tables, pytest.raises(ConfigurationError, match="are empty"):
        last_report(tables)
    with pytest.raises(NoTablesError, match="paired pipeline --once"):
        run_report(tmp_path / "none", choose=last_report, format_="md", out=None, price=None)


def episode(name: str, began: float, ended: float) -> IncidentEpisode:
    return IncidentEpisode(
        id=name,
        engine="e",
        entity=name,
        outcome="failed back",
        open=False,
        forced=False,
        cause="",
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


def test_episodes_that_touch_are_one_incident() -> None:
    first, second = episode("a", 0.0, 300.0), episode("b", 10.0, 20.0)
    third, fourth = episode("c", 300.0 + TOGETHER, 500.0), episode("d", 501.0 + TOGETHER, 900.0)

    assert incidents([fourth, third, second, first]) == [(first, second, third), (fourth,)]


def test_incidents_are_read_oldest_first(folder: Path) -> None:
    with Tables.open(folder) as tables:
        assert [[one.id for one in chain] for chain in read_incidents(tables)] == [["e-one-orders-1"]]


@pytest.mark.parametrize(
    ("text", "at"), [("2h", T - 7200), ("2023-11-14 22:13:20", T), ("2023-11-14T23:13:20+01:00", T)]
)
def test_a_time_is_ago_or_a_date(text: str, at: float) -> None:
    assert moment(text, now=T) == at


def test_what_cannot_be_chosen_is_said() -> None:
    with pytest.raises(ConfigurationError, match="--since is 'yesterday'"):
        moment("yesterday")
    with pytest.raises(ConfigurationError, match="one of them at a time"):
        chooser(episode="a", since="2h")


def test_a_share_is_never_rounded_up_to_all() -> None:
    assert percent(0.999999) == "99.99 %"
    assert percent(1.0) == "100 %"
    assert seconds(59.94) == "59.9 s"
    assert seconds(3700) == "1 h 01 min"
