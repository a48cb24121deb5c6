"""The long-running process: one pairing, its journal and its control socket (nothing of a screen lives here)."""
