"""The dashboard's parts, a file each. Every one draws lines from a View and repaints only what changed."""
