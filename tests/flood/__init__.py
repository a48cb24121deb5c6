"""Idle connections by the thousand against every server of ours, while an engine works: `python -m tests.flood`."""
