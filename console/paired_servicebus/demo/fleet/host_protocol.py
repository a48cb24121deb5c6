"""The protocol of the demo and a host's process: an order in, lines out; JSON, one line each.

A second line of input, whatever its text, ends the host's sends. The end of the input ends the process.
"""

from __future__ import annotations

import msgspec

from paired_servicebus.demo.fleet_result import HostAccount
from paired_servicebus.sandbox_process import AnnouncedNamespace


class HostRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The order: which host to be."""

    name: str
    folder: str
    operators: str
    """The file of signers."""
    namespaces: list[AnnouncedNamespace]
    """The namespaces as this host reaches them."""
    ca_file: str
    seed: int
    read_only: bool = False


class HostReady(msgspec.Struct, frozen=True, tag="ready"):
    """The engine runs, and its application sends."""


class HostForced(msgspec.Struct, frozen=True, tag="forced"):
    """Whether `orders` is forced in the engine has changed."""

    is_forced: bool


class HostFailed(msgspec.Struct, frozen=True, tag="failed"):
    """The host cannot be; one sentence."""

    text: str


class HostEnded(msgspec.Struct, frozen=True, tag="ended"):
    """The application stopped, with its account."""

    account: HostAccount


HostLine = HostReady | HostForced | HostFailed | HostEnded
