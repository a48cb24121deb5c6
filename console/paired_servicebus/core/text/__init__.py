"""Untrusted text and TOML made safe, secrets masked, entity paths checked; numbers, times and index ranges written."""
