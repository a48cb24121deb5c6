"""asyncio around the core, on azure-servicebus: everything an application or an engine needs to send under a pairing.

Rules: every await on the SDK is bounded by a deadline of ours (deadlines.py); one send in flight per SDK sender
(links.py); tasks have one owner (pairing_runtime.py). What is decided is decided in paired_servicebus.core.
"""

import logging

from paired_servicebus.pairing.management.arm_admin import ArmAdmin
from paired_servicebus.pairing.opening import pair_namespaces
from paired_servicebus.pairing.options import PairedNamespaceOptions, SendAvailabilityPairedNamespaceOptions
from paired_servicebus.pairing.paired_client import PairedServiceBusClient
from paired_servicebus.pairing.paired_receiver import PairedReceiver
from paired_servicebus.pairing.runtime.tls import tls_context
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
