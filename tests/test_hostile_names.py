"""Names, ids and reasons from namespaces, queues and disks are shown, and do nothing: in no terminal, log or file."""

from __future__ import annotations

import io
import json
import logging
import re
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from paired_servicebus import cli
from paired_servicebus.core.errors import ConfigurationError
from paired_servicebus.core.model.pairing_events import Diverted, Event, Record
from paired_servicebus.engine.instance.engine_paths import EnginePaths
from paired_servicebus.engine.instance.logs import FORMAT, MaskingFormatter
from paired_servicebus.engine.journal import message_trace
from paired_servicebus.engine.journal.records import encode
from paired_servicebus.engine.journal.spool import CLOSED
from paired_servicebus.pipeline.progress_bar import Bar
from paired_servicebus.pipeline.report.render.document import LONGEST, plain
from paired_servicebus.pipeline.report.render.svg_plots import plot_files
from paired_servicebus.pipeline.report.report_command import as_object, as_text, write_report
from paired_servicebus.pipeline.report.report_queries import last_report
from paired_servicebus.pipeline.table_store.table_reader import Tables
from paired_servicebus.printing import print_lines, print_object
from paired_servicebus.verbs import engine_commands
from tests.pipeline.report_tables import MemoryTables
from tests.pipeline.reports import run_report
from tests.pipeline.test_report import EPISODE, EVENTS, records

STEERING = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u206f]")
EVIL = (
    "\x1b]52;c;ZXZpbA==\x07\x1b[2J\x9b31m\u202e| # forged\n\n# Nothing was lost\n"
    "<script>alert(1)</script>[click](https://evil.example)![x](y)`code` **bold** _it_ www.evil.example"
)


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tables]:
    """An incident of an entity with a hostile name, for hostile reasons."""

    def foreign(event: Event) -> Event:
        changes = {name: EVIL for name in ("entity", "why", "reason", "by") if getattr(event, name, None)}
        return replace(event, **changes) if changes else event

    where = tmp_path_factory.mktemp("tables") / "tables"
    episode = {**EPISODE, "entity": EVIL, "cause": EVIL, "end_reason": EVIL}
    MemoryTables(records(*map(foreign, EVENTS)), rows={"episodes": [episode]}).store(where)
    with Tables.open(where) as opened:
        yield opened


def test_a_report_holds_no_line_heading_tag_or_link_of_a_stranger(tables: Tables) -> None:
    text = as_text(last_report(tables), "md")
    assert "alert(1)" in text, "it is shown"
    assert not STEERING.search(text)
    assert "<" not in text.replace("&lt;", "")
    assert not re.search(r"^# Nothing", text, re.MULTILINE)
    assert len(re.findall(r"^# ", text, re.MULTILINE)) == 1
    assert not re.search(r"(?<!\\)\]\(", text)
    assert not re.search(r"(?<!\\)`|https://|\*\*bold", text)
    tables_of_text = re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE)
    assert any("alert" in one for one in tables_of_text)
    for one in tables_of_text:
        assert len({len(re.split(r"(?<!\\)\|", line)) for line in one.splitlines()}) == 1


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("orders", "orders"),
        ("order_events-2.eu/west", "order_events-2.eu/west"),
        ("no send accepted for 10 s (timeout)", "no send accepted for 10 s (timeout)"),
        ("_all_", r"\_all\_"),
        ("a < b & c &lt; d", "a &lt; b & c &amp;lt; d"),
        ("- x", r"\- x"),
        ("1. x", r"1\. x"),
        ("two\nlines", "two lines"),
        ("a\\|b", r"a\\|b"),
        ("SharedAccessKey=c4n4ry", r"SharedAccessKey=\*\*\*"),
    ],
)
def test_markdown_is_escaped_where_it_has_to_be_and_else_left(text: str, shown: str) -> None:
    assert plain(text) == shown


def test_a_name_of_any_length_is_cut() -> None:
    assert len(plain("x" * 70_000)) == LONGEST


def test_what_a_report_prints_and_writes_is_harmless(
    tables: Tables, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for format_ in ("md", "html", "json"):
        run_report(tables.folder, choose=last_report, format_=format_, out=None, price=None)
        assert not STEERING.search(capsys.readouterr().out)
    report = last_report(tables)
    assert json.loads(as_object(report))["episodes"][0]["entity"] == EVIL
    for _, _, text in plot_files(report).values():
        ET.fromstring(text)
    write_report(report, tmp_path)
    assert not any(STEERING.search(path.read_text()) for path in tmp_path.iterdir())


def test_a_record_of_the_log_is_no_second_record() -> None:
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(MaskingFormatter(FORMAT))
    try:
        raise ValueError(f"{EVIL}\n2026-11-22T00:00:00Z INFO    console: forged")
    except ValueError as error:
        made = logging.LogRecord("x", logging.ERROR, "", 0, "refused: %s", (EVIL,), (type(error), error, None))
        handler.emit(made)
    first, *others = stream.getvalue().rstrip("\n").split("\n")
    assert "refused" in first
    assert all(line.startswith("  ") for line in others)
    assert not STEERING.search(stream.getvalue())


def test_what_a_command_complains_of_is_one_harmless_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    def fail(_: object) -> Path:
        raise ConfigurationError(EVIL)

    monkeypatch.setattr(cli, "find_config", fail)
    assert cli.main(["check"]) == 2
    assert engine_commands._refused(EnginePaths(state=tmp_path / "orders", socket=tmp_path), EVIL) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 2
    assert not STEERING.search(said)


def test_a_crash_is_kept_without_what_steers(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    kept = Path(cli._save_traceback(RuntimeError(EVIL)))
    assert "alert(1)" in kept.read_text()
    assert not STEERING.search(kept.read_text())


def test_a_message_that_is_looked_for_may_be_called_anything(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    name = "a\x7fb\x9b2J\u202e"
    (tmp_path / CLOSED).mkdir()
    event = Diverted(at=1.0, entity=EVIL, message_id=name, queue=0)
    line = encode(Record(engine="e", boot="b", seq=1, event=event))
    (tmp_path / CLOSED / "e-0000000000001-000000000001.jsonl").write_bytes(line + b"\n")
    found = message_trace.find(tmp_path, name)
    assert found.steps
    print_lines(message_trace.as_lines(found, "all"))
    assert not STEERING.search(capsys.readouterr().out)
    print_object(message_trace.as_json(found, "all"))
    said = capsys.readouterr().out
    assert not STEERING.search(said)
    assert json.loads(said)["message_id"] == name


def test_the_bar_of_a_drain_takes_no_markup(capsys: pytest.CaptureFixture[str]) -> None:
    Bar().say(f"[red]x[/red] {EVIL}")
    said = capsys.readouterr().err
    assert "[red]x[/red]" in said
    assert not STEERING.search(said)
