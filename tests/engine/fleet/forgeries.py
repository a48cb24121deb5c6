"""Forged orders: one table of forgeries, made from a genuine order of any verb, and a file of operators with traps."""

from __future__ import annotations

import base64
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Final

from paired_servicebus.core.fleet.fleet_documents import OrderText, encode_order_text
from paired_servicebus.core.fleet.order_rules import to_type
from paired_servicebus.core.operator.actions import ACTIONS, BY_ID, FLEET_VERBS
from paired_servicebus.core.operator.targets import Scope
from tests.engine.fleet.pens import Pen, field

PEN, FOREIGN, GIT, NOT_ORDERS, AUTHORITY, EARLY, LATE = (Pen(seed) for seed in range(1, 8))
ENDED_AT: Final = 1_577_836_800.0
"""The end of the key LATE, 2020-01-01."""
UNTOUCHED: Final = Pen(8, is_token=True, flags=0)
OTHER_TYPES: Final = {
    kind: field(kind.encode()) + field(b"a key of another type")
    for kind in (
        "ssh-rsa",
        "ecdsa-sha2-nistp256",
        "sk-ecdsa-sha2-nistp256@openssh.com",
        "ssh-ed25519-cert-v01@openssh.com",
    )
}
DEGENERATE: Final = field(b"ssh-ed25519") + field(bytes(32))
"""A key for which anybody can sign."""
OPERATORS: Final = "\n".join(
    [
        f"operator-a {PEN.line}",
        f'git namespaces="git" {GIT.line}',
        f'not-orders namespaces="*,!paired-*" {NOT_ORDERS.line}',
        f"authority cert-authority {AUTHORITY.line}",
        f'early valid-after="20990101Z" {EARLY.line}',
        f'late valid-before="20200101Z" {LATE.line}',
        f"untouched {UNTOUCHED.line}",
        f"degenerate ssh-ed25519 {base64.b64encode(DEGENERATE).decode()}",
        *(f"other {kind} {base64.b64encode(key).decode()}" for kind, key in OTHER_TYPES.items()),
        "",
    ]
)
"""One genuine operator, and lines whose keys have no right."""
OVER_FLEET: Final = list(FLEET_VERBS)
NOT_OVER_FLEET: Final = [one.id for one in ACTIONS if one.id not in FLEET_VERBS]
TARGETS: Final = {
    Scope.ENTITY: ("payments",), Scope.ALL: (), Scope.QUEUE: ("0",), Scope.UNUSED: ("primary/x-servicebus-transfer/2",),
    Scope.DEAD_LETTERS: ("0/1",),
}  # fmt: skip


def genuine(verb_id: str, now: float, **changes: Any) -> OrderText:
    """Return an order that counts in the engine web-1 now."""
    verb = FLEET_VERBS.get(verb_id)
    scope = BY_ID[verb_id].scope
    lasts = 3600.0 if verb is not None and verb.stands else 72 * 3600.0
    chosen: dict[str, Any] = {
        "primary": "primary", "secondary": "secondary", "verb": verb_id, "scope": scope,
        "targets": TARGETS[scope], "engines": ("web-1",), "typed": "", "reach": 1, "why": "drill",
        "issued_at": now, "until": now + lasts, "seen": "ab",
    }  # fmt: skip
    text = OrderText(**chosen | changes)
    return text if "typed" in changes or verb is None else replace(text, typed=to_type(text, verb))


@dataclass(frozen=True, kw_only=True)
class Forged:
    """A forged order as it is posted. after: seconds after the genuine order's issue."""

    signed: bytes
    signature: str
    after: float = 1.0


@dataclass(frozen=True, kw_only=True)
class Forgery:
    """How an order is forged, and why it does not count.

    is_skipped: an engine cannot read it, so it skips and counts it; any other is answered by a refusal with the reason.
    """

    name: str
    forge: Callable[[OrderText], Forged]
    why: str
    is_skipped: bool = False


def honest(text: OrderText, pen: Pen = PEN, *, after: float = 1.0, **more: str) -> Forged:
    """Return an order that is not forged, if the pen is the operator's."""
    signed = encode_order_text(text)
    return Forged(signed=signed, signature=pen.sign(signed, **more), after=after)


def other_order(**changes: Any) -> Callable[[OrderText], Forged]:
    """Put a genuine signature of another order, which differs in one field, under the order."""

    def forge(text: OrderText) -> Forged:
        return Forged(signed=encode_order_text(text), signature=PEN.sign(encode_order_text(replace(text, **changes))))

    return forge


def raw(make: Callable[[bytes], bytes]) -> Callable[[OrderText], Forged]:
    """Let the operator sign bytes that are not an order of this version."""

    def forge(text: OrderText) -> Forged:
        signed = make(encode_order_text(text))
        return Forged(signed=signed, signature=PEN.sign(signed))

    return forge


def signature(make: Callable[[str], str]) -> Callable[[OrderText], Forged]:
    """Change the armored signature."""

    def forge(text: OrderText) -> Forged:
        found = honest(text)
        return replace(found, signature=make(found.signature))

    return forge


def blob(make: Callable[[bytes], bytes]) -> Callable[[OrderText], Forged]:
    """Change the binary signature."""

    def armored(text: str) -> str:
        begin, *lines, end = text.strip().splitlines()
        return "\n".join([begin, base64.b64encode(make(base64.b64decode("".join(lines)))).decode(), end]) + "\n"

    return signature(armored)


def flip(part: bytes, at: int = 0) -> Callable[[OrderText], Forged]:
    """Flip a bit of the binary signature, `at` bytes into the last occurrence of a part."""

    def make(data: bytes) -> bytes:
        place = data.rindex(part) + at
        return data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :]

    return blob(make)


def with_key(key: bytes) -> Callable[[bytes], bytes]:
    """Return a change that puts another key into a binary signature."""
    return lambda data: data.replace(field(PEN.key), field(key))


def under_the_operators_key(text: OrderText) -> Forged:
    """Sign with a foreign key, and name the operator's."""
    signed = encode_order_text(text)
    armored = FOREIGN.sign(signed)
    blob_ = base64.b64decode("".join(armored.splitlines()[1:-1])).replace(field(FOREIGN.key), field(PEN.key))
    begin, *_, end = armored.strip().splitlines()
    return Forged(signed=signed, signature=f"{begin}\n{base64.b64encode(blob_).decode()}\n{end}\n")


def _more_than_the_order(data: bytes) -> bytes:
    """Add the group's order to the signature's scalar: the same signature in other bytes."""
    order = 2**252 + 27742317777372353535851937790883648493
    scalar = int.from_bytes(data[-32:], "little") + order
    return data[:-32] + scalar.to_bytes(32, "little")


UNFIT: Final = "its signature does not fit its bytes"
UNKNOWN_KEY: Final = "is not in the file of operators"
UNREADABLE: Final = "its signature cannot be read: "
RAW_KEY: Final = PEN.key[-32:]

FORGERIES: Final = [
    # who signed
    Forgery(name="unsigned", forge=signature(lambda _: ""), why="it is not signed"),
    Forgery(name="foreign key", forge=lambda text: honest(text, FOREIGN), why=UNKNOWN_KEY),
    Forgery(name="other namespace", forge=lambda text: honest(text, namespace="git"), why="its signature is for 'git'"),
    Forgery(name="empty namespace", forge=lambda text: honest(text, namespace=""), why="its signature is for ''"),
    Forgery(name="line for git", forge=lambda text: honest(text, GIT), why="may not sign paired-order@1"),
    Forgery(name="line without ours", forge=lambda text: honest(text, NOT_ORDERS), why="may not sign paired-order@1"),
    Forgery(name="authority's line", forge=lambda text: honest(text, AUTHORITY), why=UNKNOWN_KEY),
    Forgery(name="valid later", forge=lambda text: honest(text, EARLY), why="is not valid yet"),
    Forgery(name="valid earlier", forge=lambda text: honest(text, LATE), why="is no longer valid"),
    Forgery(
        name="dated back by an ended key",
        forge=lambda text: honest(replace(text, issued_at=ENDED_AT - 1, until=ENDED_AT + 3600), LATE),
        why="it is first seen after its key's end at",
    ),
    Forgery(name="token not touched", forge=lambda text: honest(text, UNTOUCHED), why="its token was not touched"),
    *(
        Forgery(name=f"{kind} in the file", forge=blob(with_key(key)), why=UNKNOWN_KEY)
        for kind, key in OTHER_TYPES.items()
    ),
    Forgery(name="degenerate key in the file", forge=blob(with_key(DEGENERATE)), why=UNKNOWN_KEY),
    Forgery(name="operator's key on a foreign signature", forge=under_the_operators_key, why=UNFIT),
    # what was signed: a genuine signature of an order that differs in one field
    *(
        Forgery(name=f"changed {name}", forge=other_order(**{name: value}), why=UNFIT)
        for name, value in {
            "verb": "other",
            "scope": "other",
            "targets": ("other",),
            "engines": ("web-9",),
            "typed": "other",
            "why": "other",
            "issued_at": 1.0,
            "until": 1.0,
            "reach": 7,
            "seen": "other",
            "primary": "other",
            "secondary": "other",
        }.items()
    ),
    # the signature's bytes
    Forgery(name="changed magic", forge=flip(b"SSHSIG"), why=f"{UNREADABLE}it is not an SSH signature of version 1"),
    Forgery(name="changed version", forge=flip(b"SSHSIG", 9), why=f"{UNREADABLE}it is not an SSH signature of version"),
    Forgery(name="changed key", forge=flip(RAW_KEY), why=UNKNOWN_KEY),
    Forgery(
        name="changed name of the namespace", forge=flip(b"paired-order@1"), why="its signature is for 'qaired-order@1'"
    ),
    Forgery(name="changed hash", forge=flip(b"sha512"), why=f"{UNREADABLE}its hash is neither SHA-256 nor SHA-512"),
    Forgery(name="other hash", forge=blob(lambda data: data.replace(b"sha512", b"sha256")), why=UNFIT),
    Forgery(
        name="changed type", forge=flip(b"ssh-ed25519"), why=f"{UNREADABLE}its key and its signature are of two types"
    ),
    Forgery(name="changed point", forge=flip(b"ssh-ed25519", 11 + 4), why=UNFIT),
    Forgery(
        name="changed scalar", forge=blob(lambda data: data[:-32] + bytes([data[-32] ^ 1]) + data[-31:]), why=UNFIT
    ),
    Forgery(name="scalar above the order", forge=blob(_more_than_the_order), why=UNFIT),
    Forgery(name="bytes after it", forge=blob(lambda data: data + b"x"), why=f"{UNREADABLE}bytes follow its end"),
    Forgery(name="cut short", forge=blob(lambda data: data[:-1]), why=f"{UNREADABLE}it is truncated"),
    # the armor
    Forgery(
        name="other armor",
        forge=signature(lambda text: text.replace("SSH", "PGP")),
        why=f"{UNREADABLE}it is not an SSH",
    ),
    Forgery(
        name="no end", forge=signature(lambda text: text[: text.index("-----END")]), why=f"{UNREADABLE}it is not an SSH"
    ),
    Forgery(
        name="no base64",
        forge=signature(lambda text: text.replace("U1NI", "U1N*")),
        why=f"{UNREADABLE}it is not base64",
    ),
    Forgery(name="long armor", forge=signature(lambda text: text + "\n" * 4096), why=f"{UNREADABLE}it is too long"),
    # genuine signatures at the wrong time or place
    Forgery(name="early", forge=lambda text: honest(text, after=-61.0), why="it was issued 61 s after it was posted"),
    Forgery(
        name="too long",
        forge=lambda text: honest(replace(text, until=text.issued_at + 3e5)),
        why="stands for 72 h at most",
    ),
    Forgery(name="no end", forge=lambda text: honest(replace(text, until=1.0)), why="ends before it begins"),
    Forgery(
        name="other primary", forge=lambda text: honest(replace(text, primary="q")), why="it is for another pairing"
    ),
    Forgery(
        name="other secondary", forge=lambda text: honest(replace(text, secondary="q")), why="it is for another pairing"
    ),
    # bytes that are not an order of this version
    Forgery(
        name="over long",
        forge=raw(lambda signed: signed.replace(b'"why":"drill"', b'"why":"' + b"x" * 70_000 + b'"')),
        why="are allowed",
        is_skipped=True,
    ),
    Forgery(
        name="key twice",
        forge=raw(lambda signed: signed[:-1] + b',"why":"drill"}'),
        why="the order has a key twice",
        is_skipped=True,
    ),
    Forgery(name="no order", forge=raw(lambda _: b'{"v":1}'), why="is missing or has the wrong form", is_skipped=True),
    Forgery(name="no JSON", forge=raw(lambda _: b"payments"), why="is not JSON", is_skipped=True),
    Forgery(name="newer", forge=raw(lambda signed: signed.replace(b'"v":1', b'"v":2')), why="this engine is older"),
]
