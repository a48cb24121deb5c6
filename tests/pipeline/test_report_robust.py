"""The report reads any tables: many episodes, impossible times, an unwritable folder, a stranger's text."""

from __future__ import annotations

import csv
import html
import re
from pathlib import Path
from typing import get_args

import pytest

from paired_servicebus.core.errors import ConfigurationError
from paired_servicebus.pipeline.report import report_command
from paired_servicebus.pipeline.report.plots import draw_twice
from paired_servicebus.pipeline.report.report_queries import report_since
from paired_servicebus.pipeline.table_store.table_reader import Tables
from tests.pipeline.report_tables import run_report
from tests.pipeline.test_report import EPISODE, T, made, whole

FORMATS: tuple[report_command.Format, ...] = ("text", "html", "json")


def test_a_report_asks_as_many_questions_for_many_episodes_as_for_one() -> None:
    """Two scans of all events for each episode made 311 s of 2,500 episodes."""
    one, many = made(), made(episodes=[{**EPISODE, "id": f"e{number}"} for number in range(300)])
    report_command.last_report(one)
    report_command.last_report(many)
    assert many.queries == one.queries


@pytest.mark.parametrize(
    "time",
    [
        "290000-01-01", "infinity",
        *(pytest.param(time, marks=pytest.mark.slow) for time in ("0044-01-01 (BC)", "9999-12-31", "1969-12-31")),
    ],
)  # fmt: skip
@pytest.mark.parametrize("column", ["began_at", "failed_back_at", "last_at"])
def test_an_impossible_time_of_an_episode_costs_that_time_only(time: str, column: str) -> None:
    tables = made()
    tables.rows(f"update made_episodes set {column} = timestamp '{time}'")
    for report in (report_since(tables, 0.0), report_command.last_report(tables)):
        assert report.since >= T - 20
        assert report.until <= T + 200
        for format_ in FORMATS:
            report_command.as_text(report, report_command.Wording(format=format_))
    assert "orders failed over" in report_command.as_text(report, report_command.Wording())


@pytest.mark.parametrize("time", ["290000-01-01", "infinity", "0044-01-01 (BC)", "9999-12-31"])
def test_an_impossible_time_of_an_event_is_counted_as_unknown(time: str) -> None:
    tables = made()
    tables.rows(f"""update made_events set event_time = timestamp '{time}' where message_id in ('p3', 'd40')""")
    tables.rows(f"update made_engines set last_at = timestamp '{time}', first_at = timestamp '{time}'")
    report = report_since(tables, 0.0)
    assert (report.since, report.until) == (T - 20, T + 200)
    assert "3 records with an impossible time: not in any figure by time" in report.unknowns
    for format_ in FORMATS:
        report_command.as_text(report, report_command.Wording(format=format_))
    for panel in report.curves.panels:
        draw_twice(report.curves, panel)


def test_a_working_folder_that_cannot_be_written_is_no_damage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """duckdb's own default is a folder `.tmp` in the working folder: a file of that name stands for any refusal."""
    folder = made().store(tmp_path / "tables")
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / ".tmp").write_text("")
    monkeypatch.chdir(tmp_path / "work")
    with Tables.open(folder) as tables:
        tables.rows("set memory_limit = '24MB'")
        assert tables.rows("select count(*) as n from (select i from range(3000000) r(i) order by hash(i))")
    assert run_report(folder, choose=report_command.last_report, wording=report_command.Wording(), out=None) == 0
    assert "orders failed over" in capsys.readouterr().out
    assert [one.name for one in Path().iterdir()] == [".tmp"]


def test_tables_on_disk_make_the_same_report(tmp_path: Path) -> None:
    with Tables.open(made().store(tmp_path / "tables")) as tables:
        found = report_command.last_report(tables)
    for name in ("episodes", "failovers", "entities", "cost", "judgement", "timeline"):
        assert getattr(found, name) == getattr(whole(), name), name


def test_the_page_needs_no_network_and_no_script() -> None:
    text = report_command.as_text(whole(), report_command.Wording(format="html"))
    assert "default-src 'none'" in text
    assert text.replace("http://www.w3.org/2000/svg", "").count("http") == text.count("http-equiv")
    assert "<script" not in text
    assert "url(" not in text
    assert "@import" not in text


@pytest.mark.parametrize("reader", get_args(report_command.Reader))
def test_no_table_of_a_page_is_wider_than_a_phone(reader: report_command.Reader) -> None:
    """A table of more than three columns is a card for each row there; each cell has its head's words."""
    page = report_command.as_text(whole(), report_command.Wording(reader=reader, format="html"))
    tables = re.findall(r"<table class=\"(\w+)[^>]*>(.*?)</table>", page, re.DOTALL)
    assert tables
    for kind, text in tables:
        heads = [html.unescape(head) for head in re.findall(r"<th scope[^>]*>(.*?)</th>", text)]
        assert kind == ("wide" if len(heads) > 3 else "narrow")
        for row in re.findall(r"<tr(?: class=\"bad\")?>(<td.*?)</tr>", text):
            assert [html.unescape(one) for one in re.findall(r"data-head=\"(.*?)\"", row)] == heads


HOUSE = (
    "failover", "failed over", "park", "backlog", "syphon", "home", "engine", "pairing", "episode", "primary",
    "secondary", "namespace", "journal", "divert", "ping", "fate", "entity", "entities", "dead-letter",
    "boot", "receipt", "missing",
)  # fmt: skip


def test_customers_read_no_word_of_this_house() -> None:
    tables = made()
    tables.rows("update made_audit set status = 'missing' where message_id in ('p18', 'p19')")
    for report in (report_command.last_report(tables), report_since(tables, T + 150)):
        for format_ in ("text", "html"):
            page = report_command.as_text(report, report_command.Wording(reader="customers", format=format_))
            text = page.partition("<body>")[2] or page
            assert not [word for word in HOUSE if word in text.lower()]


def test_severity_and_owner_are_left_to_people() -> None:
    for reader in ("boss", "engineers"):
        page = report_command.as_text(whole(), report_command.Wording(reader=reader, format="html"))
        assert re.findall(r"class=\"blank\"[^>]*><span>(Severity|Owner)<", page) == ["Severity", "Owner"]


@pytest.mark.parametrize(
    ("zone", "said"),
    [
        ("UTC", "From 2023-11-14 22:14:22 to 22:15:00 UTC, for 38 s"),
        ("Europe/Berlin", "From 2023-11-14 22:14:22 to 22:15:00 UTC (23:14:22 to 23:15:00 CET), for 38 s"),
        ("Asia/Kolkata", "UTC (2023-11-15 03:44:22 to 2023-11-15 03:45:00 IST), for 38 s"),
        ("Europe/London", "From 2023-11-14 22:14:22 to 22:15:00 UTC, for 38 s"),
    ],
)
def test_times_are_in_utc_and_in_the_readers_zone(zone: str, said: str) -> None:
    for reader in ("boss", "customers", "engineers"):
        text = report_command.as_text(
            whole(), report_command.Wording(reader=reader, zone=report_command.reader_zone(zone))
        )
        assert said in " ".join(text.split())


@pytest.mark.parametrize("zone", ["Europe/Nowhere", "../../etc/passwd", "/etc/passwd", "\x00", "Europe"])
def test_a_zone_that_is_none_is_one_sentence(zone: str) -> None:
    with pytest.raises(ConfigurationError, match=r"--zone is .* does not know"):
        report_command.reader_zone(zone)


def test_the_ids_of_lost_and_unknown_messages_are_files_beside_the_report(tmp_path: Path) -> None:
    tables = made()
    tables.rows("update made_audit set status = 'lost' where message_id in ('p18', 'p19')")
    tables.rows("update made_audit set status = 'unknown', reason = 'no journal' where message_id = 'p3'")
    path = report_command.write_report(tables, report_command.last_report(tables), tmp_path, report_command.Wording())
    assert "lost-messages.csv" in path.read_text()
    with (tmp_path / "lost-messages.csv").open(newline="") as file:
        assert [(row["message_id"], row["status"], row["entity"]) for row in csv.DictReader(file)] == [
            ("p18", "lost", "orders"), ("p19", "lost", "orders"),
        ]  # fmt: skip
    with (tmp_path / "unknown-messages.csv").open(newline="") as file:
        assert [(row["message_id"], row["reason"]) for row in csv.DictReader(file)] == [("p3", "no journal")]
    calm = made()
    report_command.write_report(calm, whole(), tmp_path, report_command.Wording())
    assert [one.name for one in tmp_path.iterdir()] == ["report-engineers.txt"], (
        "ids of an earlier report are no longer"
    )
