"""The way home: one pump a backlog queue, deliveries, deferred messages, dead letters, re-drive."""
