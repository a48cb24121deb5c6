"""Failures to connect that no retry mends: a certificate that is not trusted, a host that has no address."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator
from typing import Final

_UNKNOWN: Final = frozenset(getattr(socket, name) for name in ("EAI_NONAME", "EAI_NODATA") if hasattr(socket, name))
_LINKS: Final = ("__cause__", "__context__", "inner_exception")


def is_untrusted(error: BaseException) -> bool:
    """Return whether it failed because the peer's certificate is not trusted."""
    return any(isinstance(one, ssl.SSLCertVerificationError) for one in _causes(error))


def is_unknown_host(error: BaseException) -> bool:
    """Return whether it failed because the host has no address. A resolver that does not answer is another matter."""
    return any(isinstance(one, socket.gaierror) and one.errno in _UNKNOWN for one in _causes(error))


def _causes(error: BaseException) -> Iterator[BaseException]:
    """Yield the error and its causes, as Python and the SDK chain errors."""
    left, seen = [error], set[int]()
    while left:
        one = left.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        yield one
        causes = (getattr(one, name, None) for name in _LINKS)
        left += [cause for cause in causes if isinstance(cause, BaseException)]
