"""The coordinator of a client's transactions: it declares and discharges them, by the faults of these operations."""

from __future__ import annotations

from servicebus_amqp.encoding.performatives import ACCEPTED, Declare, Declared, DeliveryState, Discharge
from servicebus_amqp.nodes.coordination import CoordinatorEnd
from servicebus_amqp.nodes.request_ends import AmqpRefusal
from servicebus_amqp.protocol.links import DeliveryReceived, ReceiverLink
from servicebus_sandbox.amqp_server.broker_links import BrokerLink, BrokerLinkOwner
from servicebus_sandbox.broker.broker_errors import BrokerError
from servicebus_sandbox.broker.entity_settings import Tier
from servicebus_sandbox.faults import FaultVerdict, InjectionPoint
from servicebus_sandbox.serving.amqp_conditions import refusal_by, refusal_of


class CoordinatorLink(BrokerLink):
    """A client's declares and discharges."""

    link: ReceiverLink

    def __init__(self, server: BrokerLinkOwner, link: ReceiverLink) -> None:
        super().__init__(server, link, "", "")
        self._end = CoordinatorEnd(link, server.sessions[link.session])

    def gone(self) -> None:
        super().gone()
        self.server.transactions.end_those_of(self._end)

    def on_delivery(self, event: DeliveryReceived) -> None:
        body = self._end.read(event)
        verdict = self.verdict(InjectionPoint.DECLARE if isinstance(body, Declare) else InjectionPoint.DISCHARGE)
        if verdict is FaultVerdict.SWALLOW or self.is_cut_by(verdict):
            return
        name = self.server.node.namespace.name
        answer = self._perform(refusal_by(verdict, name, name, None) or body)
        if verdict is FaultVerdict.TAKE_AND_RESET:
            self.server.abort()
        elif verdict is not FaultVerdict.TAKE_SILENTLY and not event.settled:
            self.link.answer(event.delivery_id, answer)

    def _perform(self, body: Declare | Discharge | AmqpRefusal) -> DeliveryState:
        transactions = self.server.transactions
        try:
            if isinstance(body, Declare):
                return Declared(txn_id=transactions.declare(self._end))
            if isinstance(body, AmqpRefusal):
                raise body
            self.server.node.namespace.agenda.run_due()  # what has ended on the clock ends first
            acts = transactions.discharge(body.txn_id)
            if body.fail:
                acts.roll_back()
            else:
                acts.commit()
        except AmqpRefusal as refusal:
            return self.rejected(refusal)
        except BrokerError as error:
            return self.rejected(refusal_of(error))
        return ACCEPTED


def serve_coordinator(server: BrokerLinkOwner, link: ReceiverLink) -> None:
    """Serve a coordinator. Raises AmqpRefusal."""
    namespace = server.node.namespace
    if namespace.tier is Tier.BASIC:
        text = f"'{namespace.name}' is of the tier Basic, which has no transactions; use Standard or Premium"
        raise AmqpRefusal("amqp:not-implemented", text, 501)
    server.serve(CoordinatorLink(server, link))
