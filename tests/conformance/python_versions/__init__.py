"""Older releases of azure-servicebus against the sandbox."""
