"""Incidents of the newest part of journals, without tables: which episodes they join, and their figures."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from paired_servicebus.core.errors import PipelineError
from paired_servicebus.core.model import pairing_events as e
from paired_servicebus.engine.journal.records import encode
from paired_servicebus.engine.journal.spool import CLOSED, OPEN
from paired_servicebus.pipeline.journal_tables import JournalTables
from paired_servicebus.pipeline.report.report_values import Chain, Figures
from paired_servicebus.pipeline.report.table_queries import read_figures, read_incidents

BEGAN = 1_700_000_000.0
Incidents = Callable[[Sequence[e.Event]], list[tuple[Chain, Figures]]]


def write(journal: Path, events: Sequence[e.Event], *, engine: str = "orders@web-1", is_open: bool = False) -> Path:
    """One file of a journal, its records in the order of time."""
    folder = journal / (OPEN if is_open else CLOSED)
    folder.mkdir(parents=True, exist_ok=True)
    ordered = sorted(events, key=lambda one: one.at)
    lines = [encode(e.Record(engine=engine, boot="b1", seq=seq, event=event)) for seq, event in enumerate(ordered, 1)]
    (folder / f"{engine}-0000000000001-000000000001.jsonl").write_bytes(b"\n".join([*lines, b""]))
    return journal


@pytest.fixture
def incidents(tmp_path: Path) -> Incidents:
    def of(events: Sequence[e.Event]) -> list[tuple[Chain, Figures]]:
        with JournalTables.recent([write(tmp_path / "journal", events)]) as tables:
            return [(chain, read_figures([tables], chain)) for chain in read_incidents(tables)]

    return of


def changed(at: float, now: str, entity: str = "orders") -> e.Event:
    return e.StateChanged(at=BEGAN + at, entity=entity, was="", now=now, why=f"why {now}")


def sends(at: float, route: str, accepted: int, failed: int = 0, entity: str = "orders") -> e.Event:
    return e.SendsCounted(at=BEGAN + at, entity=entity, route=route, accepted=accepted, failed=failed, seconds=1.0)


def operations(at: float, sends: int, parked: int) -> e.Event:
    zero = {"pings": 0, "receives": 0, "moves": 0, "settlements": 0}
    none = {"sent_bytes": 0, "parked_bytes": 0, "moved_bytes": 0}
    return e.OperationsCounted(at=BEGAN + at, sends=sends, parked=parked, **zero, **none)


OUTAGE = (changed(0, "suspect"), changed(60, "failed over"), changed(180, "healthy"))


def test_a_suspect_that_recovers_is_no_incident(incidents: Incidents) -> None:
    assert incidents([changed(0, "suspect"), changed(5, "healthy")]) == []


def test_an_incident_lasts_from_the_first_failure_until_home(incidents: Incidents) -> None:
    (((one,), figures),) = incidents(OUTAGE)
    assert (one.began_at, one.closed_at, one.entity, one.outcome) == (BEGAN, BEGAN + 180, "orders", "failed back")
    assert one.cause == "why failed over"
    assert (figures.during.since, figures.during.until) == (BEGAN, BEGAN + 180)


def test_one_that_goes_on_has_no_end_and_nothing_after(incidents: Incidents) -> None:
    (((one,), figures),) = incidents(OUTAGE[:2])
    assert (one.open, one.closed_at, figures.after) == (True, None, None)


def test_figures_are_those_before_during_and_after(incidents: Incidents) -> None:
    counts = [sends(at, "primary", 10) for at in (*range(-100, 0), *range(181, 240))]
    counts += [sends(at, "backlog/3", 4, 1) for at in range(60, 180)]
    (((one,), figures),) = incidents([*OUTAGE, *counts])
    assert (figures.before.to_primary, figures.before.to_backlog) == (1000, 0)
    assert (figures.during.to_primary, figures.during.to_backlog, figures.during.failed) == (0, 480, 120)
    assert one.parked == 480, "by the counts, where nothing is judged"
    assert figures.after is not None
    assert figures.after.to_primary == 590, "a count is of the second before it"


def test_sends_of_other_entities_are_not_counted(incidents: Incidents) -> None:
    ((_, figures),) = incidents([*OUTAGE, sends(100, "primary", 7, entity="audit")])
    assert figures.during.to_primary is None


def test_what_no_event_covers_is_unknown(incidents: Incidents) -> None:
    ((_, figures),) = incidents(OUTAGE)
    assert (figures.before.to_primary, figures.during.to_backlog, figures.during.operations) == (None, None, None)


def test_operations_are_all_of_them_and_those_added(incidents: Incidents) -> None:
    ((_, figures),) = incidents([*OUTAGE, operations(70, 5, 40), operations(80, 5, 40)])
    assert (figures.during.operations, figures.during.added) == (90, 80)


def test_an_incident_is_of_every_journal_here_and_also_of_open_files(tmp_path: Path) -> None:
    """An incident is the pairing's: engines of the same two namespaces are one pairing, whatever it is called."""
    journals = []
    for name, at in (("orders@web-1", 0), ("worker@web-1", 30)):
        start = e.EngineStarted(
            at=BEGAN - 10, pairing=name.partition("@")[0], primary="weu", secondary="neu", backlog_queues=1,
            syphon=False, version="1",
        )  # fmt: skip
        story = [start, changed(at, "failed over"), sends(at + 10, "backlog/1", 5)]
        journals.append(write(tmp_path / name, story, engine=name, is_open=bool(at)))
    with JournalTables.recent(journals) as tables:
        ((first, second),) = read_incidents(tables)
        figures = read_figures([tables], (first, second))
    assert [one.engine for one in (first, second)] == ["orders@web-1", "worker@web-1"]
    assert figures.during.to_backlog == 10


def test_journals_that_are_not_there_are_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(PipelineError, match="there is no journal in"):
        JournalTables.recent([tmp_path / "none"])


def test_only_the_newest_files_are_read(tmp_path: Path) -> None:
    journal = write(tmp_path, OUTAGE)
    old = next((journal / CLOSED).iterdir())
    later = [encode(e.Record(engine="orders@web-1", boot="b1", seq=seq, event=changed(9000 + seq, now)))
             for seq, now in ((4, "forced"), (5, "healthy"))]  # fmt: skip
    (journal / CLOSED / "orders@web-1-0000000000001-000000000004.jsonl").write_bytes(b"\n".join([*later, b""]))
    with JournalTables.recent([journal], most_bytes=10) as tables:
        assert [chain[0].began_at for chain in read_incidents(tables)] == [BEGAN + 9004]
        assert tables.since == BEGAN + 9004
    assert old.exists()
