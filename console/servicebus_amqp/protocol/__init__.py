"""The state machines of a connection: handshake, sessions, sender and receiver links, and the events that they emit."""
