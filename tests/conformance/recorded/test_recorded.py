"""Plays the requests of recorded exchanges in their order, and compares the answers with the facts of the recordings.

`exchanges.json` has a line for each exchange: the request, the status, whether an ETag and HSTS were there, the
envelope's children and addresses, the elements with their formats and values, and a refusal's form. A form has places
in braces: `{any}` text, `{guid}`, `{n}` and `{number}` digits, `{stamp}` a time, else a word of the request.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote
from xml.etree import ElementTree

import pytest

from servicebus_amqp.access import sign
from servicebus_sandbox.access.authorization import Authorization, root_rule
from servicebus_sandbox.atom.management_api import AtomRequest, AtomResponse, ManagementApi
from servicebus_sandbox.broker.entity_settings import Tier
from servicebus_sandbox.broker.topology.namespace import BrokerNamespace
from servicebus_sandbox.serving.amqp_conditions import RefusalLog

HOST: Final = "contoso.test:5671"
EXCHANGES: Final = json.loads(Path(__file__).with_name("exchanges.json").read_text(encoding="utf-8"))
IDS: Final = [exchange["id"] for exchange in EXCHANGES]
OTHERWISE: Final[Mapping[str, str]] = {
    "chunked bodies": "an answer has a Content-Length; no client depends on the framing",
    "7 digits of CreatedAt some time later": "three digits always: both forms were recorded, and clients read both",
    "UpdatedAt up to 600 ms behind CreatedAt": "equal, as the service shows them later",
    "SizeInBytes with overhead": "the sum of the encoded messages: the service's overhead is not documented",
    "numbers of nodes in tracking ids": "always 1: they name machines of the service",
    "a closing tag of the namespace's link": "the short form: XML has one meaning for both",
}
"""What stays different by intent, with its reason; no exchange here shows it."""

SPACES: Final = {
    "atom": "http://www.w3.org/2005/Atom",
    "connect": "http://schemas.microsoft.com/netservices/2010/10/servicebus/connect",
    "counts": "http://schemas.microsoft.com/netservices/2011/06/servicebus",
}
TYPE: Final = "{http://www.w3.org/2001/XMLSchema-instance}type"
_NAMES: Final = ("Active", "DeadLetter", "Scheduled", "Transfer", "TransferDeadLetter")
STATES: Final = [f"{name}MessageCount" for name in _NAMES]
STAMP: Final = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d"
FORMATS: Final = {
    "t0": f"{STAMP}Z",
    "t3": rf"{STAMP}(\.\d{{0,2}}[1-9])?Z",
    "t7": rf"{STAMP}(\.\d{{0,6}}[1-9])?Z",
    "t1z": "0001-01-01T00:00:00Z",
    "t1": "0001-01-01T00:00:00",
    "bool": "true|false",
    "int": r"-?\d+",
    "dur": r"-?P(\d+D)?(T(\d+H)?(\d+M)?(\d+(\.\d*[1-9])?S)?)?",
    "text": r"[\s\S]*",
    "list": r"\s*",
}
PARTS: Final = {"any": r"[\s\S]*?", "guid": r"[0-9a-f-]{36}", "n": r"\d+", "number": r"\d+", "stamp": STAMP}


def matches(form: str, text: str, words: Mapping[str, str]) -> bool:
    parts = re.split(r"\{(\w+)\}", form.replace("\r\n", "\n"))
    pattern = "".join(
        (PARTS.get(part) or re.escape(words[part])) if place % 2 else re.escape(part)
        for place, part in enumerate(parts)
    )
    return re.fullmatch(pattern, text) is not None


def filled(form: str, words: Mapping[str, str]) -> str:
    return re.sub(r"\{(\w+)\}", lambda found: words.get(found[1], found[0]), form)


def local(element: ElementTree.Element) -> str:
    return element.tag.rpartition("}")[2]


@dataclass
class Player:
    """A namespace of each tier, and the differences of each exchange."""

    spaces: dict[str, ManagementApi] = field(default_factory=dict)
    found: dict[str, list[str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for tier in (Tier.STANDARD, Tier.PREMIUM):
            namespace = BrokerNamespace(tier.value.lower(), clock=time.time, tier=tier)
            self.spaces[tier.value] = ManagementApi(
                namespace,
                authorization=Authorization(namespace, [root_rule("Root", "key")]),
                clock=time.time,
                changed=lambda: None,
                complaints=RefusalLog("recorded"),
            )
        for exchange in EXCHANGES:
            self.found[exchange["id"]] = list(self.play(exchange))

    def play(self, exchange: dict[str, Any]) -> Iterator[str]:
        tier = exchange.get("tier", "Standard")
        words = {"host": HOST, "namespace": tier.lower(), "queue": "rq", "topic": "rt", "sub": "rs", "none": "gone"}
        method, _, target = filled(exchange["ask"], words).partition(" ")
        path, _, query = target.partition("?")
        plain = unquote(path).lstrip("/")
        words |= {"path": path, "query": query, "plain": plain, "name": plain, "version": query_version(query)}
        headers = {"host": HOST} | ({"if-match": exchange["if_match"]} if "if_match" in exchange else {})
        if exchange.get("token") != "none":
            key = "other" if exchange.get("token") == "bad" else "key"
            headers["authorization"] = sign(f"https://{HOST}", "Root", key, time.time() + 60)
        body = sent(exchange["send"], words) if "send" in exchange else b""
        answer = self.spaces[tier].answer(AtomRequest(method=method, target=target, headers=headers, body=body))
        if answer.status != exchange["status"]:
            yield f"status {answer.status}: {answer.body[:300]!r}"
            return
        yield from check_headers(exchange, answer)
        if "error" in exchange:
            detail = ElementTree.fromstring(answer.body).findtext("Detail") or ""
            if not matches(exchange["error"], detail, words):
                yield f"refusal {detail!r}, wanted {exchange['error']!r}"
        elif "children" not in exchange:
            if answer.body:
                yield f"a body: {answer.body[:100]!r}"
        else:
            yield from check_envelope(exchange, ElementTree.fromstring(answer.body), words, answer.body)


def query_version(query: str) -> str:
    return query.partition("api-version=")[2].partition("&")[0]


def sent(send: dict[str, Any], words: Mapping[str, str]) -> bytes:
    kind = send["kind"]
    elements = "".join(f"<{name}>{filled(value, words)}</{name}>" for name, value in send.get("elements", ()))
    return (
        f'<entry xmlns="{SPACES["atom"]}"><content type="application/xml"><{kind} xmlns="{SPACES["connect"]}" '
        f'xmlns:i="{TYPE[1:-5]}">{elements}{filled(send.get("xml", ""), words)}</{kind}></content></entry>'
    ).encode()


def check_headers(exchange: dict[str, Any], answer: AtomResponse) -> Iterator[str]:
    kind = "error" if "error" in exchange else exchange.get("children", "").partition(" ")[0]
    wanted = {"error": "application/xml", "title": "application/atom+xml;type=feed", "id": "application/atom+xml;type="}
    if not answer.headers.get("Content-Type", "").startswith(wanted.get(kind, "")):
        yield f"Content-Type {answer.headers.get('Content-Type')}"
    if bool(re.fullmatch(r"6\d{13}0000", answer.headers.get("ETag", ""))) is not exchange["etag"]:
        yield f"ETag {answer.headers.get('ETag')}"
    if ("Strict-Transport-Security" in answer.headers) is not exchange["hsts"]:
        yield "Strict-Transport-Security"
    if answer.body.startswith(b"<?xml"):
        yield "an XML declaration"


def check_envelope(
    exchange: dict[str, Any], root: ElementTree.Element, words: Mapping[str, str], raw: bytes
) -> Iterator[str]:
    yield from check_entry(root, exchange.get("envelope", {}) | {"children": exchange["children"]}, words)
    entries = root.findall("atom:entry", SPACES) if local(root) == "feed" else [root]
    if "entry" in exchange:
        name = entries[0].findtext("atom:title", "", SPACES)
        yield from check_entry(entries[0], exchange["entry"], {**words, "entity": name, "last": name})
    for entry in entries[:1]:
        described = entry.find("atom:content", SPACES)
        if described is not None and "echo" in exchange:
            wanted = [(name, re.sub(r"(\.\d*?)0+Z$", r"\1Z", filled(value, words))) for name, value in pairs(exchange)]
            if wanted != [(local(child), child.text or "") for child in described[0]]:
                yield f"echo {[local(child) for child in described[0]]}"
        elif described is not None and "elements" in exchange:
            yield from check_elements(exchange["elements"], described[0], words, raw, in_list="entry" in exchange)


def pairs(exchange: dict[str, Any]) -> list[tuple[str, str]]:
    return exchange["send"]["elements"]


def check_entry(entry: ElementTree.Element, wanted: dict[str, str], words: Mapping[str, str]) -> Iterator[str]:
    children = " ".join(dict.fromkeys(map(local, entry)))
    if children != wanted["children"]:
        yield f"children {children}, wanted {wanted['children']}"
    links = {link.get("rel"): link.get("href") for link in entry.findall("atom:link", SPACES)}
    seen = {
        "id": entry.findtext("atom:id", "", SPACES),
        "title": entry.findtext("atom:title", "", SPACES),
        "generator": entry.findtext("atom:generator", "", SPACES),
        "base": entry.get("{http://www.w3.org/XML/1998/namespace}base", ""),
        "self": links.get("self", ""),
        "next": links.get("next", ""),
    }
    for name, text in seen.items():
        if name in wanted and not matches(wanted[name], text, words):
            yield f"{name} {text!r}, wanted {filled(wanted[name], words)!r}"
    for name in ("published", "updated"):
        text = entry.findtext(f"atom:{name}", None, SPACES)
        if text is not None and not re.fullmatch(FORMATS["t0"], text):
            yield f"{name} {text}"


def check_elements(
    wanted: list[Any], parent: ElementTree.Element, words: Mapping[str, str], raw: bytes, *, in_list: bool
) -> Iterator[str]:
    names = [one["name"] if isinstance(one, dict) else one.split(" ")[0] for one in wanted]
    if names != list(map(local, parent)):
        yield f"{local(parent)} has {list(map(local, parent))}, wanted {names}"
        return
    for one, child in zip(wanted, parent, strict=True):
        if isinstance(one, dict):
            yield from check_node(one, child, words, raw)
            continue
        name, form, value = (*one.split(" ", 2), "")[:3]
        text = child.text or ""
        if form.startswith("counts:"):
            if [count.tag for count in child] != [f"{{{SPACES['counts']}}}{state}" for state in STATES]:
                yield f"{name}: {[count.tag for count in child]}"
            if f"xmlns:{form.partition(':')[2]}=".encode() not in raw:
                yield f"{name}: its prefix is not {form}"
        elif not re.fullmatch(FORMATS[form], text) or (value and not in_list and text != filled(value, words)):
            yield f"{name} {text!r}, wanted {form} {value}"


def check_node(
    wanted: dict[str, Any], node: ElementTree.Element, words: Mapping[str, str], raw: bytes
) -> Iterator[str]:
    if "type" in wanted and node.get(TYPE) != wanted["type"]:
        yield f"{wanted['name']} is {node.get(TYPE)}"
    if "texts" in wanted and [child.text for child in node] != wanted["texts"]:
        yield f"{wanted['name']}: {[child.text for child in node]}"
    if "pairs" in wanted:
        values = [(pair.findtext("connect:Key", "", SPACES), pair.find("connect:Value", SPACES)) for pair in node]
        seen = [[key, one.get(TYPE, "").partition(":")[2], one.text or ""] for key, one in values if one is not None]
        if seen != wanted["pairs"]:
            yield f"{wanted['name']}: {seen}"
        if b"http://schemas.microsoft.com/2003/10/Serialization/" not in raw:
            yield "a duration's type is not in its namespace"
    elif "texts" not in wanted:
        yield from check_elements(wanted.get("children", []), node, words, raw, in_list=False)


@pytest.fixture(scope="module")
def player() -> Player:
    return Player()


@pytest.mark.parametrize("name", IDS)
def test_an_exchange_is_as_it_was_recorded(player: Player, name: str) -> None:
    """SPEC.md section 12: "The sandbox's administration answers as the service was recorded: names and order of
    elements, formats of times, addresses, the ETag before the request, and refusals with a tracking id."."""
    assert player.found[name] == []


def test_the_check_finds_a_difference() -> None:
    entry = ElementTree.fromstring(f'<entry xmlns="{SPACES["atom"]}"><id>x</id><updated>2020-01-01</updated></entry>')
    assert list(check_entry(entry, {"children": "id title", "id": "y{n}"}, {})) == [
        "children id updated, wanted id title",
        "id 'x', wanted 'y{n}'",
        "updated 2020-01-01",
    ]
    assert all(OTHERWISE.values())
