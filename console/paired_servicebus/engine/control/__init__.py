"""The control socket: its server, client and protocol, and the discovery of running engines."""
