"""Spark itself: Java, session, environment, restarted queries and their checkpoints."""
