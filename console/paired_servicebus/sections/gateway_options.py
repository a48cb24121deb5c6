"""An engine's gateway, as pairing.toml's [gateway] sets it."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from typing import Any, Final

from paired_servicebus.core.errors import ConfigurationError
from paired_servicebus.core.text.masking import shown
from paired_servicebus.settings import Reader, SettingLocation, read_flag, read_name, read_path, read_text

DEFAULT_PORT: Final = 5672
"""The port of plain AMQP: the only one for a JavaScript client whose core-amqp is older than 4.3.4."""
STANDARD_PORTS: Final = (5671, 443)
"""The service's own ports, inside TLS: of AMQP, and of administration and WebSockets."""
LOOPBACK: Final = "127.0.0.1"
MAX_PORT: Final = 65535
GATEWAY_POLICY: Final[Mapping[str, object]] = {"hold_until_failover": True, "send_timeout": 10.0}
"""The pairing's defaults beside a gateway: an outage shows to its clients as slowness, and not as errors."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyRule:
    """One of `[[gateway.keys]]`: what the clients of a key may do. The key itself is in the file of keys."""

    name: str
    rights: tuple[str, ...]
    entities: tuple[str, ...] = ()
    """Their names; `*` stands for any characters. Empty: all."""
    limits: Mapping[str, float] = field(default_factory=dict)
    """By the names of KeyLimits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayOptions:
    """The place where clients of any language connect, and the file of the keys that they sign with."""

    port: int = DEFAULT_PORT
    address: str = LOOPBACK
    host: str = ""
    """The name by which clients find the address; in the connection strings and the certificate. "": the address."""
    keys: Path | None = None
    """None: `gateway.keys` in the engine's state folder."""
    key_rules: tuple[KeyRule, ...] = ()
    administration: bool = False
    """Whether administration is relayed to the primary."""
    standard_ports: bool = False
    """Whether it listens on STANDARD_PORTS too, for programs that know a host alone."""
    emulator_port: int | None = None
    """One more port, for programs that administrate at the emulator's, whatever their connection string has."""

    @property
    def ports(self) -> tuple[int, ...]:
        """Return all ports, the one of the connection strings first."""
        more = () if self.emulator_port is None else (self.emulator_port,)
        return tuple(dict.fromkeys((self.port, *more, *(STANDARD_PORTS if self.standard_ports else ()))))


def gateway_options(values: Mapping[str, Any]) -> GatewayOptions:
    """Return the options of a section's values.

    Raises:
        ConfigurationError: only one of two settings lets other hosts in.
    """
    chosen = dict(values)
    if isinstance(chosen.get("keys"), tuple):
        chosen["key_rules"] = chosen.pop("keys")
    if "keys_file" in chosen:
        chosen["keys"] = chosen.pop("keys_file")
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


_LABEL: Final = "[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?"


def _of_host(place: SettingLocation, value: object) -> str:
    name = read_text(place, value)
    if len(name) > 253 or re.fullmatch(rf"{_LABEL}(\.{_LABEL})*", name) is None:
        raise place.error(f'is {shown(value)}; it is a host name, such as "orders.servicebus.windows.net"')
    return name


_RIGHTS: Final = {"send": "Send", "listen": "Listen", "manage": "Manage"}
_LIMITS: Final = ("connections", "links", "bytes_in_hand", "sends_per_second")
_ENTITY: Final = re.compile(r"[A-Za-z0-9._*-]+(/[A-Za-z0-9._*-]+)*")


def _of_keys(place: SettingLocation, value: object) -> object:
    """Read the path of the keys file, or the table of each key."""
    if not isinstance(value, list):
        return read_path(place, value)
    rules = tuple(_rule(place, one) for one in value)
    names = [rule.name.casefold() for rule in rules]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise place.error(f"has the key {twice} twice")
    return rules


def _rule(place: SettingLocation, value: object) -> KeyRule:
    if not isinstance(value, dict):
        raise place.error(f"has {shown(value)}; each key is a table [[gateway.keys]]")
    foreign = [name for name in value if name not in ("name", "rights", "entities", *_LIMITS)]
    if foreign:
        raise place.error(f"has a key with {shown(foreign[0])}; it has name, rights, entities, {', '.join(_LIMITS)}")
    name = read_name(place, value.get("name"))
    rights = [str(one).lower() for one in _texts(place, name, "rights", value.get("rights"))]
    if not rights or not set(rights) <= set(_RIGHTS):
        raise place.error(f'{name}: its rights are some of "Send", "Listen" and "Manage"')
    entities = _texts(place, name, "entities", value.get("entities", []))
    wrong = next((one for one in entities if not _ENTITY.fullmatch(one)), None)
    if wrong is not None or ("entities" in value and not entities):
        raise place.error(f'{name}: its entities are names such as "orders" or "audit*", not {shown(wrong or "")}')
    limits = {limit: value[limit] for limit in _LIMITS if limit in value}
    bad = next((limit for limit, most in limits.items() if not _is_limit(most)), None)
    if bad is not None:
        raise place.error(f"{name}: {bad} is {shown(limits[bad])}; it is a number of 1 at least")
    return KeyRule(name=name, rights=tuple(_RIGHTS[one] for one in rights), entities=tuple(entities), limits=limits)


def _texts(place: SettingLocation, name: str, setting: str, value: object) -> list[str]:
    if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
        raise place.error(f"{name}: its {setting} are a list of texts, not {shown(value)}")
    return value


def _is_limit(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 1 <= value < inf


GATEWAY_KEYS: Final[dict[str, Reader]] = {
    "port": _of_port,
    "address": _of_address,
    "host": _of_host,
    "allow_other_hosts": read_flag,
    "keys": _of_keys,
    "keys_file": read_path,
    "administration": read_flag,
    "standard_ports": read_flag,
    "emulator_port": _of_port,
}
"""The keys of [gateway], with their readers."""
