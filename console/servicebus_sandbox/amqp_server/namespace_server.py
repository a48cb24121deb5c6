"""The server of one namespace: broker, keys, faults and AMQP connections.

It drives the broker: after any input and at each deadline it runs the broker, then each connection writes its output.
The listener opens sockets and gets its AMQP protocols from `protocol`.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import Callable, Iterable

from servicebus_amqp.server.admission import Admission, log_once
from servicebus_amqp.server.key_budgets import KeyBudgets
from servicebus_sandbox.access.authorization import Authorization
from servicebus_sandbox.access.token_issuer import Issuer
from servicebus_sandbox.amqp_server.property_codec import AmqpPropertyCodec
from servicebus_sandbox.amqp_server.served_link import ServedLinkOwner
from servicebus_sandbox.amqp_server.server_protocol import AmqpServerProtocol
from servicebus_sandbox.broker.entity_settings import AS_SEEN, AuthorizationRule, Behavior, Expiry, Pings, Tier
from servicebus_sandbox.broker.queues.agenda import earliest
from servicebus_sandbox.broker.topology.namespace import BrokerNamespace
from servicebus_sandbox.faults import FaultBoard
from servicebus_sandbox.serving.amqp_conditions import RefusalLog

log = logging.getLogger(__name__)

_READ_BYTES = 64 * 1024  # per turn and connection: asyncio's 256 KB delay the others by nearly 300 messages
_MIN_SLEEP_SECONDS = 0.001  # timers may fire a moment early by another clock; never spin on that


class NamespaceServer:
    """A namespace that clients can connect to.

    `rules` are the namespace's own; `issuer` signs its bearer tokens. `clock` returns epoch seconds; call
    `clock_jumped` after setting it forward. `time_of_day` judges new tokens, because clients date tokens by it;
    afterwards they age by `clock`. Call `wake` after changing entities outside AMQP. `region` is informational.
    """

    def __init__(
        self,
        name: str,
        *,
        rules: Iterable[AuthorizationRule],
        issuer: Issuer | None = None,
        clock: Callable[[], float] = time.time,
        time_of_day: Callable[[], float] = time.time,
        tier: Tier = Tier.STANDARD,
        region: str = "westeurope",
        pings: Pings = Pings.DROPPED,
        expiry: Expiry = Expiry.ON_TIME,
        credits_per_second: int | None = None,
        behaves: Behavior = AS_SEEN,
    ) -> None:
        self.name = name
        self.region = region
        self.clock = clock
        self.time_of_day = time_of_day
        self.namespace = BrokerNamespace(
            name,
            clock=clock,
            tier=tier,
            salt=secrets.token_bytes(8),
            codec=AmqpPropertyCodec(),
            pings=pings,
            expiry=expiry,
            credits_per_second=credits_per_second,
            behaves=behaves,
        )
        self.authorization = Authorization(self.namespace, rules, issuer=issuer)
        self.faults = FaultBoard(name, self.namespace.paths, clock=clock)
        self.complaints = RefusalLog(f"namespace '{name}'")
        self.admission = Admission(log_once(f"namespace '{name}'", log))
        self.budgets = KeyBudgets()
        self.connections: set[AmqpServerProtocol] = set()
        self._to_flush: set[ServedLinkOwner] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_for: float | None = None
        self.read_buffer = memoryview(bytearray(_READ_BYTES))
        self._waking = False
        self.woken_at = clock()
        self.faults.watch(self._faults_changed)
        self.namespace.on_removal(lambda entity: self._entity_removed(entity.path))
        self.namespace.on_closing(lambda entity: self._entity_closed(entity.path))

    def protocol(self) -> AmqpServerProtocol:
        """Return a protocol for a new AMQP connection."""
        return AmqpServerProtocol(self)

    def flush_soon(self, connection: ServedLinkOwner) -> None:
        """Have the connection write at the end of this turn."""
        self._to_flush.add(connection)

    def wake(self) -> None:
        """Let the broker do what is due and possible, then write. Cheap when there is nothing to do."""
        if self._waking:
            return  # called from inside: the current turn does it
        self.faults.run_due()
        self.woken_at = self.clock()
        self._waking = True
        try:
            self.namespace.run()
            while self._to_flush:
                flushing, self._to_flush = self._to_flush, set()
                for connection in flushing:
                    connection.flush()
                self.namespace.run()
        finally:
            self._waking = False
        self._set_timer()

    def clock_jumped(self) -> None:
        """Do everything that has become due on the clock, and set the other timers again."""
        self._cancel_timer()
        for connection in list(self.connections):
            connection.end_expired_tokens()
            connection.end_idle_links()
            connection.end_if_unlinked()
        self.wake()

    def close(self) -> None:
        """End every connection and all timers; the messages stay."""
        for connection in list(self.connections):
            connection.abort()
        self._cancel_timer()

    def _set_timer(self) -> None:
        deadline = earliest(self.namespace.next_deadline(), self.faults.next_change())
        if deadline == self._timer_for:
            return
        self._cancel_timer()
        if deadline is not None:
            delay = max(_MIN_SLEEP_SECONDS, deadline - self.clock())
            self._timer_for = deadline
            self._timer = asyncio.get_running_loop().call_later(delay, self._on_timer)

    def _on_timer(self) -> None:
        self._cancel_timer()
        self.wake()

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._timer_for = None

    def _faults_changed(self) -> None:
        for connection in list(self.connections):
            connection.faults_changed()
        self.wake()

    def _entity_removed(self, path: str) -> None:
        for connection in list(self.connections):
            connection.entity_removed(path)

    def _entity_closed(self, path: str) -> None:
        for connection in list(self.connections):
            connection.entity_closed(path)
