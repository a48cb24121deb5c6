"""Clients of every language through a gateway, as processes, while the primary namespace fails."""
