"""An engine's part in the fleet, as pairing.toml's [fleet] and applications set it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from os import PathLike, fspath
from pathlib import Path
from typing import Final

from paired_servicebus.connection_string import complaint, parts_of
from paired_servicebus.core.errors import ConfigurationError
from paired_servicebus.core.text.masking import shown
from paired_servicebus.secret import Secret
from paired_servicebus.settings import Reader, SettingLocation, read_key, read_path

MAX_EXPECTED: Final = 5000
"""Engines of one namespace: its quota of connections."""
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_NAME_IS: Final = "1 to 64 letters, digits, dots, dashes or underscores"


@dataclass(frozen=True, slots=True, kw_only=True, init=False)
class Fleet:
    """Take part in the fleet: `pair_namespaces(…, control=True, fleet=Fleet(operators="/etc/paired/operators"))`.

    Args:
        operators: a file of allowed signers in OpenSSH's format, whose keys may sign orders; None: look only.
        expect: the number of engines of the pairing, or their names; None: unknown.
        name: this engine's name in the fleet, where the host's name is not unique; empty: made from host and engine.
        orders, reports: connection strings with the keys of the boards' own rules; None: the secondary's credential.

    Raises:
        ConfigurationError: an unusable value.
    """

    operators: Path | None
    expect: int | tuple[str, ...] | None
    name: str
    orders: Secret | None
    reports: Secret | None

    def __init__(
        self,
        *,
        operators: str | PathLike[str] | None = None,
        expect: int | Sequence[str] | None = None,
        name: str = "",
        orders: str | Secret | None = None,
        reports: str | Secret | None = None,
    ) -> None:
        for field, value in (
            ("operators", Path(fspath(operators)) if operators is not None else None),
            ("expect", read_expected(expect)),
            ("name", _read_name(name)),
            ("orders", _read_key("orders", orders)),
            ("reports", _read_key("reports", reports)),
        ):
            object.__setattr__(self, field, value)

    @property
    def key_names(self) -> dict[str, str]:
        """Return the names of the keys of its own that it has, by board."""
        given = {"orders": self.orders, "reports": self.reports}
        parts = {board: parts_of(secret.reveal()) for board, secret in given.items() if secret is not None}
        return {board: found.get("sharedaccesskeyname", "a signature") for board, found in parts.items()}


def read_expected(value: object) -> int | tuple[str, ...] | None:
    """Read `expect`. Raises ConfigurationError: neither a number nor distinct names."""
    if value is None:
        return None
    if isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= MAX_EXPECTED:
        return value
    if isinstance(value, Sequence) and not isinstance(value, str | bytes) and 1 <= len(value) <= MAX_EXPECTED:
        if not all(isinstance(name, str) and _NAME.fullmatch(name) for name in value):
            raise ConfigurationError(f"expect has a name of an engine that is not {_NAME_IS}")
        if len({name.casefold() for name in value}) != len(value):
            raise ConfigurationError("expect names an engine twice; names are compared without case")
        return tuple(value)
    raise ConfigurationError(f"expect is a number of engines from 1 to {MAX_EXPECTED}, or a list of their names")


def _read_name(value: object) -> str:
    if not isinstance(value, str) or (value and not _NAME.fullmatch(value)):
        raise ConfigurationError(f"the name of an engine in the fleet has {_NAME_IS}")
    return value


def _read_key(board: str, value: str | Secret | None) -> Secret | None:
    if value is None:
        return None
    secret = value if isinstance(value, Secret) else Secret(value)
    parts = dict(parts_of(secret.reveal()))
    path = parts.pop("entitypath", "").casefold()
    why_not = complaint(parts)
    if not why_not and path and not path.endswith(f"/x-paired-fleet/{board}"):
        why_not = f"is the connection string of another entity; it belongs to a queue …/x-paired-fleet/{board}"
    if why_not:
        raise ConfigurationError(f"{board} {why_not}")
    return secret


# -- pairing.toml ----------------------------------------------------------------------------------------------------


def _of_name(place: SettingLocation, value: object) -> str:
    match value:
        case {"env": str(variable), **rest} if not rest:
            found = place.environ.get(variable, "")
            if not _NAME.fullmatch(found):
                is_ = "is not set" if not found else f"is {shown(found)}"
                raise place.error(f"comes from the environment variable {variable}, which {is_}; it has {_NAME_IS}")
            return found
        case str() if _NAME.fullmatch(value):
            return value
    raise place.error(f'is {shown(value)}; it is {{ env = "NAME" }} or has {_NAME_IS}')


def _of_expected(place: SettingLocation, value: object) -> int | tuple[str, ...] | None:
    try:
        return read_expected(value)
    except ConfigurationError as error:
        raise place.error(f"is {shown(value)}; {error}") from error


def _of_key(place: SettingLocation, value: object) -> Secret | None:
    given = read_key(place, value)
    try:
        return _read_key(place.key, given)
    except ConfigurationError as error:
        raise place.error(str(error).removeprefix(f"{place.key} ")) from error


FLEET_KEYS: Final[dict[str, Reader]] = {
    "operators": read_path,
    "expect": _of_expected,
    "name": _of_name,
    "orders": _of_key,
    "reports": _of_key,
}
"""The keys of [fleet], with their readers."""
