"""Incident reports from the tables, with duckdb only; no Spark, no engine.

`table_queries.py` reads a report's values from the tables, `verdict.py` and `sentences.py` put them in words,
`pages.py` fills the templates. Missing facts are listed, not guessed.
"""
