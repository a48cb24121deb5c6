"""Queues, topics and subscriptions, and the namespace that contains them."""
