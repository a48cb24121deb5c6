"""Texts of the service without secrets, hosts and names of namespaces."""

from __future__ import annotations

from pathlib import Path

import pytest

from paired_servicebus.config import load_config
from paired_servicebus.temporary_entities.managed_namespace import Side
from paired_servicebus.verify.verify_run import Redactor

KEY = "c2VjcmV0LWtleS1vZi1jb250b3Nv"


@pytest.fixture
def redactor(tmp_path: Path) -> Redactor:
    path = tmp_path / "pairing.toml"
    path.write_text(
        """
[pairing]
name = "orders"
[primary]
connection_string = { env = "PRIMARY" }
[secondary]
namespace = "alias.servicebus.windows.net"
credential = "client-secret"
tenant = "11111111-2222-3333-4444-555555555555"
client_id = "app-0815"
client_secret = { env = "CLIENT" }
management = "arm"
subscription = "sub-4711"
resource_group = "rg-fabrikam"
"""
    )
    names = {Side.PRIMARY: ["contoso"], Side.SECONDARY: ["fabrikam-backup"]}
    string = f"Endpoint=sb://contoso.servicebus.windows.net/;SharedAccessKeyName=mine;SharedAccessKey={KEY}"
    config = load_config(path, environ={"PRIMARY": string, "CLIENT": "hush-hush"})
    return Redactor(config, names)


@pytest.mark.parametrize(
    ("text", "clean"),
    [
        ("sb://contoso.servicebus.windows.net/q is gone", "sb://primary/q is gone"),
        ("CONTOSO.ServiceBus.Windows.net:5671 closed", "primary:5671 closed"),
        ("of Contoso, contoso/x-servicebus-transfer/0", "of primary, primary/x-servicebus-transfer/0"),
        ("contosolike and my-contoso stay", "contosolike and my-contoso stay"),
        ("fabrikam-backup behind alias", "secondary behind secondary"),
        (f"key {KEY} of mine", "key *** of ***"),
        ("hush-hush app-0815 sub-4711 rg-fabrikam", "*** *** *** ***"),
        ("other.servicebus.chinacloudapi.cn at 10.1.2.3:5671", "HOST at HOST"),
        (
            "could not be found. TrackingId:8b1d_G12, SystemTracker:contoso:queue:q, Timestamp:2026-11-23",
            "could not be found",
        ),
        ("busy. Reference:1-2-3, TrackingId:4, SystemTracker:x", "busy"),
        ("paired-verify-0123456789ab-12 and paired-verify-x", "QUEUE and paired-verify-x"),
        ("two\nlines\x1b[31m", "two lines\\x1b[31m"),
        ("SharedAccessSignature sr=x&sig=abc%3d&se=1", None),
    ],
)  # fmt: skip
def test_a_text_can_be_shown_to_anyone(redactor: Redactor, text: str, clean: str | None) -> None:
    found = redactor.clean(text)
    if clean is None:
        assert "abc%3d" not in found
    else:
        assert found == clean


def test_a_long_text_is_cut(redactor: Redactor) -> None:
    assert len(redactor.clean("x " * 5000)) <= 600
