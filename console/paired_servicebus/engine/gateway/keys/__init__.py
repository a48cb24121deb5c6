"""The gateway's own keys: their file, and those in force while an engine runs."""
