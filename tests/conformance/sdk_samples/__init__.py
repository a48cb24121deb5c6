"""A cross-check with the samples of Microsoft's SDK: as they are, and with the line that makes the client replaced."""
