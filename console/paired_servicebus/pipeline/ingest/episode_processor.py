"""episodes.py under Spark: a state for each entity, in RocksDB, by transformWithState.

Python sees a row here for each change of a state, each ping and each 10 s of receipts, and a key for each entity:
never a key for each message, of which Python takes some 1,500 a second.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyspark.sql import Row
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle

from paired_servicebus.pipeline.ingest.episodes import EpisodeHistory, as_row
from paired_servicebus.pipeline.table_store.schema import EPISODES


class EpisodeProcessor(StatefulProcessor):  # type: ignore[misc] # Spark's types are not looked at
    """Keeps an entity's EpisodeHistory; gives the episodes that changed."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Spark's; before the first row."""
        self._kept = handle.getValueState("history", "text string")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        """Spark's; a batch's rows of one entity, in no order."""
        found = self._kept.get()
        history = EpisodeHistory(found[0] if found is not None else None)
        history.add(row.asDict() for row in rows)
        self._kept.update((history.text(),))
        for episode in history.episodes.values():
            yield Row(**as_row(episode, EPISODES))

    def close(self) -> None:
        """Spark's; nothing is held."""
