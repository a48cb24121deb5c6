"""Untrusted text and TOML made safe, secrets masked, entity paths checked, times and index ranges written."""
