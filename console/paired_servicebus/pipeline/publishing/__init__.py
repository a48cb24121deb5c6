"""The tables as Delta tables in other places."""
