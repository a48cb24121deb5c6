"""Senders in four languages that know nothing but a connection string: each uses its official SDK with all defaults."""
