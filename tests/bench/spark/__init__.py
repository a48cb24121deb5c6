"""Benches that need Spark: drain and pipeline, with a loopback cluster and synthetic journals."""
