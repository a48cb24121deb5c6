"""`paired pipeline` as a terminal sees it, over a pipeline that Ctrl-C meets."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from paired_servicebus.cli import main
from paired_servicebus.core.errors import PipelineError
from paired_servicebus.core.model.pairing_events import Delivered, EngineStarted, Record
from paired_servicebus.engine.journal.records import encode
from paired_servicebus.engine.journal.spool import CLOSED
from paired_servicebus.pipeline import pipeline_command, spark_processes
from paired_servicebus.pipeline.pipeline_command import run_pipeline
from tests.pipeline.made_tables import make_version

START = 1_790_000_000.0


class Interrupted:
    """A pipeline whose person has had enough."""

    def __init__(self) -> None:
        self.log = Path("pipeline.log")
        self.running = True

    def wait(self, timeout: float | None = None) -> int:
        raise KeyboardInterrupt

    def stop(self) -> None:
        self.running = False


@pytest.fixture
def pipeline(monkeypatch: pytest.MonkeyPatch) -> Interrupted:
    pipeline = Interrupted()
    monkeypatch.setattr(pipeline_command, "start_pipeline", lambda _: pipeline)
    return pipeline


def run(folder: Path, *, once: bool) -> int:
    return run_pipeline(spark_processes.PipelineOrder(journals=(folder,), tables=folder / "tables", once=once))


def test_ctrl_c_is_the_end_of_one_that_follows(
    pipeline: Interrupted, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    verdict = {
        "pairing": "orders", "entity": "", "subscription": "", "accepted": 1200, "lost": 0, "unknown": 3,
        "rests_on": "18 of 20 journals are complete.", "finding": "unknown",
    }  # fmt: skip
    make_version(
        tmp_path / "tables",
        engines=[{"engine": "e1"}, {"engine": "e2"}],
        gaps=[{"engine": "e1", "missing": 4}],
        episodes=[{"id": "a", "outcome": "open"}, {"id": "b", "outcome": "failed back"}],
        verdicts=[verdict],
    )
    assert run(tmp_path, once=False) == 0
    assert not pipeline.running
    out = capsys.readouterr().out
    assert "0 events of 2 engines; 0 unreadable lines, 4 records missing" in out
    assert "2 episodes, 1 open" in out
    assert "audit of orders: unknown; 1,200 accepted, 0 lost, 0 missing, 3 unknown" in out
    assert "18 of 20 journals are complete." in out


def test_tables_that_were_not_all_made_are_not_called_done(pipeline: Interrupted, tmp_path: Path) -> None:
    """The bug: the exit status was 0, and what came next in a script read old tables."""
    (tmp_path / "e-1-1.jsonl").touch()
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, once=True)
    assert not pipeline.running


@pytest.mark.parametrize("has_events", [True, False])
def test_once_over_no_journal_file_is_an_error_that_says_where_it_looked(
    pipeline: Interrupted, tmp_path: Path, has_events: bool
) -> None:
    """Tables of nothing would look like a success: exit status 0, 0 events, nothing lost."""
    if has_events:
        (tmp_path / CLOSED).mkdir()
    with pytest.raises(PipelineError, match=f"there are no journal files in {tmp_path}: "):
        run(tmp_path, once=True)
    assert pipeline.running, "it was not started"


def test_following_no_journal_file_waits_and_says_where(
    pipeline: Interrupted, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(tmp_path, once=False) == 0
    out = capsys.readouterr().out
    assert f"there are no journal files in {tmp_path} yet: waiting for an engine" in out
    assert "no tables were made" in out


def test_skipped_files_are_told_before_spark_starts(
    pipeline: Interrupted, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a\nb.jsonl").touch()
    assert run(tmp_path, once=False) == 0
    assert "is not read: its name is no text; rename it" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        (
            "commits/c0000000001.json",
            '{"version": 2}',
            "has format 2, and this release has 4: name another folder with --tables",
        ),
        ("commits/c0000000001.json", '{"version": 99}', "has format 99, and this release has 4"),
        ("commits/c0000000001.json", "{", "no version of the tables in .* is whole"),
        ("notes.txt", "theirs", "has notes.txt in it, which is not of tables"),
    ],
)
def test_tables_of_a_later_program_and_folders_of_somebody_else_are_untouched(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, content: str, reason: str
) -> None:
    (tmp_path / "e-1-1.jsonl").touch()
    theirs = tmp_path / "theirs" / name
    theirs.parent.mkdir(parents=True)
    theirs.write_text(content)
    arguments = ["pipeline", "--journal", str(tmp_path), "--tables", str(tmp_path / "theirs"), "--once"]
    assert main(arguments) == 2
    said = capsys.readouterr().err
    assert re.search(reason, said)
    assert said.count("\n") == 1
    assert [path for path in (tmp_path / "theirs").rglob("*") if path.is_file()] == [theirs]
    assert theirs.read_text() == content


@pytest.mark.parametrize("verb", ["pipeline", "rehearse", "report"])
def test_a_journal_at_a_url_of_no_store_is_refused(
    verb: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main([verb, "--journal", str(tmp_path), "--journal", "https://host/x"]) == 2
    assert "https://host/x is no place for journals or tables" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_options_of_spark_reach_the_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The bug: `pipeline` had no --conf."""
    orders: list[spark_processes.PipelineOrder] = []
    monkeypatch.setattr(pipeline_command, "run_pipeline", lambda order: orders.append(order) or 0)
    conf = ("--conf", "spark.driver.host=10.0.0.5", "--conf", "spark.executor.memory=2g")
    journals = ("--journal", str(tmp_path / "a"), "--journal", str(tmp_path / "b"))
    assert main(["pipeline", *journals, *conf, "--java-home", "/java", "--once"]) == 0
    (order,) = orders
    assert order.journals == (tmp_path / "a", tmp_path / "b")
    assert order.tables == tmp_path / "tables"
    assert order.settings == {"spark.driver.host": "10.0.0.5", "spark.executor.memory": "2g"}
    assert order.java_home == Path("/java")
    assert spark_processes.PipelineOrder.read(msgspec.json.encode(order, enc_hook=str)) == order


def test_a_report_reads_the_journals_of_several_hosts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for host in ("a", "b"):
        started = EngineStarted(
            at=START, pairing="orders", primary="p", secondary="s", backlog_queues=1, syphon=True, version="1"
        )
        line = encode(Record(engine=f"orders@{host}", boot="b", seq=1, event=started))
        (tmp_path / host).mkdir()
        (tmp_path / host / "e-1.jsonl").write_bytes(line + b"\n")
    assert main(["report", "--journal", str(tmp_path / "a"), "--journal", str(tmp_path / "b")]) == 0
    out = capsys.readouterr().out
    assert "orders@a" in out
    assert "orders@b" in out


def test_without_tables_a_report_is_of_every_journal_here_and_names_those_that_are_not(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An incident is the pairing's: engines of the same two namespaces, whatever their pairing's name."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    for number, (name, secondary) in enumerate((("orders", "s"), ("worker", "s"), ("stock", "t"))):
        started = EngineStarted(
            at=START, pairing=name, primary="p", secondary=secondary, backlog_queues=1, syphon=True, version="1"
        )
        sent = Delivered(at=START + 1, entity="orders", message_id=f"m{number}")
        state = tmp_path / "state" / "paired" / name
        (state / "spool" / CLOSED).mkdir(parents=True)
        (state / "lock").touch()
        lines = [encode(Record(engine=f"{name}@a", boot="b", seq=seq, event=e)) for seq, e in ((1, started), (2, sent))]
        (state / "spool" / CLOSED / "e-1.jsonl").write_bytes(b"\n".join([*lines, b""]))
    config = tmp_path / "pairing.toml"
    config.write_text(
        '[pairing]\nname = "worker"\nentities = ["orders"]\n[primary]\nnamespace = "a.servicebus.windows.net"\n'
        '[secondary]\nnamespace = "b.servicebus.windows.net"\n[fleet]\nexpect = ["a", "c"]\n'
    )
    assert main(["report", "--config", str(config)]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "Whether messages were lost is UNKNOWN: 2 without a receiver's record." in out
    assert "No journal of these engines is here: c." in out
    assert "orders@a and worker@a" in out
    assert "stock" not in out.partition("Not in this report: pairing stock")[0]


def test_a_report_has_one_source(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", "--journal", str(tmp_path), "--tables", str(tmp_path)]) == 2
    assert "--journal and --tables are two sources" in capsys.readouterr().err


# -- How far a process with Spark is: the lines in its log, and what its parent's terminal shows of them.


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def written(capsys: pytest.CaptureFixture[str]) -> list[str]:
    return [line for line in capsys.readouterr().out.splitlines() if line]


def test_a_process_writes_its_progress_twice_a_second_at_most(clock: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    lines = spark_processes.ProgressLines(clock)
    for done in range(100):
        lines.show("reading", done, 100)
        clock.now += 0.05
    found = written(capsys)
    assert 8 <= len(found) <= 12
    assert found[0] == spark_processes.PROGRESS + '{"what":"reading","done":0,"total":100}'


def test_the_begin_and_the_end_of_a_step_are_always_written(clock: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    lines = spark_processes.ProgressLines(clock)
    lines.show("reading", 1, 2)
    lines.show("reading", 2, 2)
    lines.show("judging")
    assert [line.split('"')[3] for line in written(capsys)] == ["reading", "reading", "judging"]


def test_without_a_terminal_there_is_a_line_from_time_to_time(
    clock: Clock, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The bug: `--once` wrote nothing until it was done."""
    log = tmp_path / "log"
    log.write_text(spark_processes.PROGRESS + '{"what":"reading journal files","done":5000,"total":20000}\n')
    bar = spark_processes.Bar(clock=clock)
    reader = spark_processes.LogReader(log, bar)
    with bar.shown("starting Spark"):
        reader.look()
        assert capsys.readouterr().err == ""
        for _ in range(5):
            clock.now += max(spark_processes.FIRST_LINE, spark_processes.LINE_EVERY / 2)
            reader.look()
    assert capsys.readouterr().err.splitlines() == ["reading journal files: 5,000 of 20,000 · 0/s"] * 3


def test_notes_are_shown_once_and_torn_lines_not_at_all(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = tmp_path / "log"
    bar = spark_processes.Bar()
    reader = spark_processes.LogReader(log, bar)
    reader.look()  # there is no log yet
    note = f"{spark_processes.NOTE}a file \x1b[2J is not read\n"
    log.write_bytes(f"{note}{note}{spark_processes.PROGRESS}{{torn\n{spark_processes.NOTE}half of a li".encode())
    reader.look()
    with log.open("a") as file:
        file.write("ne\n")
    reader.look()
    assert capsys.readouterr().err.splitlines() == ["a file \\x1b[2J is not read", "half of a line"]


def test_the_wait_is_over_with_the_process(tmp_path: Path) -> None:
    statuses: Iterator[int | None] = iter([None, None, 2])
    waits: list[float] = []

    def wait(seconds: float) -> int | None:
        waits.append(seconds)
        return next(statuses)

    look: Callable[[float], int | None] = wait
    assert spark_processes.wait_shown(look, tmp_path / "log", spark_processes.Bar(quiet=True)) == 2
    assert len(waits) == 3
