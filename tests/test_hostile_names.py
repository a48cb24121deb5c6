"""Names, ids and reasons from namespaces, queues and disks are shown, and do nothing: in no terminal, log or file."""

from __future__ import annotations

import csv
import io
import json
import logging
import re
from collections import Counter
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paired_servicebus import cli
from paired_servicebus.core.errors import ConfigurationError
from paired_servicebus.core.model.pairing_events import Diverted, Record
from paired_servicebus.engine.instance.engine_paths import EnginePaths
from paired_servicebus.engine.instance.logs import FORMAT, MaskingFormatter
from paired_servicebus.engine.journal import message_trace
from paired_servicebus.engine.journal.records import encode
from paired_servicebus.engine.journal.spool import CLOSED
from paired_servicebus.pipeline.report.report_command import (
    LONGEST,
    WIDTH,
    Reader,
    Wording,
    as_object,
    as_text,
    write_report,
)
from paired_servicebus.pipeline.report.report_queries import last_report
from paired_servicebus.pipeline.report.report_values import Report
from paired_servicebus.pipeline.spark_processes import Bar
from paired_servicebus.printing import print_lines, print_object
from paired_servicebus.verbs import engine_commands
from tests.pipeline.report_tables import MemoryTables
from tests.pipeline.test_report import EPISODE, EVENTS, records

STEERING = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u206f]")
EVIL = (
    "\x1b]52;c;ZXZpbA==\x07\x1b[2J\x9b31m\u202e| # forged\n\n# Nothing was lost\n"
    "<script>alert(1)</script>[click](https://evil.example)![x](y)`code` **bold** _it_ www.evil.example"
)


HOSTILE = {
    "everything at once": EVIL,
    "a tag": "<script>alert(1)</script><img src=x onerror=alert(1)>",
    "the end of an attribute": '" onmouseover="alert(1)" x=\'',
    "the end of a picture": "</text></svg><script>alert(1)</script>",
    "a comment and its end": "--><script>alert(1)</script><!--",
    "the end of styles": "</style><script>alert(1)</script>",
    "a template": "{{ 7 * 7 }}{% include 'page.html' %}{# no #}${7 * 7}",
    "an entity already": "&lt;script&gt;alert(1)&amp;lt;",
    "quotes and dollars": 'it\'s "$HOME" $(id) `id` {x}',
    "a statement": "x'); drop table events; --",
    "a placeholder": "%s %(entity)s {since} {0} ?",
    "lines": "orders\nMESSAGES WERE LOST: 7 lost.\r\n!!!!!!\x0b\x85\u2028nothing",
    "a terminal's orders": "\x1b]52;c;ZXZpbA==\x07\x1b[2J\x9b31m\u202e",
    "a secret": "Endpoint=sb://x/;SharedAccessKeyName=Root;SharedAccessKey=c4n4ry",
    "a formula": '=HYPERLINK("https://evil.example")',
    "length": "x" * 20_000,
}
"""Names, ids, reasons and bodies as a stranger may choose them."""
COLUMNS = {
    "events": "entity why reason operator target text about message_id command failure",
    "timeline": "entity why reason operator target text about command outcome was now",
    "audit": "entity message_id reason stream",
    "verdicts": "entity rests_on",
    "engines": "end_reason primary_namespace secondary_namespace engine ended",
    "episodes": "entity cause end_reason engine",
    "cost": "cause",
}
WORDINGS = [Wording(reader=reader, format=format_) for reader in get_args(Reader) for format_ in ("text", "html")]


@cache
def usual_tables() -> MemoryTables:
    tables = MemoryTables(records(*EVENTS), rows={"episodes": [EPISODE]})
    tables.rows("update made_audit set status = 'lost' where message_id in ('p18', 'p19')")
    return tables


def hostile_report(text: str) -> tuple[MemoryTables, Report]:
    """The report of tables in which a stranger chose every text that a stranger can. It has no empty text."""
    tables = usual_tables()
    for table, columns in COLUMNS.items():
        for column in columns.split():
            tables.rows(f"update made_{table} set \"{column}\" = ? where coalesce(\"{column}\", '') <> ''", [text])
    for table in ("events", "timeline", "cost"):
        tables.rows(f"update made_{table} set engine = ?", [text])
    for table in ("engines", "audit", "verdicts", "episodes"):
        tables.rows(f"update made_{table} set pairing = ?", [text])
    return tables, last_report(tables)


@cache
def usual_pages() -> dict[Wording, Page]:
    """The pages of the same report with harmless texts."""
    _, usual = hostile_report("harmless")
    return {wording: Page(as_text(usual, wording)) for wording in WORDINGS if wording.format == "html"}


class Page(HTMLParser):
    """The elements and attributes of a page, and the texts between them."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: Counter[tuple[str, tuple[str, ...]]] = Counter()
        self.attributes: set[str] = set()
        self.texts: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements[tag, tuple(name for name, _ in attrs)] += 1
        self.attributes |= {name for name, _ in attrs}

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


@pytest.mark.parametrize("name", HOSTILE)
def test_a_report_only_shows_what_a_stranger_wrote(name: str, tmp_path: Path) -> None:
    """Every reader's version, as a page and as text: no element, line, order or secret of a stranger."""
    usual = usual_pages()
    tables, report = hostile_report(HOSTILE[name])
    for wording in WORDINGS:
        text = as_text(report, wording)
        assert not STEERING.search(text)
        assert "c4n4ry" not in text
        if wording.format == "html":
            page, known = Page(text), usual[wording]
            assert set(page.elements) <= set(known.elements) | SHAPES
            assert page.attributes == known.attributes
            assert page.elements["h1", ()] == 1
        else:
            lost = [line for line in text.splitlines() if line.startswith("MESSAGES WERE LOST")]
            assert all(line.startswith("MESSAGES WERE LOST: 2") for line in lost)
            assert len(lost) == 1
            assert max(map(len, text.splitlines())) <= max(WIDTH, LONGEST)
    assert not STEERING.search(as_object(report))
    write_report(tables, report, tmp_path, Wording(format="html"))
    with (tmp_path / "lost-messages.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["status"] for row in rows] == ["lost", "lost"]
    assert not any(cell[:1] in ("=", "+", "-", "@") for row in rows for cell in row.values())


SIGNS = st.sampled_from("<>&\"'`$(){}[]%#|*_\\/=+-;:\n\r\t\x00\x1b\x9b\u202e\u2066\u200b\u2028\ufeffa1é漢 ")


@settings(max_examples=settings().max_examples // 6, deadline=None)
@given(st.text(SIGNS, min_size=1, max_size=80))
def test_a_report_of_any_text_is_one_page_of_the_usual_shape(text: str) -> None:
    """Names, reasons and ids with quotes, dollar signs, markup and signs that turn the writing direction."""
    usual = usual_pages()
    tables, report = hostile_report(text)
    for wording in WORDINGS:
        shown = as_text(report, wording)
        assert not STEERING.search(shown)
        if wording.format == "html":
            page = Page(shown)
            assert set(page.elements) <= set(usual[wording].elements) | SHAPES
            assert page.attributes == usual[wording].attributes
        else:
            assert sum(line.startswith("MESSAGES WERE LOST") for line in shown.splitlines()) == 1
    shown = as_object(report)
    assert not STEERING.search(shown)
    assert json.loads(shown)["judgement"]["incident"]["lost"] == 2
    with TemporaryDirectory() as folder:
        write_report(tables, report, Path(folder), Wording())
        rows = list(csv.DictReader((Path(folder) / "lost-messages.csv").open(newline="", encoding="utf-8")))
    assert len(rows) == 2
    assert not any(cell[:1] in ("=", "+", "-", "@") for row in rows for cell in row.values())


SHAPES = {("path", ("fill", "stroke", "stroke-width", "stroke-dasharray", "stroke-linejoin", "d"))}


def test_a_strangers_text_is_shown_as_it_is() -> None:
    text = 'it\'s <b>"$HOME"</b> {{ 7 * 7 }} &amp; $(id)'
    _, report = hostile_report(text)
    for wording in WORDINGS:
        shown = as_text(report, wording)
        assert text in (" ".join(Page(shown).texts) if wording.format == "html" else shown)
    assert json.loads(as_object(report))["episodes"][0]["entity"] == text


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
