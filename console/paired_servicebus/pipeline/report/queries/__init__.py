"""The tables to a report's values: plain SQL of duckdb over the columns of table_store/schema.py.

Times leave SQL as seconds since the epoch, since a TIMESTAMP may be outside of Python's calendar.
"""
