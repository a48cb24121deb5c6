"""Drains a large backlog with the syphon's pumps: bounded tasks, in waves, on a Spark cluster."""
