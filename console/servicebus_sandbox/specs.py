"""The contents of a sandbox as values: namespaces with their queues and topics; `sandbox_host` builds them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final

from servicebus_sandbox.access.authorization import TENANT, Identity
from servicebus_sandbox.broker.broker_errors import InvalidSettings
from servicebus_sandbox.broker.entity_settings import (
    AS_SEEN,
    AuthorizationRule,
    Behavior,
    Expiry,
    Pings,
    QueueSettings,
    SubscriptionSettings,
    Tier,
    TopicSettings,
)
from servicebus_sandbox.broker.subscription_rules.rules import DEFAULT_RULE, Rule
from servicebus_sandbox.broker.topology.namespace import BrokerNamespace, check_tier
from servicebus_sandbox.faults import Fault, FaultBoard

MAX_CREDITS: Final = 1_000_000_000
DOMAIN: Final = "servicebus.windows.net"
STANDARD_PORTS: Final = (5672, 5671, 443)
"""Azure's ports: AMQP, AMQP over TLS, and HTTPS with WebSockets. Here each serves all of them."""


class SandboxConfigError(Exception):
    """A mistake in a file of namespaces, in one sentence: the file, the place, the flaw and the remedy."""


@dataclass(frozen=True, slots=True)
class SandboxSpec:
    """The contents of a file: namespaces, and the applications of the tenant that get bearer tokens.

    activation_s: seconds until a namespace that is made through ARM accepts connections.
    """

    namespaces: tuple[NamespaceSpec, ...]
    identities: tuple[Identity, ...] = ()
    tenant: str = TENANT
    activation_s: int = 0


@dataclass(frozen=True, slots=True)
class QueueSpec:
    """A queue at `path`."""

    path: str
    settings: QueueSettings = field(default_factory=QueueSettings)


@dataclass(frozen=True, slots=True)
class SubscriptionSpec:
    """A subscription called `name`; `rules` replace the one that matches everything."""

    name: str
    settings: SubscriptionSettings = field(default_factory=SubscriptionSettings)
    rules: Sequence[Rule] = (Rule(),)


@dataclass(frozen=True, slots=True)
class TopicSpec:
    """A topic at `path` with its subscriptions."""

    path: str
    subscriptions: Sequence[SubscriptionSpec] = ()
    settings: TopicSettings = field(default_factory=TopicSettings)


@dataclass(frozen=True, slots=True)
class NamespaceSpec:
    """A namespace; `port` 0 is any free one. Without `credits_per_second` it throttles nothing.

    `address` is an IP address to listen on; "" is the sandbox's. `standard_ports` listens on Azure's ports instead of
    `port`. `host` is the name for clients; "" is the name in Azure. `faults` begin with it. `rules` are its own
    authorization rules; the root rule is added unless one has its name.
    """

    name: str
    queues: Sequence[QueueSpec] = ()
    topics: Sequence[TopicSpec] = ()
    tier: Tier = Tier.STANDARD
    port: int = 0
    address: str = ""
    host: str = ""
    standard_ports: bool = False
    region: str = "westeurope"
    rules: Sequence[AuthorizationRule] = ()
    pings: Pings = Pings.DROPPED
    expiry: Expiry = Expiry.ON_TIME
    credits_per_second: int | None = None
    behaves: Behavior = AS_SEEN
    faults: Sequence[Fault] = ()

    def __post_init__(self) -> None:
        limit = self.credits_per_second
        if limit is not None and (
            isinstance(limit, bool) or not isinstance(limit, int) or not 1 <= limit <= MAX_CREDITS
        ):
            raise InvalidSettings(f"credits_per_second is {limit!r}; allowed is 1 to {MAX_CREDITS}")

    @property
    def ports(self) -> tuple[int, ...]:
        return STANDARD_PORTS if self.standard_ports else (self.port,)

    @property
    def host_name(self) -> str:
        """Return the name for clients, which is in the certificate."""
        return self.host or f"{self.name}.{DOMAIN}"

    def break_in(self, board: FaultBoard) -> None:
        """Begin the faults. Raises FaultError."""
        for fault in self.faults:
            board.begin(fault)

    def fill(self, namespace: BrokerNamespace) -> None:
        """Create the entities. Raises EntityExists, and InvalidSettings, also for features that the tier lacks."""
        for queue in self.queues:
            check_tier(namespace, queue.settings)
            namespace.create_queue(queue.path, queue.settings)
        for topic in self.topics:
            check_tier(namespace, topic.settings)
            namespace.create_topic(topic.path, topic.settings)
            for subscription in topic.subscriptions:
                namespace.create_subscription(topic.path, subscription.name, subscription.settings)
                namespace.delete_rule(topic.path, subscription.name, DEFAULT_RULE)
                for rule in subscription.rules:
                    namespace.create_rule(topic.path, subscription.name, rule)


SHORT_LOCK = timedelta(seconds=10)
"""Messages of a dead connection return while the user still watches; the default is a minute."""


SECOND_ADDRESS: Final = "127.0.0.2"
"""The secondary namespace's own with standard ports."""


def primary_and_secondary(
    *, primary_port: int = 0, secondary_port: int = 0, standard_ports: bool = False
) -> tuple[NamespaceSpec, NamespaceSpec]:
    """Return namespaces for a pairing: a primary one with an entity of each kind, an empty secondary one."""
    return (
        NamespaceSpec(
            "primary",
            queues=(
                QueueSpec("orders", QueueSettings(lock_duration=SHORT_LOCK)),
                QueueSpec("payments", QueueSettings(lock_duration=SHORT_LOCK, requires_session=True)),
            ),
            topics=(TopicSpec("audit", (SubscriptionSpec("all", SubscriptionSettings(lock_duration=SHORT_LOCK)),)),),
            port=primary_port,
            standard_ports=standard_ports,
        ),
        NamespaceSpec(
            "secondary",
            port=secondary_port,
            address=SECOND_ADDRESS if standard_ports else "",
            standard_ports=standard_ports,
            region="northeurope",
        ),
    )
