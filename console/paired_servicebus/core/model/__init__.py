"""The values shared by every package: options, entity states, failure verdicts, events, the envelope, snapshots."""
