"""The sandbox: Azure Service Bus namespaces on this machine, for tests and demonstrations, with faults on demand.

`async with Sandbox.start() as sandbox:` runs them in the caller's event loop, `servicebus-sandbox` in a process.

Each module imports only those below it. Names are loaded on first use, so that the pure broker works without servers.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from servicebus_amqp.server.listener import ListenError as ListenError
    from servicebus_sandbox.access.token_credentials import AsyncSandboxCredential as AsyncSandboxCredential
    from servicebus_sandbox.access.token_credentials import SandboxCredential as SandboxCredential
    from servicebus_sandbox.broker.entity_settings import AuthorizationRule as AuthorizationRule
    from servicebus_sandbox.broker.entity_settings import Behavior as Behavior
    from servicebus_sandbox.broker.entity_settings import Expiry as Expiry
    from servicebus_sandbox.broker.entity_settings import Pings as Pings
    from servicebus_sandbox.broker.entity_settings import QueueSettings as QueueSettings
    from servicebus_sandbox.broker.entity_settings import Right as Right
    from servicebus_sandbox.broker.entity_settings import SubscriptionSettings as SubscriptionSettings
    from servicebus_sandbox.broker.entity_settings import Tier as Tier
    from servicebus_sandbox.broker.entity_settings import TopicSettings as TopicSettings
    from servicebus_sandbox.faults import FaultError as FaultError
    from servicebus_sandbox.faults import FaultKind as FaultKind
    from servicebus_sandbox.fixtures.pytest_sandbox import ActiveFault as ActiveFault
    from servicebus_sandbox.fixtures.pytest_sandbox import HeldMessage as HeldMessage
    from servicebus_sandbox.fixtures.pytest_sandbox import HeldState as HeldState
    from servicebus_sandbox.fixtures.pytest_sandbox import PytestSandbox as PytestSandbox
    from servicebus_sandbox.fixtures.pytest_sandbox import SandboxEnded as SandboxEnded
    from servicebus_sandbox.sandbox_host import Sandbox as Sandbox
    from servicebus_sandbox.sandbox_host import SandboxNamespace as SandboxNamespace
    from servicebus_sandbox.specs import NamespaceSpec as NamespaceSpec
    from servicebus_sandbox.specs import QueueSpec as QueueSpec
    from servicebus_sandbox.specs import SubscriptionSpec as SubscriptionSpec
    from servicebus_sandbox.specs import TopicSpec as TopicSpec

_NAMES_OF = {
    "access.token_credentials": ("AsyncSandboxCredential", "SandboxCredential"),
    "broker.entity_settings": (
        *("AuthorizationRule", "Behavior", "Expiry", "Pings", "QueueSettings", "Right"),
        *("SubscriptionSettings", "Tier", "TopicSettings"),
    ),
    "faults": ("FaultError", "FaultKind"),
    "fixtures.pytest_sandbox": ("ActiveFault", "HeldMessage", "HeldState", "PytestSandbox", "SandboxEnded"),
    "sandbox_host": ("ListenError", "Sandbox", "SandboxNamespace"),
    "specs": ("NamespaceSpec", "QueueSpec", "SubscriptionSpec", "TopicSpec"),
}
_HOMES = {name: home for home, names in _NAMES_OF.items() for name in names}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
    try:
        return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    except ModuleNotFoundError as error:
        raise ImportError(
            f"{__name__}.{name} needs {error.name}: pip install 'servicebus-paired-console[sandbox]'"
        ) from error
