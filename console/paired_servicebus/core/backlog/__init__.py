"""What the backlog holds and where it goes: counts, trend, stalls, queues in use, the syphon's status."""
