"""Tokens and the access that a connection has proven with them. Not here: keys, which belong to the owner."""
