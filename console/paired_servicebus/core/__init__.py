"""The rules. Pure: standard library only; no clock, no randomness, no I/O. Time and draws come in with events."""
