"""The event journal: written, recovered and trimmed as rolling files of JSON lines, and read back."""
