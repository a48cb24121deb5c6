"""The developers' benches: python -m tests.bench NAME, from the project's root."""
