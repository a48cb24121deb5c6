"""The report reads any tables: many episodes, impossible times, an unwritable folder, a stranger's text."""

from __future__ import annotations

from pathlib import Path

import pytest

from paired_servicebus.pipeline.report.render.svg_plots import draw_twice
from paired_servicebus.pipeline.report.report_command import Format, Wording, as_text, last_report
from paired_servicebus.pipeline.report.report_queries import report_since
from paired_servicebus.pipeline.table_store.table_reader import Tables
from tests.pipeline.reports import run_report
from tests.pipeline.test_report import EPISODE, T, made

FORMATS: tuple[Format, ...] = ("text", "html", "json")


def test_a_report_asks_as_many_questions_for_many_episodes_as_for_one() -> None:
    """Two scans of all events for each episode made 311 s of 2,500 episodes."""
    one, many = made(), made(episodes=[{**EPISODE, "id": f"e{number}"} for number in range(300)])
    last_report(one)
    last_report(many)
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
    for report in (last_report(tables), report_since(tables, 0.0)):
        assert report.since >= T - 20
        assert report.until <= T + 200
        for format_ in FORMATS:
            as_text(report, Wording(format=format_))
    assert "orders failed over" in as_text(last_report(tables), Wording())


@pytest.mark.parametrize("time", ["290000-01-01", "infinity", "0044-01-01 (BC)", "9999-12-31"])
def test_an_impossible_time_of_an_event_is_counted_as_unknown(time: str) -> None:
    tables = made()
    tables.rows(f"""update made_events set event_time = timestamp '{time}' where message_id in ('p3', 'd40')""")
    tables.rows(f"update made_engines set last_at = timestamp '{time}', first_at = timestamp '{time}'")
    report = report_since(tables, 0.0)
    assert (report.since, report.until) == (T - 20, T + 200)
    assert "3 records with an impossible time: not in any figure by time" in report.unknowns
    for format_ in FORMATS:
        as_text(report, Wording(format=format_))
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
    assert run_report(folder, choose=last_report, wording=Wording(), out=None) == 0
    assert "orders failed over" in capsys.readouterr().out
    assert [one.name for one in Path().iterdir()] == [".tmp"]


def test_tables_on_disk_make_the_same_report(tmp_path: Path) -> None:
    memory = made()
    with Tables.open(memory.store(tmp_path / "tables")) as tables:
        found, known = last_report(tables), last_report(memory)
    for name in ("episodes", "fates", "entities", "cost", "judgement", "acts", "timeline"):
        assert getattr(found, name) == getattr(known, name), name


def test_the_page_needs_no_network_and_no_script() -> None:
    text = as_text(last_report(made()), Wording(format="html"))
    assert "default-src 'none'" in text
    assert text.replace("http://www.w3.org/2000/svg", "").count("http") == text.count("http-equiv")
    assert "<script" not in text
    assert "url(" not in text
    assert "@import" not in text
