"""An engine's part in the fleet: the boards in the secondary namespace, their documents and their queues."""
