"""Incident reports from the tables, with duckdb only; no Spark, no engine.

Every figure names its source and the time of the tables; missing facts are listed and not guessed.
"""
