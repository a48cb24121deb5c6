"""Trials on the owner's namespaces: a rehearsed outage and experiments, with entities that they make and delete."""
