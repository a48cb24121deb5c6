"""An engine's gateway, as pairing.toml's [gateway] sets it."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from paired_servicebus.core.errors import ConfigurationError
from paired_servicebus.core.text.masking import shown
from paired_servicebus.settings import Reader, SettingLocation, read_flag, read_text

DEFAULT_PORT: Final = 5672
"""The port of plain AMQP: the only one for a JavaScript client whose core-amqp is older than 4.3.4."""
LOOPBACK: Final = "127.0.0.1"
MAX_PORT: Final = 65535
GATEWAY_POLICY: Final[Mapping[str, object]] = {"hold_until_failover": True, "send_timeout": 10.0}
"""The pairing's defaults beside a gateway: an outage shows to its clients as slowness, and not as errors."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayOptions:
    """The place where clients of any language connect, and the file of the keys that they sign with."""

    port: int = DEFAULT_PORT
    address: str = LOOPBACK
    keys: Path | None = None
    """None: `gateway.keys` in the engine's state folder."""


def gateway_options(values: Mapping[str, Any]) -> GatewayOptions:
    """Return the options of a section's values.

    Raises:
        ConfigurationError: only one of two settings lets other hosts in.
    """
    chosen = dict(values)
    is_open = chosen.pop("allow_other_hosts", False)
    options = GatewayOptions(**chosen)
    is_loopback = ipaddress.ip_address(options.address).is_loopback
    if not is_loopback and not is_open:
        raise ConfigurationError(
            f"address is {options.address}, which other hosts reach: messages and tokens would cross the network in "
            "plain TCP; leave it out, or add allow_other_hosts = true"
        )
    if is_loopback and is_open:
        raise ConfigurationError(
            f"allow_other_hosts is true, and address is {options.address}, which only this machine reaches: "
            "name an address that other hosts reach, or leave allow_other_hosts out"
        )
    return options


# -- pairing.toml ----------------------------------------------------------------------------------------------------


def _of_port(place: SettingLocation, value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= MAX_PORT:
        raise place.error(f"is {shown(value)}; it is a port from 1 to {MAX_PORT}, such as {DEFAULT_PORT}")
    return value


def _of_address(place: SettingLocation, value: object) -> str:
    try:
        return str(ipaddress.ip_address(read_text(place, value)))
    except ValueError as error:
        raise place.error(f'is {shown(value)}; it is an IP address of this machine, such as "{LOOPBACK}"') from error


def _of_file(place: SettingLocation, value: object) -> Path:
    """Read the path of the keys file, which the engine makes if it is missing."""
    return place.path.parent / read_text(place, value)


GATEWAY_KEYS: Final[dict[str, Reader]] = {
    "port": _of_port,
    "address": _of_address,
    "allow_other_hosts": read_flag,
    "keys": _of_file,
}
"""The keys of [gateway], with their readers."""
