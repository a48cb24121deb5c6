"""Chaos at a gateway: an engine is killed, namespaces fail, clients die, say half of it or never read.

Processes of Microsoft's SDK know nothing but the gateway's connection string and keep lists of their own, which the
checker of tests.chaos judges: nothing is lost that was accepted. Beside them a crowd of connections.
"""
