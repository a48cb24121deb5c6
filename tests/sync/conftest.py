"""The sandbox on a thread of its own, as any project's tests have it."""

from servicebus_sandbox.pytest_plugin import servicebus_namespaces, servicebus_sandbox

__all__ = ["servicebus_namespaces", "servicebus_sandbox"]
