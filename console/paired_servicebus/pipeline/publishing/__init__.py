"""The tables in other places: Delta tables in a store or a folder, or plain Parquet in another folder."""
