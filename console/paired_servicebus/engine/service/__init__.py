"""The engine process: start and end, the host around one pairing, metrics, and the on_change command."""
