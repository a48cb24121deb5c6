"""Forgeries and OpenSSH: it refuses them too, and what it signs with keys of other kinds does not count."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Final

import pytest

from paired_servicebus.core.fleet.fleet_documents import Unverified
from paired_servicebus.engine.fleet.order_signatures import NAMESPACE, Signers, read_signers, sign, verify
from tests.engine.fleet.forgeries import FORGERIES, OPERATORS, PEN, Forgery, genuine
from tests.engine.fleet.test_forgery_matrix import T0, signers, write_operators

__all__ = ["signers"]
pytestmark = pytest.mark.skipif(shutil.which("ssh-keygen") is None, reason="ssh-keygen is not installed")
SIGNED = b'{"a":1}'
STRICTER: Final = {"token not touched", "changed version", "scalar above the order", "long armor"}
"""Forgeries that OpenSSH accepts: an untouched token, version 0, a signature's second form, and lines behind it."""


@pytest.mark.parametrize("forgery", FORGERIES, ids=lambda one: one.name)
def test_openssh_refuses_each_signature_too(forgery: Forgery, tmp_path: Path, signers: Signers) -> None:
    """By the same lines, all of one principal."""
    forged = forgery.forge(genuine("force", T0))
    is_refused = isinstance(verify(forged.signed, forged.signature, signers, at=T0 + 1), Unverified)
    file = write_operators(tmp_path, re.sub(r"(?m)^[a-z-]+", "operator-a", OPERATORS))
    (tmp_path / "signature").write_text(forged.signature)
    command = ["ssh-keygen", "-Y", "verify", "-f", str(file), "-n", NAMESPACE, "-I", "operator-a", "-s", "signature"]
    done = subprocess.run(command, cwd=tmp_path, input=forged.signed, capture_output=True, check=False)
    assert (done.returncode == 0) == (not is_refused or forgery.name in STRICTER)


REAL: Final[dict[str, tuple[tuple[str, ...], str, str]]] = {
    "ed25519": (("-t", "ed25519"), "a {key}", ""),
    "ed25519 for orders": (("-t", "ed25519"), 'a namespaces="paired-order@1" {key}', ""),
    "ed25519 for git": (("-t", "ed25519"), 'a namespaces="git" {key}', "may not sign paired-order@1"),
    "ed25519 not named": (("-t", "ed25519"), f"a {PEN.line}", "is not in the file of operators"),
    "ed25519 valid earlier": (("-t", "ed25519"), 'a valid-before="20200101Z" {key}', "is no longer valid"),
    "ed25519 valid later": (("-t", "ed25519"), 'a valid-after="20990101Z" {key}', "is not valid yet"),
    "ed25519 of an authority": (("-t", "ed25519"), "a cert-authority {key}", "is not in the file of operators"),
    "rsa": (("-t", "rsa", "-b", "2048"), "a {key}", "is not in the file of operators"),
    "ecdsa": (("-t", "ecdsa"), "a {key}", "is not in the file of operators"),
}
"""Arguments of ssh-keygen, the line of its key, and why its signature does not count; empty: it counts."""


@pytest.mark.parametrize("kind", REAL)
async def test_what_ssh_keygen_signs(kind: str, tmp_path: Path) -> None:
    arguments, line, why = REAL[kind]
    key = make_key(tmp_path / "key", *arguments)
    file = write_operators(tmp_path, f"{line.format(key=key)}\noperator-a {PEN.line}\n")
    found = verify(SIGNED, await sign(SIGNED, tmp_path / "key"), read_signers(file), at=T0)
    assert getattr(found, "why", "").endswith(why)
    assert isinstance(found, Unverified) == bool(why)


async def test_a_certificate_of_ssh_keygen_does_not_count(tmp_path: Path) -> None:
    """The file names its authority: certificates are not supported."""
    authority = make_key(tmp_path / "authority", "-t", "ed25519")
    make_key(tmp_path / "key", "-t", "ed25519")
    command = ["ssh-keygen", "-q", "-s", "authority", "-I", "x", "-n", "a", "key.pub"]
    subprocess.run(command, cwd=tmp_path, check=True)
    (tmp_path / "key.pub").unlink()
    (tmp_path / "key-cert.pub").rename(tmp_path / "key.pub")
    file = write_operators(tmp_path, f"a cert-authority {authority}\noperator-a {PEN.line}\n")
    found = verify(SIGNED, await sign(SIGNED, tmp_path / "key"), read_signers(file), at=T0)
    assert isinstance(found, Unverified)
    assert "is not in the file of operators" in found.why


def make_key(path: Path, *arguments: str) -> str:
    subprocess.run(["ssh-keygen", "-q", *arguments, "-N", "", "-C", "", "-f", str(path)], check=True)
    return path.with_suffix(".pub").read_text().strip()
