"""The reading of a board: cursor, namespace clock, bounds of foreign documents, and which posts count."""
