"""Incidents from an engine's events: which entities, how long, and figures before, during and after."""
