"""The limits of the audit, in microseconds. SQL and the pure functions share them."""

from __future__ import annotations

from typing import Final

SECOND: Final = 1_000_000
IN_FLIGHT: Final = 900 * SECOND
"""A message that its destination accepted is in flight for this long at least: Service Bus itself may be as late, and
a prefetching receiver holds messages until their locks end (section 10)."""
PASS_MARGIN: Final = 60 * SECOND
"""A receiver got past a message when it received one that the same engine delivered this much later: an engine's own
sends overlap."""
CLOCK_MARGIN: Final = 900 * SECOND
"""The same for a message that another engine delivered: their clocks differ."""
LOCK_CYCLES: Final = 3600 * SECOND
"""A message may be held so long by receivers that let locks end: Service Bus dead-letters it after ten locks of at most
five minutes, by default."""
RECEIVER_FORGOTTEN: Final = 24 * 3600 * SECOND
"""A receiver without a message for so long, while others of the entity had some, does not hold others back."""
READING_MARGIN: Final = 60 * SECOND
"""A backlog queue's reading counts for messages that were diverted this long before it."""
ORDER_MARGIN: Final = 1 * SECOND
"""Messages without a sender's number are out of order if their sender had accepted answers this far apart."""
