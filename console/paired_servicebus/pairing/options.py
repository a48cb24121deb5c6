"""A caller's options for pairing two namespaces (SPEC.md section 3)."""

from __future__ import annotations

from dataclasses import dataclass, fields
from datetime import timedelta
from typing import Any, TypedDict

from azure.servicebus.aio import ServiceBusClient

from paired_servicebus.core.model.policy import JournalKind, PingKind, Policy, PumpKind, TtlPolicy
from paired_servicebus.pairing.management.management_port import SecondaryAdmin

DEFAULTS = Policy()
Duration = timedelta | float


@dataclass(frozen=True, kw_only=True)
class PairedNamespaceOptions:
    """The base of pairing kinds.

    The clients stay the caller's until pairing has succeeded; the pairing closes them at its end.
    """

    secondary_admin: SecondaryAdmin
    """Finds and creates the backlog queues: the SDK's asynchronous admin client, or an `ArmAdmin`; needs Manage."""
    secondary_client: ServiceBusClient
    """Sends to the backlog queues; needs Send, and Listen with the syphon."""


@dataclass(frozen=True, kw_only=True)
class SendAvailabilityPairedNamespaceOptions(PairedNamespaceOptions):
    """Options for send availability: messages are parked in the secondary namespace while the primary accepts none.

    Durations are `timedelta` or seconds (SPEC.md section 3). They are checked when the pairing is made.

    Args:
        secondary_admin, secondary_client: as of `PairedNamespaceOptions`; without defaults.
        primary_name: the prefix of the backlog queues' paths; None: the name that the primary namespace reports, else
            the first label of its host.
        backlog_queue_count: queues `{primary}/x-servicebus-transfer/0…` in the secondary; 10; at least 1.
        failover_interval: from the first failure that counts to the backlog; 1 min; 0 to 60 min. 0: in the same call.
        enable_syphon: move parked messages home from here; False. At least one program has to.
        ping_primary_interval: between two pings of an entity that failed over; 1 min; 1 s to 30 min.
        ping_timeout: of one ping; 2 min; 1 s to 2 min.
        ping: "message"; or "link": only attach, no ping messages.
        syphon_retry_interval: a pump's pause after a failure; 1 s; 1 s to 2 min.
        syphon_receive_window: of one receive at an empty queue; 15 min; 1 s to 60 min.
        close_grace: for sends under way when the pairing closes, and for one side to follow the other; 5 s; 0 to 60
            min.
        send_timeout: one attempt; 30 s; 1 s to 5 min.
        hold_until_failover: False; True: a send waits instead of raising while its entity is suspect.
        failback_pings: accepted pings in a row until failback; 1; at least 1.
        cool_down: minimum time that an entity stays failed over; 0; at least 0.
        ttl_policy: a parked message's time to live at its arrival: "restart", its full time, or "elapsed", the rest.
        undeliverable_after: time that a destination may be missing until its messages are dead-lettered; 15 min; at
            least 0.
        throttle_wait: after "server busy", which never fails over; 10 s; at least 10 s.
        quiet_period: inactive time of an unused backlog queue before it may be deleted; 15 min; at least 1 s.
        journal: the messages that it names: "diverted", those that left the direct path or are in doubt, or "all".
        pump: the syphon's transport: "amqp", our own AMQP, bit for bit; "sdk", the SDK's; "auto": the first, or the
            second with a warning. With "sdk" each link to a backlog queue also has a connection of its own.
        syphon_rate: maximum of messages a second that this syphon moves; 0, no limit; at least 0.
        syphon_live_share: the part of that rate, or of the throttled rate, reserved for this pairing's live senders;
            0.5; 0 to 0.9.
        destinations: the only entities that this syphon delivers to; messages for others are dead-lettered in their
            backlog queue. None: any entity that the primary client's key reaches, as named by the backlog's senders.
        record_received: False; True: journal each message that a receiver made by this pairing, or a client of its
            gateway, gets. Then the audit follows messages to their receivers.
        start_degraded: False; True: pair without the secondary's answer, and retry in the background. Sends that need
            the backlog are refused until a backlog queue answers.
    """

    primary_name: str | None = None
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
    destinations: tuple[str, ...] | None = DEFAULTS.destinations
    record_received: bool = DEFAULTS.record_received
    start_degraded: bool = DEFAULTS.start_degraded

    def policy(self) -> Policy:
        """Return the options that are values, checked.

        Raises:
            ConfigurationError (a ValueError): naming the option, its value and its range.
        """
        chosen: dict[str, Any] = {field.name: _seconds(getattr(self, field.name)) for field in fields(Policy)}
        return Policy(**chosen)


class PairingOptions(TypedDict, total=False):
    """The options of `SendAvailabilityPairedNamespaceOptions` that are values, as keyword arguments."""

    primary_name: str | None
    backlog_queue_count: int
    failover_interval: Duration
    enable_syphon: bool
    ping_primary_interval: Duration
    ping_timeout: Duration
    ping: PingKind
    syphon_retry_interval: Duration
    syphon_receive_window: Duration
    close_grace: Duration
    send_timeout: Duration
    hold_until_failover: bool
    failback_pings: int
    cool_down: Duration
    ttl_policy: TtlPolicy
    undeliverable_after: Duration
    throttle_wait: Duration
    quiet_period: Duration
    journal: JournalKind
    pump: PumpKind
    syphon_rate: float
    syphon_live_share: float
    destinations: tuple[str, ...] | None
    record_received: bool
    start_degraded: bool


def _seconds(value: object) -> object:
    return value.total_seconds() if isinstance(value, timedelta) else value
