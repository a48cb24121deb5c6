"""The coordinator of a client's transactions: it declares and discharges them.

A session whose first link is a coordinator may span entities: its first link to one names the entity of its receivers,
and its senders may be of others.
"""

from __future__ import annotations

from servicebus_amqp.encoding.performatives import (
    ACCEPTED,
    Declare,
    Declared,
    DeliveryState,
    Discharge,
)
from servicebus_amqp.nodes.coordination import CREDIT, MAX_BYTES, read_coordination
from servicebus_amqp.nodes.request_ends import AmqpRefusal
from servicebus_amqp.protocol.links import DeliveryReceived, ReceiverLink
from servicebus_amqp.server.server_connection import ServedSession
from servicebus_sandbox.amqp_server.broker_links import BrokerLink, BrokerLinkOwner
from servicebus_sandbox.broker.broker_errors import BrokerError
from servicebus_sandbox.broker.entity_settings import Tier
from servicebus_sandbox.faults import FaultVerdict, InjectionPoint
from servicebus_sandbox.serving.amqp_conditions import refusal_by, refusal_of


class CoordinatorLink(BrokerLink):
    """A client's declares and discharges. scope: of its transactions, if its session may span entities."""

    link: ReceiverLink

    def __init__(self, server: BrokerLinkOwner, link: ReceiverLink, scope: ServedSession | None) -> None:
        super().__init__(server, link, "", "")
        self.scope = scope
        self._taken = 0
        link.flow(CREDIT)

    def gone(self) -> None:
        super().gone()
        self.server.transactions.end_those_of(self)

    def on_delivery(self, event: DeliveryReceived) -> None:
        self._taken += 1
        if 2 * self._taken >= CREDIT:
            self._taken = 0
            self.link.flow(CREDIT)
        body = read_coordination(event.payload)
        verdict = self.verdict(InjectionPoint.DECLARE if isinstance(body, Declare) else InjectionPoint.DISCHARGE)
        if verdict is FaultVerdict.SWALLOW or self.is_cut_by(verdict):
            return
        name = self.server.node.namespace.name
        refusal = refusal_by(verdict, name, name, None)
        answer = self.rejected(refusal) if refusal is not None else self._perform(body)
        if verdict is FaultVerdict.TAKE_AND_RESET:
            self.server.abort()
        elif verdict is not FaultVerdict.TAKE_SILENTLY and not event.settled:
            self.link.answer(event.delivery_id, answer)

    def _perform(self, body: Declare | Discharge | AmqpRefusal) -> DeliveryState:
        transactions = self.server.transactions
        try:
            if isinstance(body, Declare):
                return Declared(txn_id=transactions.declare(self).id)
            if isinstance(body, Discharge):
                transactions.discharge(body.txn_id, fail=body.fail)
                return ACCEPTED
            return self.rejected(body)
        except BrokerError as error:
            return self.rejected(refusal_of(error))


def serve_coordinator(server: BrokerLinkOwner, link: ReceiverLink) -> None:
    """Serve a coordinator, also before a token: each act needs rights of its own. Raises AmqpRefusal."""
    namespace = server.node.namespace
    if namespace.tier is Tier.BASIC:
        text = f"'{namespace.name}' is of the tier Basic, which has no transactions; use Standard or Premium"
        raise AmqpRefusal("amqp:not-implemented", text, 501)
    session = server.sessions[link.session]
    if session.spans_entities is None:
        session.spans_entities = True
    link.accept_attach(max_message_size=MAX_BYTES)
    server.serve(CoordinatorLink(server, link, session if session.spans_entities else None))
