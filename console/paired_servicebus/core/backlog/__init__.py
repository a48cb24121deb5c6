"""The state of the backlog: counts, trend, stalls, queues in use, the syphon's status."""
