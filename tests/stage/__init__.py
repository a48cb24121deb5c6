"""The stage for process tests: one director, one ledger, one table of plays. `python -m tests.stage --list`."""
