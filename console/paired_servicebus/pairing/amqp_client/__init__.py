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

from paired_servicebus.pairing.amqp_client.backoff import Backoff
from paired_servicebus.pairing.amqp_client.client_links import WireReceiver, WireSender
from paired_servicebus.pairing.amqp_client.endpoint import Endpoint
from paired_servicebus.pairing.amqp_client.reconnecting import ReconnectingConnection
from paired_servicebus.pairing.amqp_client.request_channel import RequestReply
from paired_servicebus.pairing.amqp_client.wire_errors import failure_of, is_idle_detach

__all__ = [
    "Backoff",
    "Endpoint",
    "ReconnectingConnection",
    "RequestReply",
    "WireReceiver",
    "WireSender",
    "failure_of",
    "is_idle_detach",
]
