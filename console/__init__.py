"""Paired namespaces for Azure Service Bus."""
