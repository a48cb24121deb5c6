"""The state of the backlog: counts, totals, trend, stalls, queues in use, the syphon's status."""
