"""Engines: the feed of the one on screen, the others of this machine, and the health of each."""
