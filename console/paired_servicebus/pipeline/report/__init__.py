"""Incident reports from the tables, with duckdb only; no Spark, no engine.

`queries/` makes a report's values from the tables, `report_document.py` and `sentences.py` put them in words, `render/`
makes them Markdown, HTML and pictures. Every figure names its source and time; missing facts are listed, not guessed.
"""
