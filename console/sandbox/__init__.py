"""The sandbox: Azure Service Bus namespaces on this machine, for tests and demonstrations, that can be broken at will.

`async with Sandbox.start() as sandbox:` runs them inside the caller's event loop; `paired sandbox` in a process.
Names are loaded when they are first asked for, so that the pure broker can be imported without any server.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from console.sandbox.broker.access import AuthorizationRule, Right
    from console.sandbox.broker.settings import Pings, QueueSettings, SubscriptionSettings, Tier, TopicSettings
    from console.sandbox.credentials import AsyncSandboxCredential, SandboxCredential
    from console.sandbox.host import Sandbox, SandboxNamespace
    from console.sandbox.listener import ListenError
    from console.sandbox.specs import NamespaceSpec, QueueSpec, SubscriptionSpec, TopicSpec

__all__ = [
    "AsyncSandboxCredential",
    "AuthorizationRule",
    "ListenError",
    "NamespaceSpec",
    "Pings",
    "QueueSettings",
    "QueueSpec",
    "Right",
    "Sandbox",
    "SandboxCredential",
    "SandboxNamespace",
    "SubscriptionSettings",
    "SubscriptionSpec",
    "Tier",
    "TopicSettings",
    "TopicSpec",
]

_HOMES = {
    "AsyncSandboxCredential": "credentials",
    "AuthorizationRule": "broker.access",
    "ListenError": "listener",
    "NamespaceSpec": "specs",
    "Pings": "broker.settings",
    "QueueSettings": "broker.settings",
    "QueueSpec": "specs",
    "Right": "broker.access",
    "Sandbox": "host",
    "SandboxCredential": "credentials",
    "SandboxNamespace": "host",
    "SubscriptionSettings": "broker.settings",
    "SubscriptionSpec": "specs",
    "Tier": "broker.settings",
    "TopicSettings": "broker.settings",
    "TopicSpec": "specs",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
