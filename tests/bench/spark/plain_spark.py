"""What Spark alone takes to read a journal: the peer of `python -m tests.bench pipeline --only once`.

    python -m tests.bench.spark.plain_spark JOURNAL     prints the seconds, after Spark stood

In a session as ours is, it reads the lines as JSON, writes them as Parquet and groups them once by message, which is
the least that tables of messages need. The pipeline besides makes all other tables and judges every message.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path
from typing import Final

from paired_servicebus.pipeline.spark.spark_session import open_session, spark_path
from paired_servicebus.pipeline.table_store.schema import EVENT_FIELDS, HEADER, spark_ddl

_LINE: Final = {
    **{name: kind for name, kind in (HEADER | EVENT_FIELDS).items() if name != "event_time"},
    "ts": "BIGINT",
}
_GROUPED: Final = """
select message_id, max(entity) as entity, count(*) as events, min(ts) as first, max(ts) as last,
       min_by(engine, ts) as first_by, max_by(engine, ts) as last_by
from events where message_id is not null group by message_id
"""


def seconds_for(journal: Path) -> float:
    """Return the seconds for one journal."""
    with tempfile.TemporaryDirectory(prefix="pb-") as name:
        work = Path(name)
        with open_session(app="plain", work=work) as spark:
            began = time.monotonic()
            lines = spark.read.schema(spark_ddl(_LINE)).option("recursiveFileLookup", "true")
            lines.json(spark_path(journal)).write.parquet(str(work / "events"))
            spark.read.parquet(str(work / "events")).createOrReplaceTempView("events")
            spark.sql(_GROUPED).write.parquet(str(work / "messages"))
            return time.monotonic() - began


if __name__ == "__main__":
    sys.stdout.write(f"{seconds_for(Path(sys.argv[1])):.2f}\n")
