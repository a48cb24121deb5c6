"""The pairing's state machine, `step(event) -> effects`: failover, pings, queue rotation, the route of a send."""
