"""Entities that a command makes in the owner's namespaces and deletes at its end: their record, and their removal."""
