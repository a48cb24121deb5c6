"""Microsoft's client for Java on sandboxes."""
