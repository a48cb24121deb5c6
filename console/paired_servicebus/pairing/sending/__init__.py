"""Sending under a pairing: the paired sender, its links to the primary and the backlog, and pings."""
