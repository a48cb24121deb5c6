"""asyncio around the core, on azure-servicebus: everything an application or an engine needs to send under a pairing.

Rules: every await on the SDK is bounded by a deadline of ours (deadlines.py); one send in flight per SDK sender
(links.py); tasks have one owner (steering.py). What is decided is decided in paired_servicebus.core.
"""

import logging

from paired_servicebus.pairing.arm_admin import ArmAdmin
from paired_servicebus.pairing.client import PairedServiceBusClient
from paired_servicebus.pairing.opening import pair_namespaces
from paired_servicebus.pairing.options import PairedNamespaceOptions, SendAvailabilityPairedNamespaceOptions
from paired_servicebus.pairing.receiver import PairedReceiver
from paired_servicebus.pairing.sender import PairedSender
from paired_servicebus.pairing.trust import tls_context

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
