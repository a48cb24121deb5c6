"""One TLS context for all links of a client."""

from __future__ import annotations

import ssl
from pathlib import Path

import certifi
import pytest

from paired_servicebus.pairing import tls_context


def test_it_trusts_whom_the_sdk_trusts_and_checks_names() -> None:
    theirs = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    theirs.load_verify_locations(certifi.where())
    ours = tls_context()
    assert ours.cert_store_stats() == theirs.cert_store_stats()
    assert (ours.verify_mode, ours.check_hostname) == (ssl.CERT_REQUIRED, True)


def test_a_file_that_is_none_is_an_error(tmp_path: Path) -> None:
    empty = tmp_path / "empty.pem"
    empty.touch()
    with pytest.raises(OSError, match="No such file"):
        tls_context(tmp_path / "missing.pem")
    with pytest.raises(ssl.SSLError):
        tls_context(empty)
