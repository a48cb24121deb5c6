"""The pairing for applications without asyncio: the names of the synchronous `ServiceBusClient`.

    from paired_servicebus.sync import Namespace, pair_namespaces

Each paired client runs the asynchronous pairing on one background thread with an event loop. Any number of threads may
use a paired client and its senders; a receiver serves one thread at a time, like the SDK's. Ctrl-C ends the current
call and leaves its message in doubt. An open client is closed when the program ends, before its `atexit` handlers. A
paired client does not survive a fork, because the child has no such thread: pair after forking.
"""

from paired_servicebus.namespaces import Namespace
from paired_servicebus.sync.blocking_client import PairedServiceBusClient, pair_namespaces
from paired_servicebus.sync.blocking_links import PairedReceiver, PairedSender

__all__ = ["Namespace", "PairedReceiver", "PairedSender", "PairedServiceBusClient", "pair_namespaces"]
