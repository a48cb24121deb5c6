"""Signatures of orders: fixed vectors of ssh-keygen, a round trip with it, and a matrix of forgeries."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paired_servicebus.core.errors import ConfigurationError, UnreadableError
from paired_servicebus.core.fleet.fleet_documents import Signer, Unverified
from paired_servicebus.engine.fleet.order_signatures import (
    NAMESPACE,
    Signers,
    SigningError,
    SshSignature,
    check_key,
    is_valid,
    parse_line,
    parse_signature,
    read_signers,
    sign,
    verify,
)
from tests.engine.fleet.pens import Pen

T0 = 1_800_000_000.0
KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAvUVeSiTPBGhoWqDNciFAM4dsCY8o+JYt6U3f6EHSdN"
SIGNED = b'{"a":1}'
VECTOR = """-----BEGIN SSH SIGNATURE-----
U1NIU0lHAAAAAQAAADMAAAALc3NoLWVkMjU1MTkAAAAgC9RV5KJM8EaGhaoM1yIUAzh2wJ
jyj4li3pTd/oQdJ00AAAAOcGFpcmVkLW9yZGVyQDEAAAAAAAAABnNoYTUxMgAAAFMAAAAL
c3NoLWVkMjU1MTkAAABABr+3hrbROhdD8XgpVOLkEVclAyAqRRf0CuEj8jZUG+0V90//eD
3NmxAazv5puVC4fzcSp8xD81w797+9O1QsCg==
-----END SSH SIGNATURE-----
"""
"""Made by ssh-keygen -Y sign -n paired-order@1."""
SSH_KEYGEN = pytest.mark.skipif(shutil.which("ssh-keygen") is None, reason="ssh-keygen is not installed")
NO_AGENT = 2
"""Exit status of ssh-add while no agent answers."""

ASCII = st.characters(max_codepoint=0x2FF)
"""Hypothesis needs seconds to prepare all of Unicode."""


def signers(*lines: str) -> Signers:
    return Signers(lines=tuple(parse_line(one) for one in lines), hash="h")


PEN, FOREIGN = Pen(1), Pen(2)
SIGNERS = signers(f"operator-a {PEN.line}")


def test_a_vector_of_ssh_keygen_verifies() -> None:
    found = verify(SIGNED, VECTOR, signers(f'ops@x namespaces="paired-*" {KEY} comment'), at=T0)
    assert isinstance(found, Signer)
    assert found.by == "ops@x"
    assert found.fingerprint.startswith("SHA256:")


P = 2**255 - 19
D = -121665 * pow(121666, -1, P) % P


def doubled(point: tuple[int, int]) -> tuple[int, int]:
    """Twice a point of the curve -x² + y² = 1 + dx²y²."""
    x, y = point
    xy = D * x * x * y * y
    return 2 * x * y * pow(1 + xy, -1, P) % P, (y * y + x * x) * pow(1 - xy, -1, P) % P


def x_of(y: int) -> int | None:
    """The even x of a point; None: there is none."""
    square = (y * y - 1) * pow(D * y * y + 1, -1, P) % P
    x = pow(square, (P + 3) // 8, P)
    x = x if x * x % P == square else x * pow(2, (P - 1) // 4, P) % P
    return min(x, P - x) % P if x * x % P == square else None


def degenerate_keys() -> list[bytes]:
    """All encodings of the points of order 1, 2, 4 and 8, and non-canonical ones of any point."""
    order_8 = 0x7A03AC9277FDC74EC6CC392CFA53202A0F67100D760B3CBA4FD84D3D706A17C7
    small = {0, 1, P - 1, order_8, P - order_8}
    for y in small:
        x = x_of(y)
        assert x is not None
        assert doubled(doubled(doubled((x, y)))) == (0, 1)
    encoded = small | {P + y for y in range(19)}
    return [(y | sign << 255).to_bytes(32, "little") for y in sorted(encoded) for sign in (0, 1)]


@pytest.mark.parametrize("raw", degenerate_keys(), ids=lambda raw: raw.hex()[:8] + raw.hex()[-2:])
@pytest.mark.parametrize("kind", [b"ssh-ed25519", b"sk-ssh-ed25519@openssh.com"])
def test_a_degenerate_point_is_no_key(raw: bytes, kind: bytes) -> None:
    fields = (kind, raw, b"ssh:") if kind.startswith(b"sk-") else (kind, raw)
    with pytest.raises(UnreadableError, match="degenerate point"):
        check_key(b"".join(len(one).to_bytes(4, "big") + one for one in fields))


def test_no_signature_of_the_identity_counts() -> None:
    """With the identity as key, R = S·B verifies for every message; S = 0 needs no arithmetic."""
    identity = (1).to_bytes(32, "little")

    def field(data: bytes) -> bytes:
        return len(data).to_bytes(4, "big") + data

    key = field(b"ssh-ed25519") + field(identity)
    made = field(b"ssh-ed25519") + field(identity + bytes(32))
    found = SshSignature(key=key, namespace=NAMESPACE.encode(), hash_name=b"sha512", signature=made)
    with pytest.raises(UnreadableError, match="degenerate point"):
        is_valid(found, SIGNED)


@pytest.mark.parametrize(
    ("pen", "why"), [(Pen(3, is_token=True), ""), (Pen(3, is_token=True, flags=0), "its token was not touched")]
)
def test_a_fido_key_signs_only_if_touched(pen: Pen, why: str) -> None:
    found = verify(SIGNED, pen.sign(SIGNED), signers(f"a {pen.line}"), at=T0)
    assert found == (Unverified(why=f"its signature cannot be read: {why}") if why else found)
    assert isinstance(found, Unverified if why else Signer)


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ('valid-after="20200101Z",valid-before="20400101000000Z"', ""),
        ('valid-before="20200101"', "is no longer valid"),
        ('valid-after="204001010000Z"', "is not valid yet"),
        ('namespaces="git,file"', "may not sign paired-order@1"),
        ('namespaces="*,!paired-*"', "may not sign paired-order@1"),
        ('namespaces="git,paired-order@1"', ""),
    ],
)
def test_the_options_of_a_line(options: str, why: str) -> None:
    found = verify(SIGNED, VECTOR, signers(f"a {options} {KEY}"), at=T0)
    assert isinstance(found, Unverified) == bool(why)
    assert isinstance(found, Signer) or found.why.endswith(why)


# -- hostile input ----------------------------------------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(st.one_of(st.text(ASCII, max_size=200), st.integers(0, 300).map(lambda at: VECTOR[:at] + VECTOR[at + 1 :])))
def test_a_hostile_signature_raises_nothing(text: str) -> None:
    found = verify(SIGNED, text, signers(f"a {KEY}"), at=T0)
    assert isinstance(found, Unverified) or text.strip().replace("\n", "") == VECTOR.strip().replace("\n", "")


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_no_changed_byte_of_a_signature_verifies(data: st.DataObject) -> None:
    blob = bytearray(base64.b64decode("".join(VECTOR.splitlines()[1:-1])))
    blob[data.draw(st.integers(0, len(blob) - 1))] ^= data.draw(st.integers(1, 255))
    armored = f"-----BEGIN SSH SIGNATURE-----\n{base64.b64encode(blob).decode()}\n-----END SSH SIGNATURE-----"
    assert isinstance(verify(SIGNED, armored, signers(f"a {KEY}"), at=T0), Unverified)


@settings(max_examples=60, deadline=None)
@given(
    st.one_of(
        st.text(ASCII, max_size=80), st.text(ASCII, max_size=20).map(lambda text: f'a valid-after="{text}" {KEY}')
    )
)
def test_a_hostile_line_raises_our_error(line: str) -> None:
    try:
        parse_line(line)
    except UnreadableError:
        pass


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"", "has no usable ed25519 key"),
        (b"# a comment\n", "has no usable ed25519 key"),
        (b"\0\xff" * 500, "has no usable ed25519 key"),
        (b"a ssh-rsa AAAA\n", "ssh-rsa is not supported; use ed25519 or sk-ed25519"),
        (b"a ecdsa-sha2-nistp256 AAAA\n", "ecdsa-sha2-nistp256 is not supported"),
        (f"a cert-authority {KEY}\n".encode(), "certificates are not supported"),
        (f"a {KEY[:60]}\n".encode(), "has no usable ed25519 key"),
        (b"x" * (256 * 1024 + 1), "is longer than 262,144 bytes"),
    ],
)
def test_a_file_without_a_usable_key_means_look_only(tmp_path: Path, content: bytes, sentence: str) -> None:
    path = tmp_path / "operators"
    path.write_bytes(content)
    path.chmod(0o600)
    with pytest.raises(ConfigurationError, match=r"^look only: ") as raised:
        read_signers(path)
    assert sentence in str(raised.value)
    assert "\n" not in str(raised.value)


def test_a_missing_an_odd_and_a_writable_file_mean_look_only(tmp_path: Path) -> None:
    path = tmp_path / "operators"
    with pytest.raises(ConfigurationError, match="there is no file of operators"):
        read_signers(path)
    with pytest.raises(ConfigurationError, match=r"^look only"):
        read_signers(tmp_path)
    path.write_text(f"a {KEY}\n")
    path.chmod(0o666)
    with pytest.raises(ConfigurationError, match="is writable by every user, so another user could name operators"):
        read_signers(path)


def test_bad_lines_are_skipped_and_reported_and_the_hash_is_the_files(tmp_path: Path) -> None:
    path = tmp_path / "operators"
    path.write_text(f'# operators\n\nold ssh-rsa AAAA\n"ann,ben" {KEY} laptop\n')
    path.chmod(0o600)
    found = read_signers(path)
    assert [one.principals for one in found.lines] == ["ann,ben"]
    assert found.skipped == (f"line 3 of {path} is not used: ssh-rsa is not supported; use ed25519 or sk-ed25519",)
    assert found.hash == hashlib.sha256(path.read_bytes()).hexdigest()[:16]
    assert verify(SIGNED, VECTOR, None, at=T0) == Unverified(
        why="look only: no file of operators is configured", looks_only=True
    )


# -- the real ssh-keygen ----------------------------------------------------------------------------------------------


def make_key(path: Path, passphrase: str = "") -> str:
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", passphrase, "-C", "", "-f", path], check=True)
    return path.with_suffix(".pub").read_text().strip()


@SSH_KEYGEN
async def test_a_round_trip_with_ssh_keygen(tmp_path: Path) -> None:
    public = make_key(tmp_path / "key")
    signature = await sign(SIGNED, tmp_path / "key")
    assert parse_signature(signature).namespace == NAMESPACE.encode()
    assert isinstance(verify(SIGNED, signature, signers(f"a {public}"), at=T0), Signer)
    (tmp_path / "allowed").write_text(f"operator-a {PEN.line}\n")
    (tmp_path / "sig").write_text(PEN.sign(SIGNED))
    process = await asyncio.create_subprocess_exec(
        *("ssh-keygen", "-Y", "verify", "-f", "allowed", "-I", "operator-a", "-n", NAMESPACE, "-s", "sig"),
        cwd=tmp_path,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.DEVNULL,
    )
    await process.communicate(SIGNED)
    assert process.returncode == 0, "and ssh-keygen verifies our test's pen"


@SSH_KEYGEN
async def test_a_passphrase_does_not_hang(tmp_path: Path) -> None:
    make_key(tmp_path / "key", "secret")
    with pytest.raises(SigningError, match="needs a passphrase: add it to the agent"):
        await sign(SIGNED, tmp_path / "key", within=20)


@SSH_KEYGEN
async def test_a_key_that_is_missing_has_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(SigningError, match="none cannot sign: there is no such file; name your key by --key or PAIRED"):
        await sign(SIGNED, tmp_path / "none")


async def test_signing_without_ssh_keygen_and_a_signer_that_hangs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SigningError, match="needs ssh-keygen, which is not installed"):
        await sign(SIGNED, tmp_path / "key")
    slow = tmp_path / "ssh-keygen"
    slow.write_text("#!/bin/sh\nexec /bin/sleep 60\n")
    slow.chmod(0o700)
    with pytest.raises(SigningError, match="did not sign within 0 s"):
        await sign(SIGNED, tmp_path / "key", within=0.05)


@SSH_KEYGEN
@pytest.mark.skipif(shutil.which("ssh-agent") is None, reason="ssh-agent is not installed")
@pytest.mark.parametrize(("named", "passphrase"), [("key.pub", ""), ("key", "secret")])
async def test_an_agent_signs_for_a_public_key_and_for_one_with_a_passphrase(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, named: str, passphrase: str
) -> None:
    public = make_key(tmp_path / "key")
    agent = subprocess.Popen(["ssh-agent", "-D", "-a", tmp_path / "agent"], stdout=subprocess.DEVNULL)
    monkeypatch.setenv("SSH_AUTH_SOCK", str(tmp_path / "agent"))
    try:
        while subprocess.run(["ssh-add", "-l"], capture_output=True, check=False).returncode == NO_AGENT:
            await asyncio.sleep(0.01)
        subprocess.run(["ssh-add", "-q", tmp_path / "key"], check=True)
        if passphrase:  # the agent has the key already
            subprocess.run(["ssh-keygen", "-q", "-p", "-P", "", "-N", passphrase, "-f", tmp_path / "key"], check=True)
        else:
            (tmp_path / "key").unlink()
        signature = await sign(SIGNED, tmp_path / named)
    finally:
        agent.terminate()
        agent.wait()
    assert isinstance(verify(SIGNED, signature, signers(f"a {public}"), at=T0), Signer)
    with pytest.raises(SigningError, match=r"key\.pub"):
        await sign(SIGNED, tmp_path / "key.pub")
