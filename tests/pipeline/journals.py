"""Tables of a list of events, without Spark."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from paired_servicebus.core.model.pairing_events import Event
from paired_servicebus.pipeline.table_store.manifest import RecordSpan
from paired_servicebus.pipeline.table_store.table_reader import Tables
from tests.pipeline.made_tables import BOOT, ENGINE, Row, event_rows, make_version


def tables_of(folder: Path, events: Sequence[Event], **rows: Sequence[Row]) -> Tables:
    """Tables with these events, and rows of other tables by their names."""
    seen = (RecordSpan(ENGINE, BOOT, 1, len(events)),) if events else ()
    return Tables.open(make_version(folder, seen=seen, events=event_rows(events), **rows))
