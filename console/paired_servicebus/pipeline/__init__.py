"""The journal as tables: Spark reads the engine's journal and writes them, duckdb reads them.

    journal ──▶ Spark, in its own process ──▶ Parquet files and a manifest ──▶ duckdb ──▶ screens, reports

Engines, applications and the dashboard import only `table_store` and `processes`, which need no Spark. A failure of
Spark affects none of them: the tables can always be made again from the journal.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from paired_servicebus.pipeline.table_store.table_reader import Tables

__all__ = ["Tables"]


def __getattr__(name: str) -> object:
    """Import `Tables`, and duckdb with it, at its first use."""
    if name != "Tables":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from paired_servicebus.pipeline.table_store.table_reader import Tables

    return Tables
