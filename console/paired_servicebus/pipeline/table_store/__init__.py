"""The tables on disk: schema, manifest, the one writer, the readers and their SQL; no Spark."""
