"""Our own AMQP client for a namespace: the client role of servicebus_amqp over asyncio.

    reconnecting       the namespace's connection, shared by all users of its links
    endpoint           its address and credential, read from a caller's ServiceBusClient
    entity_management  typed requests to `$management`
    client_connection  one connection; client_links, request_channel and cbs_tokens serve it
    transports         sockets: TCP, TLS, WebSocket
    wire_errors        errors

The pumps use it for speed and fidelity beyond the SDK's; an application's senders use the SDK. Messages are bytes here.
"""

from paired_servicebus.pairing.amqp_client.client_links import WireReceiver, WireSender
from paired_servicebus.pairing.amqp_client.endpoint import Endpoint
from paired_servicebus.pairing.amqp_client.reconnecting import Backoff, ReconnectingConnection
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
