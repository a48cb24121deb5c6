"""asyncio around the core, on azure-servicebus: the library for applications and engines that send under a pairing.

Rules: a deadline of ours bounds every await on the SDK, and tasks have one owner (runtime/deadlines.py). Each sender of
the SDK has one send in flight (sending/sender_link.py). paired_servicebus.core makes the decisions.
"""

import logging

from paired_servicebus.pairing.amqp_client.endpoint import tls_context
from paired_servicebus.pairing.management.management_port import ArmAdmin
from paired_servicebus.pairing.opening import (
    PairedNamespaceOptions,
    SendAvailabilityPairedNamespaceOptions,
    pair_namespaces,
)
from paired_servicebus.pairing.paired_client import PairedServiceBusClient
from paired_servicebus.pairing.paired_receiver import PairedReceiver
from paired_servicebus.pairing.sending.paired_sender import PairedSender

__all__ = [
    "ArmAdmin",
    "PairedNamespaceOptions",
    "PairedReceiver",
    "PairedSender",
    "PairedServiceBusClient",
    "SendAvailabilityPairedNamespaceOptions",
    "pair_namespaces",
    "tls_context",
]

logging.getLogger("paired_servicebus.pairing").addHandler(logging.NullHandler())  # silent where logging is not set up
