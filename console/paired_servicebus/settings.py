"""One setting of pairing.toml: read, or refused in one sentence with problem, place and remedy.

No sentence quotes a secret; a misplaced one is masked as far as possible. Not here: the list of settings and their
combinations (config.py).
"""

from __future__ import annotations

import errno
import ipaddress
import re
import shlex
import stat
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, cast

from paired_servicebus.connection_string import complaint, host_of, is_emulated, is_loopback, parts_of, split_url
from paired_servicebus.core.errors import ConfigurationError
from paired_servicebus.core.text.entity_paths import path_fault
from paired_servicebus.core.text.masking import shown
from paired_servicebus.core.text.untrusted_text import harmless, repeated
from paired_servicebus.secret import Secret

MIN_MEGABYTES: Final = 64
"""Eight files of a busy journal."""
MAX_MEGABYTES: Final = 1_000_000_000
MAX_TEXT_CHARS: Final = 4096
"""Characters of a setting, which is a path at the longest."""
MAX_HOST_CHARS: Final = 253
MAX_ENTITIES: Final = 10_000
"""Queues and topics of a namespace: its quota."""
MAX_SECRET_BYTES: Final = 64 * 1024
_DURATION: Final = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h)")
_UNITS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_HOST: Final = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?")


@dataclass(frozen=True, slots=True)
class SettingLocation:
    """The place of a value, and the context for reading it."""

    path: Path
    table: str
    key: str
    environ: Mapping[str, str]
    remarks: list[str] = field(default_factory=list)
    """Warnings about the value, which is used nevertheless."""

    def error(self, text: str) -> ConfigurationError:
        return ConfigurationError(f"{self.path}: [{self.table}] {self.key} {text}")


Reader = Callable[[SettingLocation, object], object]


def read_text(place: SettingLocation, value: object, *, breaks: str = "") -> str:
    """Read a text. breaks: the control characters that it may have."""
    if not isinstance(value, str) or not value.strip():
        raise place.error(f"is {shown(value)}; it is a text that is not empty")
    if len(value) > MAX_TEXT_CHARS:
        raise place.error(f"has {len(value):,} characters; it has {MAX_TEXT_CHARS:,} at most")
    plain = value.translate(str.maketrans("", "", breaks))
    if harmless(plain) != plain:
        raise place.error(f"is {shown(value)}; it has no control characters and no invisible ones")
    return value


def read_flag(place: SettingLocation, value: object) -> bool:
    if not isinstance(value, bool):
        raise place.error(f"is {shown(value)}; it is true or false")
    return value


def read_megabytes(place: SettingLocation, value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not MIN_MEGABYTES <= value <= MAX_MEGABYTES:
        least, most = f"{MIN_MEGABYTES} at least", f"{MAX_MEGABYTES:,} at most"
        raise place.error(f"is {shown(value)}; it is a whole number of megabytes, {least} and {most}")
    return value


def as_it_is(place: SettingLocation, value: object) -> object:
    return value  # Policy checks it and has the better sentence


def read_duration(place: SettingLocation, value: object) -> object:
    """Read a duration in seconds."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return value
    seconds = seconds_of(value) if isinstance(value, str) else None
    if seconds is None:
        raise place.error(f'is {shown(value)}; it is a time such as "30s", "1m", "500ms", "2h", or a number of seconds')
    return seconds


def seconds_of(text: str) -> float | None:
    """Return the seconds in a written time; None if it is not one."""
    match = _DURATION.fullmatch(text.strip())
    return None if match is None else float(match[1]) * _UNITS[match[2]]


def one_of(*words: str) -> Reader:
    def read(place: SettingLocation, value: object) -> str:
        if not isinstance(value, str) or value not in words:
            raise place.error(f"is {shown(value)}; it is one of {', '.join(words)}")
        return value

    return read


def read_name(place: SettingLocation, value: object) -> str:
    if not isinstance(value, str) or not _NAME.fullmatch(value):
        raise place.error(f"is {shown(value)}; it has 1 to 64 letters, digits, dots, dashes or underscores")
    return value


def read_host(place: SettingLocation, value: object) -> str:
    if not isinstance(value, str) or len(value) > MAX_HOST_CHARS or not _HOST.fullmatch(value):
        raise place.error(f'is {shown(value)}; it is a host such as "contoso.servicebus.windows.net"')
    return value


def read_entities(place: SettingLocation, value: object) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(path, str) and path.strip("/ ") for path in value):
        raise place.error(f'is {shown(value)}; it lists queues and topics, as in ["orders", "audit"]')
    paths = tuple(cast("list[str]", value))
    if len(paths) > MAX_ENTITIES:
        raise place.error(f"lists {len(paths):,} entities; a namespace has {MAX_ENTITIES:,} at most")
    for path in paths:
        fault = path_fault(path)
        if fault:
            raise place.error(f"has {shown(path)}, which {fault}")
    if len({path.casefold() for path in paths}) != len(paths):
        raise place.error("names an entity twice; paths are compared without case")
    return paths


def read_command(place: SettingLocation, value: object) -> tuple[str, ...]:
    """Read a program and its arguments, split as a shell would, without running a shell."""
    try:
        words = shlex.split(read_text(place, value, breaks="\n\t"))
    except ValueError as error:
        raise place.error(f"is {shown(value)}, which cannot be split into words: {error}") from error
    if not words or not words[0]:
        raise place.error(f'is {shown(value)}; it is a command such as "/usr/local/bin/tell-us --urgent"')
    return tuple(words)


def read_proxy(place: SettingLocation, value: object) -> Secret:
    given = Secret(value) if isinstance(value, str) else read_secret(place, value)
    url = split_url(given.reveal())
    if url is None or url.scheme not in ("http", "https") or not url.hostname or not url.port:
        raise place.error('is no proxy; it is a URL with a port, such as "http://proxy.example.com:3128"')
    if isinstance(value, str) and url.password:
        raise place.error(
            'carries a password, which this file may not contain; use { env = "NAME" } or { file = "PATH" }'
        )
    return given


def read_endpoint(place: SettingLocation, value: object) -> str:
    text = read_text(place, value)
    url = split_url(text if "//" in text else f"sb://{text}")
    if url is None or url.scheme != "sb" or not url.hostname or "@" in url.netloc or url.path not in ("", "/"):
        raise place.error(f'is {shown(value)}; it is an address such as "sb://gateway.example.com:443"')
    return f"sb://{url.netloc}"


@dataclass(frozen=True, slots=True)
class ListenAddress:
    """Where something of ours listens."""

    host: str
    port: int

    @property
    def loopback(self) -> bool:
        """Whether only this machine can reach it."""
        return self.host == "localhost" or ipaddress.ip_address(self.host).is_loopback

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def read_address(place: SettingLocation, value: object) -> ListenAddress:
    """Read an address; a port without a host is one of loopback."""
    url = split_url(f"//127.0.0.1:{value}" if isinstance(value, int) else f"//{value}")
    host, port = (url.hostname, url.port) if url is not None else (None, None)
    try:
        found = ListenAddress(host or "", port or 0)
        if isinstance(value, bool) or not found.port or found.loopback is None:
            raise ValueError
    except ValueError as error:
        raise place.error(
            f'is {shown(value)}; it is a port of this machine such as 9464, or an address such as "127.0.0.1:9464"'
        ) from error
    return found


def read_arm_url(place: SettingLocation, value: object) -> str:
    url = split_url(read_text(place, value))
    if url is None or url.scheme != "https" or not url.hostname or "@" in url.netloc:
        raise place.error(f'is {shown(value)}; it is a URL such as "https://management.azure.com"')
    return f"https://{url.netloc}"


def read_path(place: SettingLocation, value: object) -> Path:
    """Read the path of a file that need not be there yet."""
    return place.path.parent / read_text(place, value)


def read_file(place: SettingLocation, value: object) -> Path:
    file = read_path(place, value)
    if not is_file(file):
        raise place.error(f"names {shown(value)}, which is not a file")
    return file


def is_file(path: Path) -> bool:
    """Return whether a path names a file; one that nobody can look at does not."""
    try:
        return path.is_file()
    except OSError:  # too long, or in a folder that is another user's
        return False


def read_secret(place: SettingLocation, value: object) -> Secret:
    match value:
        case {"env": str(name), **rest} if not rest:
            found = place.environ.get(name)
            if not found:
                said = repeated(name)
                raise place.error(f"is to come from the environment variable {said}, which is not set: export {said}")
            return Secret(found)
        case {"file": str(name), **rest} if not rest:
            return _read_secret_file(place, name)
    raise place.error('is a secret, which this file may not contain; use { env = "NAME" } or { file = "PATH" }')


def _read_secret_file(place: SettingLocation, name: str) -> Secret:
    file = place.path.parent / name
    try:
        if not stat.S_ISREG(file.stat().st_mode):
            raise OSError(errno.EINVAL, "it is no file with a content")  # a pipe would be waited for
        with file.open("rb") as opened:
            data = opened.read(MAX_SECRET_BYTES + 1)
        found = data.decode().strip()
        if is_open_to_all(file):
            place.remarks.append(
                f"the secret of [{place.table}] {place.key} stands in {file}, which every user of this machine "
                "can read: chmod o-r it, or give it to the service as a credential"
            )
    except (OSError, ValueError) as error:  # ValueError: no UTF-8, or a path that none can have
        raise place.error(f"is to come from the file {repeated(name)}, which cannot be read: {_why(error)}") from error
    if not found:
        raise place.error(f"is to come from the file {repeated(name)}, which is empty")
    if len(data) > MAX_SECRET_BYTES:
        raise place.error(f"is to come from the file {repeated(name)}, which has more than {MAX_SECRET_BYTES:,} bytes")
    return Secret(found)


def _why(error: OSError | ValueError) -> str:
    """Return the reason without the content: an error of decoding quotes it."""
    if isinstance(error, UnicodeDecodeError):
        return f"it is not UTF-8 (byte {error.start})"
    return (error.strerror if isinstance(error, OSError) else None) or str(error)


def is_open_to_all(file: Path) -> bool:
    """Return whether every user can read a file and reach its folder."""
    return bool(file.stat().st_mode & stat.S_IROTH and file.resolve().parent.stat().st_mode & stat.S_IXOTH)


def read_key(place: SettingLocation, value: object) -> Secret:
    """Read a connection string as a secret; that of a sandbox on this machine may be in the file."""
    if isinstance(value, str) and is_emulated(parts_of(value)) and is_loopback(parts_of(value)):
        return Secret(value)
    return read_secret(place, value)


def read_connection_string(place: SettingLocation, value: object) -> Secret:
    found = read_key(place, value)
    parts = parts_of(found.reveal())
    why_not = complaint(parts)
    if why_not:
        raise place.error(why_not)
    if is_emulated(parts) and not is_loopback(parts):
        raise place.error(
            f"has UseDevelopmentEmulator=true for {host_of(parts)}, which is not this machine: messages and keys "
            "would cross the network in plain AMQP; leave that part out, and reach a sandbox elsewhere by its "
            "ca_file and a custom_endpoint"
        )
    return found
