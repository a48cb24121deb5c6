"""The signatures of orders: SSHSIG in the namespace `paired-order@1`, verified by the file of operators.

Verification is our own; signing asks `ssh-keygen`, which knows key files, agents and FIDO tokens. It gets a deadline,
no terminal and no password program, so that a passphrase prompt ends in a sentence and never hangs.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
from pathlib import Path
from typing import Final

from paired_servicebus.core.errors import PairedError, UnreadableError
from paired_servicebus.core.fleet.fleet_documents import Signer, Unverified
from paired_servicebus.core.text.untrusted_text import repeated
from paired_servicebus.engine.fleet.signers_file import AllowedSigner, Signers, matches
from paired_servicebus.engine.fleet.ssh_signatures import fingerprint, is_valid, parse_signature
from paired_servicebus.extras import DISTRIBUTION

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
        at: the time that validity is compared with: the order's enqueued time.
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
    for line, fault in zip(lines, faults, strict=True):
        if not fault:
            return Signer(by=repeated(line.principals), fingerprint=mark)
    return Unverified(why=f"its key {mark} {faults[0]}")


def _fault(line: AllowedSigner, at: float) -> str:
    if line.namespaces and not matches(line.namespaces, NAMESPACE):
        return f"may not sign {NAMESPACE}"
    if line.valid_after is not None and at < line.valid_after:
        return "is not valid yet"
    return "is no longer valid" if line.valid_before is not None and at > line.valid_before else ""


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
