"""The way home: one pump for each backlog queue, deliveries, deferred messages, dead letters, re-drive."""
