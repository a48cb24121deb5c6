"""asyncio around the core, on azure-servicebus: everything an application or an engine needs to send under a pairing.

Rules: every await on the SDK is bounded by a deadline of ours (deadlines.py); one send in flight per SDK sender
(links.py); tasks have one owner (steering.py). What is decided is decided in console.core.
"""

import logging

from console.pairing.arm_admin import ArmAdmin
from console.pairing.client import PairedServiceBusClient
from console.pairing.opening import pair_namespaces
from console.pairing.options import PairedNamespaceOptions, SendAvailabilityPairedNamespaceOptions
from console.pairing.receiver import PairedReceiver
from console.pairing.sender import PairedSender
from console.pairing.trust import tls_context

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

logging.getLogger("console.pairing").addHandler(logging.NullHandler())  # silent where logging is not set up
