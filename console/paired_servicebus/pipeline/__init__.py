"""What happened, as tables: Spark reads the engine's journal and writes them, duckdb reads them back.

    journal ──▶ Spark, in a process of its own ──▶ Parquet files and a manifest ──▶ duckdb ──▶ screens, reports

Nothing here runs in an engine, in an application or in the dashboard, but tables.py, launch.py and what they import,
which know nothing of Spark. Spark's death changes nothing for anybody: the journal is the truth, and everything here
can be made from it again.
"""
