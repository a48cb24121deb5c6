"""The signatures of orders: SSHSIG in the namespace `paired-order@1`, verified by the file of operators.

Verification is our own; signing asks `ssh-keygen`, which knows key files, agents and FIDO tokens. It gets a deadline,
no terminal and no password program, so that a passphrase prompt ends in a sentence and never hangs.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import calendar
import hashlib
import os
import re
import stat
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from importlib.util import find_spec
from math import inf
from pathlib import Path
from typing import Final

from paired_servicebus.core.errors import ConfigurationError, PairedError, UnreadableError
from paired_servicebus.core.fleet.board_reader import carried_by
from paired_servicebus.core.fleet.fleet_documents import Order, Posted, Signer, Unverified
from paired_servicebus.core.text.untrusted_text import repeated
from paired_servicebus.extras import DISTRIBUTION
from paired_servicebus.ownership import foreign_access

# OpenSSH's signature format SSHSIG, for ed25519 keys and ed25519 keys in FIDO tokens.
#
# Our own reader of 70 lines, on cryptography's ed25519. The packages that have one do not fit: sshsig 0.3 has no FIDO
# keys, no validity and no principals, and refuses a whole file for one line; asyncssh is an SSH client and server.
#
# Hostile bytes raise UnreadableError and nothing else.

MAX_SIGNATURE_CHARS: Final = 4096
ED25519: Final = b"ssh-ed25519"
SK_ED25519: Final = b"sk-ssh-ed25519@openssh.com"
KEY_TYPES: Final = (ED25519, SK_ED25519)
_BEGIN, _END = "-----BEGIN SSH SIGNATURE-----", "-----END SSH SIGNATURE-----"
_HASHES: Final = {b"sha256": hashlib.sha256, b"sha512": hashlib.sha512}
_PRIME: Final = 2**255 - 19
"""Of the field of the coordinates of ed25519's points."""
_ORDER_8: Final = 0x05FC536D880238B13933C6D305ACDFD5F098EFF289F4C345B027B2C28F95E826
_SMALL_ORDER: Final = frozenset({0, 1, _PRIME - 1, _ORDER_8, _PRIME - _ORDER_8})
"""The y of the eight points whose multiples are eight at most: signatures for them need no private key."""
_USER_PRESENT: Final = 0x01
"""The flag of a FIDO signature: the token was touched."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SshSignature:
    """A signature as it was parsed. Nothing is verified yet."""

    key: bytes
    namespace: bytes
    hash_name: bytes
    signature: bytes


class _Fields:
    """The length-prefixed fields of SSH's binary formats."""

    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    def take(self, count: int) -> bytes:
        """Return that many bytes."""
        part = self._data[self._at : self._at + count]
        if len(part) != count:
            raise UnreadableError("it is truncated")
        self._at += count
        return part

    def string(self) -> bytes:
        """Return a field."""
        return self.take(int.from_bytes(self.take(4), "big"))

    def end(self) -> None:
        """Check that nothing follows."""
        if self._at != len(self._data):
            raise UnreadableError("bytes follow its end")


def fingerprint(key: bytes) -> str:
    """Return a key's fingerprint as `ssh-keygen -l` prints it."""
    return "SHA256:" + base64.b64encode(hashlib.sha256(key).digest()).decode().rstrip("=")


def check_key(key: bytes) -> None:
    """Raise UnreadableError unless this is a complete key of a usable type."""
    _split_key(key)


def _split_key(key: bytes) -> tuple[bytes, bytes, bytes]:
    """Return the type, the 32 bytes and the application of a key."""
    fields = _Fields(key)
    kind = fields.string()
    if kind not in KEY_TYPES:
        raise UnreadableError("its key is neither ed25519 nor sk-ed25519")
    raw = fields.string()
    application = fields.string() if kind == SK_ED25519 else b""
    fields.end()
    if len(raw) != 32:
        raise UnreadableError("its key has a wrong length")
    y = int.from_bytes(raw, "little") & (2**255 - 1)  # the highest bit is the sign of x
    if y >= _PRIME or y in _SMALL_ORDER:
        raise UnreadableError("its key is a degenerate point, for which anybody can sign")
    return kind, raw, application


def parse_signature(armored: str) -> SshSignature:
    """Read an armored signature.

    Raises:
        UnreadableError: it is no signature of a supported form.
    """
    if len(armored) > MAX_SIGNATURE_CHARS:
        raise UnreadableError("it is too long")
    lines = armored.strip().splitlines()
    if len(lines) < 3 or lines[0] != _BEGIN or lines[-1] != _END:
        raise UnreadableError("it is not an SSH signature")
    try:
        blob = base64.b64decode("".join(lines[1:-1]), validate=True)
    except (binascii.Error, ValueError) as error:
        raise UnreadableError("it is not base64") from error
    fields = _Fields(blob)
    if fields.take(6) != b"SSHSIG" or fields.take(4) != b"\0\0\0\1":
        raise UnreadableError("it is not an SSH signature of version 1")
    key, namespace, _reserved, hash_name, signature = (fields.string() for _ in range(5))
    fields.end()
    if hash_name not in _HASHES:
        raise UnreadableError("its hash is neither SHA-256 nor SHA-512")
    return SshSignature(key=key, namespace=namespace, hash_name=hash_name, signature=signature)


def is_valid(found: SshSignature, signed: bytes) -> bool:
    """Return whether the key in the signature made it over these bytes, in the signature's namespace.

    Raises:
        UnreadableError: the key or the signature has a wrong form.
        ModuleNotFoundError: the package cryptography is not installed.
    """
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    kind, raw, application = _split_key(found.key)
    message = b"SSHSIG" + b"".join(
        _field(one) for one in (found.namespace, b"", found.hash_name, _HASHES[found.hash_name](signed).digest())
    )
    fields = _Fields(found.signature)
    if fields.string() != kind:
        raise UnreadableError("its key and its signature are of two types")
    signature = fields.string()
    if kind == SK_ED25519:
        flags, counter = fields.take(1), fields.take(4)
        if not flags[0] & _USER_PRESENT:
            raise UnreadableError("its token was not touched")
        message = hashlib.sha256(application).digest() + flags + counter + hashlib.sha256(message).digest()
    fields.end()
    try:
        Ed25519PublicKey.from_public_bytes(raw).verify(signature, message)
    except (InvalidSignature, ValueError):  # ValueError: the key is not a point of the curve
        return False
    return True


def _field(data: bytes) -> bytes:
    return len(data).to_bytes(4, "big") + data


# The file of operators: OpenSSH's allowed signers. A line that cannot be used is skipped and reported.
#
# A file that is missing, unreadable, writable by others or without a usable line makes the engine look only.

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


NAMESPACE: Final = "paired-order@1"
SIGN_SECONDS: Final = 30.0
"""Seconds to sign, with time to touch a token."""
LOOK_ONLY: Final = "look only: no file of operators is configured"


class SigningError(PairedError):
    """An order could not be signed; the text has the reason and the remedy."""


def verify(signed: bytes, signature: str, signers: Signers | None, *, at: float) -> Signer | Unverified:
    """Return the principal whose key signed the bytes, or why none did. It raises nothing.

    Args:
        signed: the bytes of the order.
        signature: the armored signature.
        signers: the file of operators; None: there is none.
        at: the time that validity is compared with: the order's time of issue.
    """
    if signers is None:
        return Unverified(why=LOOK_ONLY, looks_only=True)
    if not signature:
        return Unverified(why="it is not signed")
    try:
        return _verify(signed, signature, signers, at)
    except UnreadableError as error:
        return Unverified(why=f"its signature cannot be read: {error}")
    except ModuleNotFoundError as error:
        return Unverified(
            why=f"look only: {error.name} is not installed: pip install '{DISTRIBUTION}[fleet]'", looks_only=True
        )


def _verify(signed: bytes, signature: str, signers: Signers, at: float) -> Signer | Unverified:
    found = parse_signature(signature)
    if found.namespace != NAMESPACE.encode():
        return Unverified(why=f"its signature is for {repeated(found.namespace.decode('utf-8', 'replace'))!r}")
    lines = [one for one in signers.lines if one.key == found.key]
    mark = fingerprint(found.key)
    if not lines:
        return Unverified(why=f"its key {mark} is not in the file of operators")
    if not is_valid(found, signed):
        return Unverified(why="its signature does not fit its bytes")
    faults = [_fault(one, at) for one in lines]
    able = [line for line, fault in zip(lines, faults, strict=True) if not fault]
    if not able:
        return Unverified(why=f"its key {mark} {faults[0]}")
    line = max(able, key=_end)
    return Signer(by=repeated(line.principals), fingerprint=mark, valid_before=_end(line))


def _end(line: AllowedSigner) -> float:
    return inf if line.valid_before is None else line.valid_before


def _fault(line: AllowedSigner, at: float) -> str:
    if line.namespaces and not matches(line.namespaces, NAMESPACE):
        return f"may not sign {NAMESPACE}"
    if line.valid_after is not None and at < line.valid_after:
        return "is not valid yet"
    return "is no longer valid" if at > _end(line) else ""


async def sign(signed: bytes, key: Path, *, within: float = SIGN_SECONDS) -> str:
    """Return the armored signature by a private key file, or by the agent if `key` is a public key.

    A private key with a passphrase is asked of the agent, if its public key is beside it.

    Raises:
        SigningError: the key cannot sign, needs a passphrase, or did not answer in time.
    """
    status, text, trouble = await _ask_keygen(signed, key, within)
    if status and "passphrase" in trouble.lower() and "SSH_AUTH_SOCK" in os.environ:
        status, text, _ = await _ask_keygen(signed, key.with_name(f"{key.name}.pub"), within)
    if status:
        raise SigningError(_remedy(key, trouble))
    try:
        parse_signature(text)
    except UnreadableError as error:
        raise SigningError(f"the signature by {key} cannot be read: {error}") from error
    return text


async def _ask_keygen(signed: bytes, key: Path, within: float) -> tuple[int | None, str, str]:
    """Return the exit status, the signature and the trouble. Raises SigningError: it cannot run, or is too slow."""
    quiet = {**os.environ, "SSH_ASKPASS_REQUIRE": "never", "LC_ALL": "C"}
    for name in ("SSH_ASKPASS", "DISPLAY"):
        quiet.pop(name, None)
    with tempfile.TemporaryFile() as source:  # a pipe could block; the bytes are not secret
        source.write(signed)
        source.seek(0)
        try:
            process = await asyncio.create_subprocess_exec(
                *("ssh-keygen", "-Y", "sign", "-n", NAMESPACE, "-f", str(key)),
                stdin=source,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                env=quiet,
                start_new_session=True,  # without a terminal: it would ask there
            )
        except FileNotFoundError as error:
            raise SigningError("signing needs ssh-keygen, which is not installed (package openssh-client)") from error
        except (OSError, ValueError) as error:
            raise SigningError(f"ssh-keygen cannot be started: {repeated(str(error))}") from error
        out, trouble = await _finish(process, key, within)
    return process.returncode, out.decode("ascii", "replace"), trouble.decode("utf-8", "replace")


async def _finish(process: asyncio.subprocess.Process, key: Path, within: float) -> tuple[bytes, bytes]:
    try:
        async with asyncio.timeout(within):
            return await process.communicate()
    except TimeoutError as error:
        raise SigningError(f"{key} did not sign within {within:.0f} s (an agent that asks, or a token?)") from error
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


def _remedy(key: Path, trouble: str) -> str:
    if not key.exists():
        return (
            f"{key} cannot sign: there is no such file; name your key by --key or PAIRED_KEY, and have its public key "
            "in the file of operators"
        )
    if "passphrase" in trouble.lower():
        return f"{key} needs a passphrase: add it to the agent (ssh-add {key}), with {key}.pub beside it"
    if "agent" in trouble.lower():
        return f"the agent does not sign with {key}: {repeated(trouble)}"
    return f"{key} cannot sign: {repeated(trouble) or 'ssh-keygen gave no reason'}"


# The file of operators as it is now: read before each verification, so that a removed operator loses the right.
#
#     the file now                             what an engine does
#     has other lines                          judges every order on the board again, as an engine that starts: an order
#                                              that stands by a removed key is undone, one by an added key is taken up
#     cannot be read, is broken or unusable    looks only: no new order counts, whoever signed it, with an alarm while
# it
#                                              lasts; what stands here stays until its end
#     is usable again                          judges every order on the board again
#
# Not kept: the last good file, because it could hold a key that was revoked. Not undone: what stands, because a file
# that cannot be read proves no removal, and a namespace may be down meanwhile. `valid-before` in a line ends a key's
# right without an end of what it ordered before, and was seen before.
#
# The file is read whole each time. A change counts once two readings agree, because an editor may write it in parts.

READ_SECONDS: Final = 2.0
SETTLE_SECONDS: Final = 0.2
"""Seconds between two readings that have to agree."""
MAX_READINGS: Final = 5
MAX_VERDICTS: Final = 2_000
"""Signed orders whose verdict is remembered: every presence carries the same few."""


class CurrentSigners:
    """The operators of one engine.

    Args:
        path: the file of operators; None: none is configured, so the engine looks only.
        warn: called with a subject and a sentence for the operator.

    changed: called with the file's new hash; empty: the file is unusable.
    """

    def __init__(self, path: Path | None, *, warn: Callable[[str, str], object]) -> None:
        self.changed: Callable[[str], object] = lambda _hash: None
        self._path, self._warn = path, warn
        self._found: Signers | str = ""
        """The file's content, or why it is unusable."""
        self._reading: asyncio.Future[Signers | str] | None = None
        self._verdicts: dict[tuple[Order, str], Signer | None] = {}
        """By the signed order and the hash of the file of operators."""
        self._lock = asyncio.Lock()

    async def load(self) -> None:
        """Read the file for the first time."""
        if self._path is None:
            return
        self._found = await self._read(self._path)
        if isinstance(self._found, str):
            self._warn("fleet", self._found)
        else:
            self._report_skipped(self._found, ())

    async def refresh(self) -> None:
        """Read the file again; report a change."""
        if self._path is None:
            return
        async with self._lock:
            found = await self._read(self._path)
            if found == self._found:
                return
            found = await self._settle(self._path, found)
            before, self._found = self._found, found
        if found != before:
            self._report(before, found)
            self.changed(self.hash)

    def verify(self, order: Order) -> Signer | Unverified:
        """Return who signed an order, by the file as it was read last. Raises UnreadableError: it is no order.

        A key has to be valid when the order was issued: so every engine has the same verdict, whenever it reads it.
        The rules compare the key's end with the time by which the namespace dates the order first.
        """
        if self.trouble:
            return Unverified(why=self.trouble, is_unknown=True)
        return verify(order.signed.encode(), order.signature, self.signers, at=order.text.issued_at)

    async def verify_posts(self, posts: Sequence[Posted]) -> Sequence[Posted]:
        """Return posts with the signers of orders and of those that presences carry, by the file as it is now.

        Each order is verified once, off the event loop.
        """
        await self.refresh()
        if not any(isinstance(post.document, Order) or carried_by(post.document) for post in posts):
            return posts
        return await asyncio.to_thread(lambda: [self._verified(post) for post in posts])

    def _verified(self, post: Posted) -> Posted:
        if isinstance(post.document, Order):
            return replace(post, signer=self.verify(post.document))
        found = ((one, self._carried_by(one)) for one in carried_by(post.document))
        return replace(post, carried=tuple((one, signer) for one, signer in found if signer is not None))

    def _carried_by(self, one: Order) -> Signer | None:
        """Return who signed an order that a presence carries; None: no operator did, so it is nothing."""
        key = (one, self.hash)
        if key not in self._verdicts:
            if len(self._verdicts) >= MAX_VERDICTS:
                self._verdicts.clear()
            try:
                signer: Signer | Unverified | None = self.verify(one)
            except UnreadableError:
                signer = None
            self._verdicts[key] = signer if isinstance(signer, Signer) else None
        return self._verdicts[key]

    @property
    def signers(self) -> Signers | None:
        """Return the operators; None: the engine looks only."""
        return self._found if isinstance(self._found, Signers) else None

    @property
    def hash(self) -> str:
        """Return the hash of the file; empty: the engine looks only."""
        return self._found.hash if isinstance(self._found, Signers) else ""

    @property
    def trouble(self) -> str:
        """Return why the configured file is unusable; empty: it is usable, or none is configured."""
        return self._found if isinstance(self._found, str) else ""

    async def _read(self, path: Path) -> Signers | str:
        """Read the file off the event loop. One that hangs, as on a network's file system, occupies one thread."""
        if self._reading is None:
            self._reading = asyncio.ensure_future(asyncio.to_thread(_read_now, path))
        await asyncio.wait({self._reading}, timeout=READ_SECONDS)
        if not self._reading.done():
            return f"look only: {path} was not read within {READ_SECONDS:g} s"
        reading, self._reading = self._reading, None
        return reading.result()

    async def _settle(self, path: Path, found: Signers | str) -> Signers | str:
        for _ in range(MAX_READINGS):
            await asyncio.sleep(SETTLE_SECONDS)
            again = await self._read(path)
            if again == found:
                return found
            found = again
        return f"look only: {path} changed between {MAX_READINGS} readings: write it once"

    def _report(self, before: Signers | str, found: Signers | str) -> None:
        if isinstance(found, str):
            return  # an alarm
        if isinstance(before, str):
            self._warn("fleet", "the file of operators is usable again; every order on the board is judged again")
        else:
            self._warn(
                "fleet", f"the file of operators changed{_difference(before, found)}; every order is judged again"
            )
        self._report_skipped(found, before.skipped if isinstance(before, Signers) else ())

    def _report_skipped(self, found: Signers, before: tuple[str, ...]) -> None:
        for text in found.skipped:
            if text not in before:
                self._warn("fleet", text)


def _read_now(path: Path) -> Signers | str:
    if find_spec("cryptography") is None:
        return f"look only: orders need cryptography: pip install '{DISTRIBUTION}[fleet]'"
    try:
        return read_signers(path)
    except ConfigurationError as error:
        return str(error)


def _difference(before: Signers, found: Signers) -> str:
    """Return "; added ann; removed bob", by lines: a changed option is both."""
    added = [one.principals for one in found.lines if one not in before.lines]
    removed = [one.principals for one in before.lines if one not in found.lines]
    parts = (f"; {word} {repeated(', '.join(who))}" for word, who in (("added", added), ("removed", removed)) if who)
    return "".join(parts)
