"""One TLS context for all links of a client.

The SDK makes a context for each connection, on plain ones too, and reads all authorities of the world into it each
time: most of what opening a link costs, in CPU (some 20 ms, in which the event loop stands still) and in memory (some
700 kB). A context handed in is shared. Whom it trusts is whom the SDK would have trusted.
"""

from __future__ import annotations

import ssl
from pathlib import Path

import certifi


def tls_context(ca_file: str | Path | None = None) -> ssl.SSLContext:
    """For `ServiceBusClient(..., ssl_context=...)`. One may serve any number of clients.

    Args:
        ca_file: the authorities to trust, as PEM; None: those of certifi, as the SDK does.

    Raises:
        OSError: the file cannot be read. ssl.SSLError: no certificate is in it.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(ca_file if ca_file is not None else certifi.where())
    return context
