"""The sandbox: Azure Service Bus namespaces on this machine, for tests and demonstrations, with faults on demand.

`async with Sandbox.start() as sandbox:` runs them in the caller's event loop, `servicebus-sandbox` in a process.

Each module imports only those below it. Names are loaded on first use, so that the pure broker works without servers.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from servicebus_sandbox.access.token_credentials import AsyncSandboxCredential, SandboxCredential
    from servicebus_sandbox.broker.entity_settings import (
        AuthorizationRule,
        Behavior,
        Expiry,
        Pings,
        QueueSettings,
        Right,
        SubscriptionSettings,
        Tier,
        TopicSettings,
    )
    from servicebus_sandbox.faults import FaultError, FaultKind
    from servicebus_sandbox.fixtures.held_messages import HeldMessage, HeldState
    from servicebus_sandbox.fixtures.pytest_sandbox import ActiveFault, PytestSandbox, SandboxEnded
    from servicebus_sandbox.sandbox_host import Sandbox, SandboxNamespace
    from servicebus_sandbox.serving.listener import ListenError
    from servicebus_sandbox.specs import NamespaceSpec, QueueSpec, SubscriptionSpec, TopicSpec

__all__ = [
    "ActiveFault",
    "AsyncSandboxCredential",
    "AuthorizationRule",
    "Behavior",
    "Expiry",
    "FaultError",
    "FaultKind",
    "HeldMessage",
    "HeldState",
    "ListenError",
    "NamespaceSpec",
    "Pings",
    "PytestSandbox",
    "QueueSettings",
    "QueueSpec",
    "Right",
    "Sandbox",
    "SandboxCredential",
    "SandboxEnded",
    "SandboxNamespace",
    "SubscriptionSettings",
    "SubscriptionSpec",
    "Tier",
    "TopicSettings",
    "TopicSpec",
]

_HOMES = {
    "ActiveFault": "fixtures.pytest_sandbox",
    "AsyncSandboxCredential": "access.token_credentials",
    "AuthorizationRule": "broker.entity_settings",
    "Behavior": "broker.entity_settings",
    "Expiry": "broker.entity_settings",
    "FaultError": "faults",
    "FaultKind": "faults",
    "HeldMessage": "fixtures.held_messages",
    "HeldState": "fixtures.held_messages",
    "ListenError": "serving.listener",
    "NamespaceSpec": "specs",
    "Pings": "broker.entity_settings",
    "PytestSandbox": "fixtures.pytest_sandbox",
    "QueueSettings": "broker.entity_settings",
    "QueueSpec": "specs",
    "Right": "broker.entity_settings",
    "Sandbox": "sandbox_host",
    "SandboxCredential": "access.token_credentials",
    "SandboxEnded": "fixtures.pytest_sandbox",
    "SandboxNamespace": "sandbox_host",
    "SubscriptionSettings": "broker.entity_settings",
    "SubscriptionSpec": "specs",
    "Tier": "broker.entity_settings",
    "TopicSettings": "broker.entity_settings",
    "TopicSpec": "specs",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
    try:
        return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    except ModuleNotFoundError as error:
        raise ImportError(
            f"{__name__}.{name} needs {error.name}: pip install 'servicebus-paired-console[sandbox]'"
        ) from error
