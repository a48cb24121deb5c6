"""Connections of our own to a namespace: the client role of servicebus_amqp over asyncio.

    endpoint     where and how, read from a caller's ServiceBusClient
    wire         the namespace's connection, kept for all who have links there
    links        a sender, a receiver: callbacks in, one write a read out
    recovery     pauses between tries
    management   typed requests to `$management`
    line, grants, requests, tokens, transports, failures    what those are made of

For the pumps, whose speed and fidelity the SDK does not reach; an application's senders go through the SDK. Messages
are bytes here: what is in them belongs to the pumps, which failure counts to core.
"""

from paired_servicebus.pairing.wire.endpoint import Endpoint
from paired_servicebus.pairing.wire.failures import failure_of, is_idle_detach
from paired_servicebus.pairing.wire.links import WireReceiver, WireSender
from paired_servicebus.pairing.wire.recovery import Backoff
from paired_servicebus.pairing.wire.requests import Reply
from paired_servicebus.pairing.wire.wire import Wire

__all__ = ["Backoff", "Endpoint", "Reply", "Wire", "WireReceiver", "WireSender", "failure_of", "is_idle_detach"]
