"""The verb that prints the gateway's connection strings and manages its keys. It needs no running engine.

It alone writes secrets: on standard output, one connection string a line, and nothing else there.
"""

from __future__ import annotations

import json as json_format
import sys
from collections.abc import Sequence
from ipaddress import ip_address
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from paired_servicebus.config import find_config, load_settings
from paired_servicebus.core.errors import ConfigurationError
from paired_servicebus.core.text.untrusted_text import repeated
from paired_servicebus.engine.control.discovery import local_engines
from paired_servicebus.engine.gateway.gateway_keys import (
    GatewayRight,
    KeyRing,
    LocalKey,
    add_key,
    connection_string,
    keys_of,
    remove_key,
    rotate_keys,
)
from paired_servicebus.engine.gateway.gateway_tls import certificates_of
from paired_servicebus.engine.instance.engine_paths import EnginePaths, engine_paths
from paired_servicebus.engine.instance.lock import running
from paired_servicebus.sections.gateway_options import GatewayOptions, KeyRule
from paired_servicebus.verbs.parameters import Config
from servicebus_amqp.server.listener import name_remark

DEFAULT_RIGHTS = f"{GatewayRight.SEND},{GatewayRight.LISTEN}"


def gateway(
    *,
    config: Config = None,
    rotate: Annotated[bool, Parameter(help="Replace each key by a fresh one: the old strings end.")] = False,
    add: Annotated[str | None, Parameter(help="Add a key of this name.")] = None,
    rights: Annotated[
        str | None, Parameter(help=f"The rights of the added key: Send, Listen, Manage; else {DEFAULT_RIGHTS}.")
    ] = None,
    remove: Annotated[str | None, Parameter(help="Remove the key of this name.")] = None,
    ca: Annotated[bool, Parameter(help="Print the certificate authority of the gateway's TLS, as PEM.")] = False,
    json: Annotated[bool, Parameter(name="--json", help="One JSON object on standard output.")] = False,
) -> int:
    """Print the gateway's connection strings, one for each key: they are secrets.

    A running engine follows every change within a second.
    """
    if sum((rotate, add is not None, remove is not None, ca)) > 1:
        raise ConfigurationError("--rotate, --add, --remove and --ca are one thing each: choose one of them")
    if rights is not None and add is None:
        raise ConfigurationError("--rights are those of an added key: name it with --add")
    settings = load_settings(find_config(config))
    if settings.gateway is None:
        raise ConfigurationError(
            f"{settings.path} has no gateway: add the line [gateway] at its end, and start the engine again"
        )
    places = engine_paths(settings.name)
    is_running = running(places.lock) is not None
    service = None if is_running else _service(settings.name)
    if service is not None and settings.gateway.keys is None:
        raise ConfigurationError(
            f"the engine of {settings.name} is a service with keys of its own: add the line "
            f'keys = "FILE" to [gateway], and run this as {service.socket.owner()}'
        )
    is_running = is_running or service is not None
    if ca:
        return _print_authority(settings.gateway, places)
    path, rules = _keys_file(settings.gateway, places), settings.gateway.key_rules
    keys = _change(path, rules, rotate=rotate, add=add, rights=rights, remove=remove)
    _print_keys(keys.keys, settings.gateway, is_running=is_running, json=json)
    _note_host(settings.gateway)
    if not is_running and not json:
        _note(f"no engine of {settings.name} runs here: start one with paired up")
    return 0


def _note_host(options: GatewayOptions) -> None:
    """Report a name that leads elsewhere: its clients would show another machine the gateway's key."""
    if options.host and not ip_address(options.address).is_unspecified:
        remark = name_remark(options.host, options.address)
        if remark is not None:
            _note(remark)


def _print_authority(options: GatewayOptions, places: EnginePaths) -> int:
    """Write the authority's certificate on standard output; make it if it is missing. Raises ConfigurationError."""
    _keys_file(options, places)
    try:
        sys.stdout.write(certificates_of(options, places, warn=_note).authority())
    except OSError as error:
        raise ConfigurationError(f"the gateway's certificate cannot be read or made: {error}") from error
    return 0


def _keys_file(options: GatewayOptions, places: EnginePaths) -> Path:
    if options.keys is not None:
        return options.keys
    places.prepare()
    return places.gateway_keys


def _service(name: str) -> EnginePaths | None:
    """Return the running engine of a service; its state folder is not the one of this user."""
    return next((places for places in local_engines() if places.is_service and places.name == name), None)


def _change(
    path: Path, rules: Sequence[KeyRule], *, rotate: bool, add: str | None, rights: str | None, remove: str | None
) -> KeyRing:
    """Make the file if it is missing, and perform the change. Raises PairedError."""
    try:
        found = keys_of(path, rules)
        if rotate:
            return rotate_keys(path)
        if add is not None:
            return add_key(path, add, _read_rights(rights or DEFAULT_RIGHTS))
        return remove_key(path, remove) if remove is not None else found
    except OSError as error:
        raise ConfigurationError(
            f"the gateway's keys {path} cannot be read or written: {error.strerror or error}"
        ) from error


def _read_rights(text: str) -> list[GatewayRight]:
    known = {right.casefold(): right for right in GatewayRight}
    words = [word.strip() for word in text.split(",")]
    strange = [word for word in words if word.casefold() not in known]
    if strange:
        raise ConfigurationError(
            f"{repeated(strange[0])} is not a right; --rights lists {', '.join(GatewayRight)}, as in {DEFAULT_RIGHTS}"
        )
    return [known[word.casefold()] for word in words]


def _print_keys(keys: Sequence[LocalKey], options: GatewayOptions, *, is_running: bool, json: bool) -> None:
    """Write the strings on standard output, unmasked."""
    port = None if options.standard_ports else options.port
    strings = [connection_string(key, port, address=options.address, host=options.host) for key in keys]
    if json:
        entries = [
            {
                "name": key.name,
                "rights": sorted(key.rights),
                "entities": list(key.entities),
                "connection_string": string,
            }
            for key, string in zip(keys, strings, strict=True)
        ]
        whole = {"address": options.address, "port": options.port, "running": is_running, "keys": entries}
        sys.stdout.write(json_format.dumps(whole) + "\n")
        return
    for key, string in zip(keys, strings, strict=True):
        entities = f" on {', '.join(key.entities)}" if key.entities else ""
        _note(f"{key.name}: {', '.join(sorted(key.rights))}{entities}")
        sys.stdout.write(string + "\n")
        sys.stdout.flush()


def _note(text: str) -> None:
    sys.stderr.write(f"{text}\n")
