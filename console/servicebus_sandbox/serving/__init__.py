"""Ports, and the common part of their servers.

Not here: the protocols on a connection (`amqp_server`, `atom`, `arm`).
"""
