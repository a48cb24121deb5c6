"""Draws the pictures in `screenshots/` from snapshots of real demo runs."""
