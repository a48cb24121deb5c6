"""The values that every room shares: options, entity states, failure verdicts, events, the envelope, snapshots."""
