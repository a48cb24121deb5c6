"""Subscription rules: SQL and correlation filters, actions, and the message properties that they read."""
