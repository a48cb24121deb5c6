"""Engines as processes over one sandbox, each behind gates that cut it off: `python -m tests.fleet_processes`."""
