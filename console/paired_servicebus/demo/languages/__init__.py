"""Senders in four languages that know nothing but a connection string; they are found, run and counted here."""
