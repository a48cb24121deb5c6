"""SDK clients for both namespaces: credentials and their renewal, HTTP transport, checks before the start."""
