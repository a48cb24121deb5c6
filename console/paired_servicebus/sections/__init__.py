"""Sections of pairing.toml that have rules of their own."""
