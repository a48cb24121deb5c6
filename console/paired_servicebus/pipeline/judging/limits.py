"""The limits of the audit, in seconds, and the words that duckdb lacks of Spark's SQL.

The SQL of this room counts in microseconds and runs in Spark (ANSI mode) and in duckdb; both use these constants.
"""

from __future__ import annotations

from typing import Final

IN_FLIGHT: Final = 900
"""A message that its destination accepted is in flight for this long at least: Service Bus itself may be as late, and
a prefetching receiver holds messages until their locks end (section 10)."""
PASS_MARGIN: Final = 60
"""A receiver got past a message when it received one that the same engine delivered this much later: an engine's own
sends overlap."""
CLOCK_MARGIN: Final = 900
"""The same for a message that another engine delivered: their clocks differ."""
RECEIVER_FORGOTTEN: Final = 24 * 3600
"""A receiver without a message for so long, while others of the entity had some, does not hold others back."""
READING_MARGIN: Final = 60
"""A backlog queue's reading counts for messages that were diverted this long before it."""
ORDER_MARGIN: Final = 1
"""Messages without a sender's number are out of order if their sender had accepted answers this far apart."""

DUCKDB_WORDS: Final = (
    "create or replace macro unix_micros(moment) as epoch_us(moment)",
    "create or replace macro timestamp_micros(n) as make_timestamp(n)",
    "create or replace macro collect_set(x) as list(distinct x) filter (x is not null)",
    "create or replace macro sort_array(items) as list_sort(items)",
    "create or replace macro array_join(items, mark) as array_to_string(items, mark)",
)
"""Statements for a duckdb connection before it runs SQL of this room."""


def micros(seconds: float) -> int:
    """Return seconds as microseconds."""
    return round(seconds * 1_000_000)
