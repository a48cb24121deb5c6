"""One TLS context for all links of a client.

The SDK makes a context for each connection, also for plain ones, and loads all certificate authorities into it. That is
most of the cost of opening a link: 20 ms of blocked event loop and 700 kB of memory. A given context is shared, and
trusts the same authorities.
"""

from __future__ import annotations

import ssl
from pathlib import Path

import certifi


def tls_context(ca_file: str | Path | None = None) -> ssl.SSLContext:
    """Make a context for `ServiceBusClient(..., ssl_context=...)`; any number of clients may share it.

    Args:
        ca_file: the authorities to trust, as PEM; None: those of certifi, as in the SDK.

    Raises:
        OSError: the file cannot be read. ssl.SSLError: it contains no certificate.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(ca_file if ca_file is not None else certifi.where())
    return context
