"""The parts of pages, a file each. Each computes lines from a View and repaints only changes."""
