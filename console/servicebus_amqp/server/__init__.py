"""The server of a namespace for clients of AMQP: who is let in, and what serves a connection."""
