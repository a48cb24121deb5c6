"""The pairing for applications without asyncio: the names of the synchronous `ServiceBusClient`.

    from paired_servicebus.sync import Namespace, pair_namespaces

Thin: everything is done by `paired_servicebus.pairing` on one background thread per paired client, with its own event loop.
Any number of threads may use a paired client and its senders; a receiver serves one thread at a time, as the SDK's.
Ctrl-C ends the call it meets, and what was being sent is in doubt then. What is left open is closed when the program
ends, before its `atexit` handlers run. A paired client does not survive a fork:
the child has no such thread, and is told so; pair after forking.
"""

from paired_servicebus.sync.blocking_client import PairedServiceBusClient, pair_namespaces
from paired_servicebus.sync.blocking_receiver import PairedReceiver
from paired_servicebus.sync.blocking_sender import PairedSender
from paired_servicebus.sync.namespace_clients import Namespace

__all__ = ["Namespace", "PairedReceiver", "PairedSender", "PairedServiceBusClient", "pair_namespaces"]
