"""`paired verify`: the project's assumptions about Service Bus, each an experiment on the configured namespaces."""
