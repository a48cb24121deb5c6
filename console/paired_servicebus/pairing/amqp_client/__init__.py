"""Our own AMQP client for a namespace: the client role of servicebus_amqp over asyncio.

    reconnecting       the namespace's connection, shared by all users of its links, and requests to an entity
    endpoint           its address and credential, read from a caller's ServiceBusClient; TLS, sockets and errors
    client_connection  one connection with its links, requests and tokens

The pumps use it for speed and fidelity beyond the SDK's; an application's senders use the SDK. Messages are bytes here.
"""

from paired_servicebus.pairing.amqp_client.client_connection import WireReceiver, WireSender
from paired_servicebus.pairing.amqp_client.endpoint import Endpoint, failure_of, is_idle_detach
from paired_servicebus.pairing.amqp_client.reconnecting import Backoff, ReconnectingConnection

__all__ = [
    "Backoff",
    "Endpoint",
    "ReconnectingConnection",
    "WireReceiver",
    "WireSender",
    "failure_of",
    "is_idle_detach",
]
