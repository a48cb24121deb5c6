"""The file of operators: OpenSSH's allowed signers. A line that cannot be used is skipped and reported.

A file that is missing, unreadable, writable by others or without a usable line makes the engine look only.
"""

from __future__ import annotations

import base64
import binascii
import calendar
import hashlib
import os
import re
import stat
import time
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Final

from paired_servicebus.core.errors import ConfigurationError, UnreadableError
from paired_servicebus.core.text.untrusted_text import repeated
from paired_servicebus.engine.fleet.ssh_signatures import check_key
from paired_servicebus.ownership import foreign_access

MAX_FILE_BYTES: Final = 256 * 1024
_LINE: Final = re.compile(r'(?:"([^"]+)"|([^\s"]+))[ \t]+(.+)')
_OPTION: Final = re.compile(
    r'(cert-authority|(namespaces|valid-after|valid-before)="([^"]*)")(,|[ \t]+)', re.IGNORECASE
)
_KEY: Final = re.compile(r"([a-z0-9@.-]+)[ \t]+([A-Za-z0-9+/=]+)(?:[ \t].*)?")
_TIME: Final = re.compile(r"(\d{8}|\d{12}|\d{14})(Z?)")


@dataclass(frozen=True, slots=True, kw_only=True)
class AllowedSigner:
    """One line: who may sign with a key, in which signature namespaces, from when until when."""

    principals: str
    key: bytes
    namespaces: tuple[str, ...] = ()
    """Patterns; empty: every namespace."""
    valid_after: float | None = None
    valid_before: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Signers:
    """The usable lines, the file's hash, and a sentence for each unusable line."""

    lines: tuple[AllowedSigner, ...]
    hash: str
    skipped: tuple[str, ...] = ()


def read_signers(path: Path) -> Signers:
    """Read the file.

    Raises:
        ConfigurationError: the engine can only look; the text is the sentence to show.
    """
    data = _read_bytes(path)
    lines, skipped = [], []
    for number, line in enumerate(data.decode("utf-8", "replace").split("\n"), 1):
        text = line.strip()
        if not text or text.startswith("#"):
            continue
        try:
            lines.append(parse_line(text))
        except UnreadableError as error:
            skipped.append(f"line {number} of {path} is not used: {error}")
    if not lines:
        reason = f" ({skipped[0]})" if skipped else ""
        raise ConfigurationError(f"look only: {path} has no usable ed25519 key{reason}")
    return Signers(lines=tuple(lines), hash=hashlib.sha256(data).hexdigest()[:16], skipped=tuple(skipped))


def _read_bytes(path: Path) -> bytes:
    try:
        for place in (path.resolve().parent, path):
            if how := foreign_access(place):
                raise ConfigurationError(f"look only: {place} {how}, so another user could name operators")
        file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(file, "rb") as opened:
            if not stat.S_ISREG(os.fstat(file).st_mode):
                raise ConfigurationError(f"look only: {path} is not a file")
            data = opened.read(MAX_FILE_BYTES + 1)
    except FileNotFoundError as error:
        raise ConfigurationError(f"look only: there is no file of operators {path}") from error
    except (OSError, ValueError) as error:  # ValueError: a null character in the path
        raise ConfigurationError(f"look only: {path} cannot be read: {_reason(error)}") from error
    if len(data) > MAX_FILE_BYTES:
        raise ConfigurationError(f"look only: {path} is longer than {MAX_FILE_BYTES:,} bytes")
    return data


def _reason(error: Exception) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or repeated(str(error))


def parse_line(line: str) -> AllowedSigner:
    """Read one line.

    Raises:
        UnreadableError: it cannot be used; the text has the reason.
    """
    found = _LINE.fullmatch(line)
    if found is None:
        raise UnreadableError("it has no principals and key")
    options, rest = _options(found[3])
    if "cert-authority" in options:
        raise UnreadableError("certificates are not supported")
    return AllowedSigner(
        principals=found[1] or found[2],
        key=_key(rest),
        namespaces=tuple(one for one in options.get("namespaces", "").split(",") if one),
        valid_after=_time(options["valid-after"]) if "valid-after" in options else None,
        valid_before=_time(options["valid-before"]) if "valid-before" in options else None,
    )


def _options(text: str) -> tuple[dict[str, str], str]:
    options: dict[str, str] = {}
    is_more = True
    while is_more and (found := _OPTION.match(text)):
        name = (found[2] or found[1]).lower()
        if name in options or (name == "namespaces" and not found[3].strip(",")):
            raise UnreadableError(f"its option {name} is empty or named twice")
        options[name] = found[3] or ""
        text, is_more = text[found.end() :], found[4] == ","
    return options, text.strip()


def _key(text: str) -> bytes:
    found = _KEY.fullmatch(text)
    if found is None:
        raise UnreadableError("its options or its key are invalid")
    if found[1] not in ("ssh-ed25519", "sk-ssh-ed25519@openssh.com"):
        raise UnreadableError(f"{repeated(found[1])} is not supported; use ed25519 or sk-ed25519")
    try:
        key = base64.b64decode(found[2], validate=True)
    except (binascii.Error, ValueError) as error:
        raise UnreadableError("its key is not base64") from error
    check_key(key)
    if not key[4:].startswith(found[1].encode()):
        raise UnreadableError("its key is of another type than it says")
    return key


def _time(text: str) -> float:
    """Return a time of OpenSSH's form YYYYMMDD[HHMM[SS]][Z]; without Z it is local time."""
    found = _TIME.fullmatch(text)
    if found is None:
        raise UnreadableError("its time is not YYYYMMDD[HHMM[SS]][Z]")
    try:
        parts = time.strptime(found[1].ljust(14, "0"), "%Y%m%d%H%M%S")
        return float(calendar.timegm(parts) if found[2] else time.mktime(parts))
    except (ValueError, OverflowError) as error:
        raise UnreadableError("its time is not in the calendar") from error


def matches(patterns: tuple[str, ...], value: str) -> bool:
    """Return whether a list of OpenSSH patterns matches; one that begins with ! excludes."""
    if any(one.startswith("!") and _matches_one(one[1:], value) for one in patterns):
        return False
    return any(_matches_one(one, value) for one in patterns if not one.startswith("!"))


def _matches_one(pattern: str, value: str) -> bool:
    return fnmatchcase(value, pattern.replace("[", "[[]"))
