"""What a caller says when it pairs two namespaces (SPEC.md section 3)."""

from __future__ import annotations

from dataclasses import dataclass, fields
from datetime import timedelta
from typing import Any

from azure.servicebus.aio import ServiceBusClient

from console.core.options import JournalKind, PingKind, Policy, PumpKind, TtlPolicy
from console.pairing.management import SecondaryAdmin

DEFAULTS = Policy()
Duration = timedelta | float


@dataclass(frozen=True, kw_only=True)
class PairedNamespaceOptions:
    """The base of pairing kinds. The clients stay the caller's until the pairing closes them with itself."""

    secondary_admin: SecondaryAdmin
    """Finds and makes the backlog queues: the SDK's asynchronous admin client, or an `ArmAdmin`; needs Manage."""
    secondary_client: ServiceBusClient
    """Sends to the backlog queues; needs Send, and Listen with the syphon."""


@dataclass(frozen=True, kw_only=True)
class SendAvailabilityPairedNamespaceOptions(PairedNamespaceOptions):
    """Keep the ability to send: park messages in the secondary namespace while the primary takes none.

    Durations are `timedelta` or seconds. Names, defaults and ranges are those of SPEC.md section 3.
    """

    primary_name: str | None = None
    """What the backlog queues are named after; None: the first label of the primary's host."""
    backlog_queue_count: int = DEFAULTS.backlog_queue_count
    failover_interval: Duration = DEFAULTS.failover_interval
    enable_syphon: bool = DEFAULTS.enable_syphon
    ping_primary_interval: Duration = DEFAULTS.ping_primary_interval
    ping_timeout: Duration = DEFAULTS.ping_timeout
    ping: PingKind = DEFAULTS.ping
    syphon_retry_interval: Duration = DEFAULTS.syphon_retry_interval
    syphon_receive_window: Duration = DEFAULTS.syphon_receive_window
    close_grace: Duration = DEFAULTS.close_grace
    send_timeout: Duration = DEFAULTS.send_timeout
    hold_until_failover: bool = DEFAULTS.hold_until_failover
    failback_pings: int = DEFAULTS.failback_pings
    cool_down: Duration = DEFAULTS.cool_down
    ttl_policy: TtlPolicy = DEFAULTS.ttl_policy
    undeliverable_after: Duration = DEFAULTS.undeliverable_after
    throttle_wait: Duration = DEFAULTS.throttle_wait
    quiet_period: Duration = DEFAULTS.quiet_period
    journal: JournalKind = DEFAULTS.journal
    pump: PumpKind = DEFAULTS.pump
    syphon_rate: float = DEFAULTS.syphon_rate
    syphon_live_share: float = DEFAULTS.syphon_live_share

    def policy(self) -> Policy:
        """The options that are values, checked.

        Raises:
            ConfigurationError (a ValueError): naming the option, its value and its range.
        """
        chosen: dict[str, Any] = {field.name: _seconds(getattr(self, field.name)) for field in fields(Policy)}
        return Policy(**chosen)


def _seconds(value: object) -> object:
    return value.total_seconds() if isinstance(value, timedelta) else value
