"""`paired tables retire`: declares an engine gone for good, by a record in the journals that the judge reads.

An engine that was killed and never started again might still have records elsewhere, so every later loss stays unknown.
With this record its end is its last record here, and every verdict says so. One that starts again counts as before.
"""

from __future__ import annotations

import getpass
import time
from typing import Final

from paired_servicebus.core.errors import PipelineError
from paired_servicebus.core.model.pairing_events import EngineRetired, Record
from paired_servicebus.core.text.untrusted_text import one_line, repeated
from paired_servicebus.engine.journal import records
from paired_servicebus.engine.journal.spool import SUFFIX
from paired_servicebus.pipeline.ingest.journal_files import find_journal_files
from paired_servicebus.pipeline.judging.derived_sql import RETIRED_BOOT
from paired_servicebus.pipeline.table_store.store_path import Place, place_of, write_whole
from paired_servicebus.printing import print_lines

FOLDER: Final = "retired"
"""Beside a journal's own folders, which belong to its engine."""
MOST_NAMED: Final = 10
FIRST_BYTES: Final = 64 * 1024
"""Of a file: they have its first record."""


def run_retire(journal: Place, engine: str, *, why: str) -> int:
    """Declare an engine of a journal gone, and say so. Raises PipelineError."""
    path = retire(journal, engine, why=why, by=getpass.getuser(), now=time.time())
    print_lines([f"{engine} is declared gone for good in {path}: its end is its last record, at the next judgement"])
    return 0


def retire(journal: Place, engine: str, *, why: str, by: str, now: float) -> Place:
    """Write the record, and return its file.

    Raises PipelineError: no reason, no journal, no record of such an engine in it, or a folder that cannot be written.
    """
    if not why.strip():
        raise PipelineError("the reason is empty: --why says how you know that the engine is gone")
    known = _engines(journal)
    if engine not in known:
        named = ", ".join(repeated(one) for one in sorted(known)[:MOST_NAMED])
        raise PipelineError(f"the journal in {journal} has no engine {repeated(engine)}; it has {named or 'none'}")
    boot = f"{RETIRED_BOOT}{int(now * 1000):013d}"
    event = EngineRetired(at=now, by=by, why=one_line(why.strip()))
    line = records.encode(Record(engine=engine, boot=boot, seq=1, event=event))
    path = place_of(journal) / FOLDER / f"{boot}-000000000001{SUFFIX}"
    try:
        path.parent.mkdir(mode=0o700, exist_ok=True)
        write_whole(path, line + b"\n")
    except OSError as error:
        raise PipelineError(f"{path} cannot be written: {error.strerror or error}") from error
    return path


def _engines(journal: Place) -> set[str]:
    """Return the engines that began a file of the journal. Raises PipelineError."""
    found: set[str] = set()
    for one in find_journal_files([journal]).files:
        try:
            with one.path.open("rb") as file:
                record = records.decode(file.read(FIRST_BYTES).partition(b"\n")[0])
        except (OSError, records.UnreadableLineError):
            continue
        if record is not None:
            found.add(record.engine)
    return found
