"""A secret in any usual spelling survives no text; a text without one stays as it is."""

from __future__ import annotations

import base64
import json
import time
import unicodedata
from collections.abc import Callable
from typing import Final
from urllib.parse import quote, unquote

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from paired_servicebus.core.text.masking import MASK, masked
from paired_servicebus.core.text.untrusted_text import escape_json, harmless, indent_lines, one_line

KEYS: Final = st.binary(min_size=32, max_size=32).map(lambda raw: base64.b64encode(raw).decode())
CLIENT_SECRETS: Final = st.text("abcXYZ019~._-", min_size=20, max_size=40)
PASSWORDS: Final = st.text("abcXYZ019~._-!*@+", min_size=12, max_size=24)
PARTS: Final = st.binary(min_size=12, max_size=40).map(lambda raw: base64.urlsafe_b64encode(raw).decode().rstrip("="))
TOKENS: Final = st.tuples(PARTS, PARTS, PARTS).map(lambda parts: "eyJ" + ".".join(parts))

OF_KEYS: Final = (
    "Endpoint=sb://contoso/;SharedAccessKeyName=Root;SharedAccessKey={};EntityPath=q",
    "sharedaccesskey = {}",
    "{{'SharedAccessKey': '{}'}}",
    "{{'SharedAccessKeyName': 'Root', 'sharedAccessKey': \"{}\"}}",
    '{{"SharedAccessKey":"{}","x":1}}',
    "DefaultEndpointsProtocol=https;AccountName=x;AccountKey={};EndpointSuffix=core.windows.net",
    "--conf spark.hadoop.fs.azure.account.key.x.dfs.core.windows.net={}",
    "spark.hadoop.fs.s3a.secret.key={}",
    "AWS_SECRET_ACCESS_KEY={} AWS_REGION=eu",
    '{{"primaryKey": "{}", "keyName": "Root"}}',
    '{{"secondaryKey":"{}"}}',
    '{{"sharedAccessKey": ["{}"]}}',
    '{{"name": "primaryKey", "value": "{}"}}',
    '<add key="SharedAccessKey" value="{}"/>',
    "<PrimaryKey>{}</PrimaryKey><Next>x</Next>",
    "<d:SecondaryKey i:type='string'> {} </d:SecondaryKey>",
    "<primaryKey><![CDATA[{}]]></primaryKey>",
    "&lt;PrimaryKey&gt;{}&lt;/PrimaryKey&gt;",
    "&quot;primaryKey&quot;:&quot;{}&quot;",
    "--shared-access-key {} --name x",
    "PRIMARY_KEY={}",
    "secondary-key: {}",
    "Ocp-Apim-Subscription-Key: {}",
    "ServiceBusAuthorization: SharedAccessSignature sr=x&sig={}&se=1",
    "Proxy-Authorization: Basic {}",
    "SharedAccessSignature sr=sb%3A%2F%2Fx%2F&sig={}&se=1700000000&skn=Root",
    "SharedAccessSignature=SharedAccessSignature sr=x&sig={}&se=1",
    "https://x.servicebus.windows.net/orders?sv=1&sig={}",
    "Authorization: SharedAccessSignature sr=x&sig={}&se=1&skn=Root",
)
OF_CLIENTS: Final = (
    "AZURE_CLIENT_SECRET={}",
    "export AZURE_CLIENT_SECRET='{}'",
    "grant_type=client_credentials&client_id=x&client_secret={}&scope=y",
    "{{'client_id': 'x', 'client_secret': '{}'}}",
    "clientSecret: {}",
    "ClientSecretCredential(tenant_id='t', client_id='c', client_secret='{}')",
)
OF_TOKENS: Final = (
    "Authorization: Bearer {}",
    "{{'Authorization': 'Bearer {}'}}",
    "(b'authorization', b'Bearer {}')",
    "the token {} was refused",
    '{{"access_token":"{}","expires_in":3599}}',
    "client_assertion={}&x=y",
    "[{}]",
)
OF_PASSWORDS: Final = (
    "http://me:{}@proxy:3128",
    "proxy='https://me:{}@10.0.0.1:3128/', x",
    "cannot use amqps://u:{}@h",
)

as_json: Callable[[str], str] = json.dumps
WRAPPED: Final[dict[str, Callable[[str], str]]] = {
    "as it is": str,
    "repr": repr,
    "JSON": as_json,
    "JSON in JSON": lambda text: as_json(as_json({"text": text})),
    "a dict's repr of JSON": lambda text: repr({"body": as_json({"text": text})}),
    "percent-encoded": lambda text: quote(text, safe=""),
    "percent-encoded twice": lambda text: quote(quote(text, safe=""), safe=""),
    "an error's": lambda text: str(ValueError(text, 3)),
}


def survives(secret: str, text: str) -> bool:
    """Whether the secret, or eight characters of it together, stand there, encoded or not."""
    whole = unquote(secret)
    chunks = {whole[place : place + 8] for place in range(len(whole) - 7)}
    return any(chunk in form for chunk in chunks for form in (text, unquote(text), unquote(unquote(text))))


def check(template: str, wrapped: str, secret: str) -> None:
    text = WRAPPED[wrapped](template.format(secret))
    shown = masked(text)
    assert not survives(secret, shown), (text, shown)
    assert MASK in shown
    assert masked(shown) == shown, "once is enough"


KEY: Final = "c4n4ry/+" * 5 + "AQ=="
TOKEN: Final = "eyJ0eXAiOiJKV1Qi.c4n4rybody.c4n4rysign"


@pytest.mark.parametrize("wrapped", WRAPPED)
@pytest.mark.parametrize(
    ("templates", "secret"),
    [(OF_KEYS, KEY), (OF_CLIENTS, "c4n4ry~8Q.c4n4ry-_"), (OF_TOKENS, TOKEN), (OF_PASSWORDS, "c4n4ry@c4n4ry!")],
)
def test_no_spelling_is_missed(templates: tuple[str, ...], wrapped: str, secret: str) -> None:
    for template in templates:
        check(template, wrapped, quote(secret, safe="") if "sig=" in template else secret)


SPELLINGS: Final = st.sampled_from(sorted(WRAPPED))


@pytest.mark.parametrize(
    ("templates", "secrets"),
    [(OF_KEYS, KEYS), (OF_CLIENTS, CLIENT_SECRETS), (OF_TOKENS, TOKENS), (OF_PASSWORDS, PASSWORDS)],
    ids=["keys and signatures", "clients' secrets", "tokens", "passwords of URLs"],
)
@given(data=st.data())
def test_no_secret_survives(templates: tuple[str, ...], secrets: st.SearchStrategy[str], data: st.DataObject) -> None:
    template, secret = data.draw(st.sampled_from(templates)), data.draw(secrets)
    check(template, data.draw(SPELLINGS), quote(secret, safe="") if "sig=" in template else secret)


@pytest.mark.parametrize("mark", ["RSA ", "EC ", "OPENSSH ", "ENCRYPTED ", ""])
def test_no_private_key_survives(mark: str) -> None:
    body = "\n".join(["MIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSj"] * 4)
    text = f"-----BEGIN {mark}PRIVATE KEY-----\n{body}\n-----END {mark}PRIVATE KEY-----\nand more"
    for wrap in (str, repr, as_json, quote):
        assert not survives(body[:40], masked(wrap(text)))
        assert wrap("and more").strip("'\"") in masked(wrap(text))


@given(st.dictionaries(st.sampled_from(["SharedAccessKey", "why", "url"]), st.text(max_size=40)), st.text(max_size=30))
@example({"primaryKey": None, "url": "x"}, "")
@example({"why": 'SharedAccessKey=abc" x'}, "")
@example({"why": 'SharedAccessKey=abc\\" x'}, "")
@example({"why": "client_secret=ab\\\\", "z": "y"}, "")
@example({"SharedAccessKey": "", "why": "client_secret="}, "")
def test_json_stays_json(values: dict[str, str | None], more: str) -> None:
    for before in ("SharedAccessKey=", "client_secret: ", "Bearer ", "http://a:b", "sig%3D", "password='"):
        said = {**values, "text": before + more}
        for form in (json.dumps(said), json.dumps(said, ensure_ascii=False), json.dumps([json.dumps(said)])):
            json.loads(masked(form))


@pytest.mark.parametrize(
    "text",
    [
        "the secondary namespace contoso refused the key named Root; the signature's keyname is Root",
        "SharedAccessKeyName=Root",
        '{"primaryKeyName": "Root", "primaryKey": null}',
        "<PrimaryKey/><Next>orders</Next>",
        "<PrimaryKey></PrimaryKey>\n<Next>orders</Next>",
        "the primary key is of the table; --password --name x",
        "it is of the tier Basic, which has queues and no topics",
        "orders failed over: not authenticated: the token is expired",
        "backlog/3 is out of the rotation: timeout after 1.0 s",
        "sb://contoso.servicebus.windows.net:5671/, amqps://backup",
        '{"lock_token":"0f8fad5b-d9cb-469f-a165-70867728950e","dead_lettered":0}',
        "2026-11-22T10:00:00Z INFO paired_servicebus.engine: serving as orders@host, boot 0123456789ab",
        "name = { env = \"PRIMARY\" }, { file = '/run/secrets/primary' }",
    ],
)
def test_a_text_without_secrets_stays_as_it_is(text: str) -> None:
    assert masked(text) == text


@pytest.mark.parametrize(
    "part",
    [
        "http://a:",
        "sig=",
        "eyJ",
        "Bearer ",
        "'\\\\",
        "-----BEGIN PRIVATE KEY-----",
        "%25",
        "://",
        "-eyJ",
        "%3A%2F%2Fa%3A",
        "account.key.",
        "<PrimaryKey>",
        "<primaryKey ",
        "<a:",
        "--password ",
        '"primaryKey", ',
        "-----BEGIN ",
        "&quot;sig&quot;",
    ],
)
def test_a_text_of_any_kind_is_masked_in_linear_time(part: str) -> None:
    def took(count: int) -> float:
        text = part * count
        began = time.process_time()
        masked(text)
        return time.process_time() - began

    def least(count: int) -> float:
        return min(took(count) for _ in range(3))  # a collection of garbage falls into one of them

    # quadratic: four times as long
    assert took(5_000) < 0.05 or least(5_000) < 3 * least(2_500) + 0.05


# -- What others wrote moves no cursor, begins no line and turns no text, wherever it is shown.


HOSTILE = "\x00\x07\x1b\x7f\x85\x9b\u00ad\u061c\u200b\u200d\u2028\u2029\u202a\u202e\u2066\u2069\ufeff\U000e0041"
TEXTS = st.text(st.one_of(st.characters(), st.sampled_from(HOSTILE + "\r\n\t ab")), max_size=80)


def steers(text: str) -> set[str]:
    """Characters that a terminal, or a reader, is led by."""
    return {one for one in text if unicodedata.category(one) in {"Cc", "Cf", "Cs", "Zl", "Zp"}}


@given(TEXTS)
def test_no_character_that_steers_is_left(text: str) -> None:
    left = steers(harmless(text)) | steers(one_line(text))
    assert left <= {one for one in text if ord(one) > 0x600 and unicodedata.category(one) == "Cf"}, "marks of scripts"
    assert not left & set(HOSTILE)
    assert "\n" not in one_line(text)


@given(TEXTS, st.integers(min_value=1, max_value=30))
def test_a_line_is_as_long_as_it_may_be(text: str, most: int) -> None:
    assert len(one_line(text, most=most)) <= most


@given(TEXTS)
def test_json_keeps_its_values(text: str) -> None:
    encoded = msgspec.json.encode({"id": text.encode("utf-8", "replace").decode(), "n": [1, "a"]}).decode()
    shown = escape_json(encoded)
    assert json.loads(shown) == json.loads(encoded)
    assert not steers(shown) & set(HOSTILE)


@pytest.mark.parametrize("mark", ["\n", "\r", "\x0b", "\x85", "\u2028", "\r\n"])
def test_no_line_of_a_text_poses_as_the_beginning_of_another(mark: str) -> None:
    forged = indent_lines(f"Traceback{mark}2026-11-22T00:00:00Z INFO console: all is well")
    assert all(line.startswith(("Traceback", "  ")) for line in forged.splitlines())
    assert steers(forged) <= {"\n"}
