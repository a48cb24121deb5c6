"""A cross-check with Microsoft's client for Java."""
