"""The reading side of a pairing, which changes no message: depths, peeks, unused queues, readiness, snapshot views."""
