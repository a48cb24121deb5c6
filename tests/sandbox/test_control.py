"""The control URL: faults begin and end, the state is told, and every refusal is one sentence."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest
from yarl import URL

from servicebus_sandbox import Sandbox
from servicebus_sandbox.broker.message import Message
from servicebus_sandbox.faults import ConnectionVerdict


class Control:
    """A client of the control URL."""

    def __init__(self, session: aiohttp.ClientSession) -> None:
        self.session = session

    async def ask(self, method: str, path: str, **options: Any) -> tuple[int, dict[str, Any]]:
        async with asyncio.timeout(60), self.session.request(method, path.removeprefix("/"), **options) as answer:
            return answer.status, await answer.json()

    async def begin(self, **fields: object) -> tuple[int, dict[str, Any]]:
        return await self.ask("POST", "/faults", json=fields)


@pytest.fixture
async def control(sandbox: Sandbox) -> AsyncIterator[Control]:
    async with aiohttp.ClientSession(sandbox.control_url + "/") as session:
        yield Control(session)


@pytest.mark.parametrize("path", ["", "/tokens", "/x/tokens", "//tokens", "/tokens/", "/é/tokens"])
async def test_who_has_not_the_printed_url_is_issued_no_token(sandbox: Sandbox, path: str) -> None:
    body = {"role": "Data Owner", "scope": "https://servicebus.azure.net/.default"}
    async with aiohttp.ClientSession() as session:
        async with session.post(sandbox.control_url + "/tokens", json=body) as answer:
            assert answer.status == 201
        async with session.post(str(URL(sandbox.control_url).origin()) + path, json=body) as answer:
            assert answer.status == 403
            assert URL(sandbox.control_url).name not in await answer.text()


async def test_a_fault_begins_and_ends(sandbox: Sandbox, control: Control) -> None:
    status, answer = await control.begin(namespace="primary", fault="refused")
    assert status == 201
    assert sandbox["primary"].node.faults.connection_verdict() is ConnectionVerdict.RESET
    assert sandbox["secondary"].node.faults.connection_verdict() is ConnectionVerdict.SERVE
    listed = {"id": answer["id"], "namespace": "primary", "entity": None, "fault": "refused"}
    assert await control.ask("GET", "/faults") == (200, {"faults": [listed]})
    assert await control.ask("DELETE", f"/faults/{answer['id']}") == (200, answer)
    assert sandbox["primary"].node.faults.connection_verdict() is ConnectionVerdict.SERVE
    assert await control.ask("GET", "/faults") == (200, {"faults": []})


async def test_a_fault_of_one_entity(sandbox: Sandbox, control: Control) -> None:
    status, _ = await control.begin(namespace="primary", entity="orders", fault="busy")
    assert status == 201
    assert [fault.entity for fault in sandbox["primary"].node.faults.active()] == ["orders"]


@pytest.mark.parametrize(
    ("fields", "complaint"),
    [
        ({}, "namespace is None; there are primary, secondary"),
        ({"namespace": "third", "fault": "busy"}, "namespace is 'third'; there are primary, secondary"),
        ({"namespace": "primary"}, "fault is missing; it is one of refused, "),
        ({"namespace": "primary", "fault": "tired"}, "unknown fault 'tired'; known are refused, "),
        ({"namespace": "primary", "fault": "busy", "entity": "x"}, "no entity 'x'; it has audit, "),
        ({"namespace": "primary", "fault": "busy", "colour": "red"}, "unknown field 'colour'; known are namespace, "),
        ({"namespace": "primary", "fault": 7}, "fault has to be a string, not 7"),
        ({"namespace": None, "fault": "busy"}, "namespace is None; there are primary, secondary"),
    ],
)
async def test_what_is_no_fault(control: Control, fields: dict[str, object], complaint: str) -> None:
    status, answer = await control.begin(**fields)
    assert (status, list(answer)) == (400, ["error"])
    assert complaint in answer["error"]
    assert await control.ask("GET", "/faults") == (200, {"faults": []})


async def test_a_fault_with_all_it_may_have_is_told_as_it_was_ordered(sandbox: Sandbox, control: Control) -> None:
    order = {
        "namespace": "primary",
        "fault": "latency",
        "entities": ["orders", "payments"],
        "operations": ["receive", "send"],
        "direction": "in",
        "probability": 0.5,
        "seed": 7,
        "count": 3,
        "delay_s": 0.25,
        "duration_s": 60,
    }
    status, answer = await control.begin(**order)
    assert status == 201
    assert await control.ask("GET", "/faults") == (200, {"faults": [{"id": answer["id"], "entity": None, **order}]})


async def test_chance_without_a_seed_gets_one_that_is_told(control: Control) -> None:
    await control.begin(namespace="primary", fault="busy", probability=0.5)
    _, told = await control.ask("GET", "/faults")
    assert isinstance(told["faults"][0]["seed"], int)


@pytest.mark.parametrize(
    ("field", "value", "complaint"),
    [
        ("operations", "send", 'operations has to be an array of strings, not "send"'),
        ("operations", ["sleep"], "operations is 'sleep'; known are attach, send"),
        ("direction", "up", "direction is 'up'; known are in, out"),
        ("probability", "often", 'probability has to be a number, not "often"'),
        ("probability", 2, "probability is 2; allowed is more than 0, at most 1"),
        ("seed", 1.5, "seed has to be a whole number, not 1.5"),
        ("count", True, "count has to be a whole number, not true"),
        ("delay_s", 1, "delay_s is 1; allowed is nothing with 'busy'"),
        ("duration_s", -1, "duration_s is -1; allowed is more than 0"),
        ("entities", ["orders", "x"], "no entity 'x'"),
    ],
)
async def test_every_field_is_checked(control: Control, field: str, value: object, complaint: str) -> None:
    status, answer = await control.begin(namespace="primary", fault="busy", **{field: value})
    assert (status, list(answer)) == (400, ["error"])
    assert complaint in answer["error"]


async def test_one_entity_or_several(control: Control) -> None:
    status, answer = await control.begin(namespace="primary", fault="busy", entity="orders", entities=["payments"])
    assert status == 400
    assert "both given" in answer["error"]


@pytest.mark.parametrize(("body", "complaint"), [("{", "not JSON"), ("[1]", "an object with namespace"), ("", "JSON")])
async def test_bodies_that_say_nothing(control: Control, body: str, complaint: str) -> None:
    status, answer = await control.ask("POST", "/faults", data=body, headers={"Content-Type": "application/json"})
    assert status == 400
    assert complaint in answer["error"]


@pytest.mark.parametrize(
    ("method", "path", "status", "complaint"),
    [
        ("DELETE", "/faults/none", 404, "no fault 'none' is active"),
        ("GET", "/elsewhere", 404, "use POST /faults"),
        ("PUT", "/faults", 405, "use POST /faults"),
        ("DELETE", "/faults", 405, "use POST /faults"),
    ],
)
async def test_what_is_not_there(control: Control, method: str, path: str, status: int, complaint: str) -> None:
    told, answer = await control.ask(method, path)
    assert told == status
    assert complaint in answer["error"]


async def test_the_state(sandbox: Sandbox, control: Control) -> None:
    node = sandbox["primary"].node
    node.namespace.queue("orders").intake.send([Message(payload=b"x", size=50, message_id="1")])
    await control.begin(namespace="primary", entity="orders", fault="busy")
    _, state = await control.ask("GET", "/state")
    primary, secondary = state["namespaces"]
    assert (secondary["name"], secondary["entities"], secondary["faults"]) == ("secondary", [], [])
    assert primary["connections"] == 0
    assert [fault["fault"] for fault in primary["faults"]] == ["busy"]
    entities = {entity["path"]: entity for entity in primary["entities"]}
    assert {path: entity["kind"] for path, entity in entities.items()} == {
        "orders": "queue",
        "payments": "queue",
        "audit": "topic",
        "audit/Subscriptions/all": "subscription",
    }
    assert entities["orders"] == {
        "path": "orders",
        "kind": "queue",
        "status": "Active",
        "active": 1,
        "dead_letter": 0,
        "scheduled": 0,
        "transfer": 0,
        "transfer_dead_letter": 0,
        "size_bytes": 50,
    }


# ---------------------------------------------------------------------- who may ask


@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "evil.example"},
        {"Host": "evil.example:1234"},
        {"Host": "127.0.0.1.evil.example"},
        {"Host": "10.0.0.1"},
        {"Host": ""},
        {"Host": "[::1"},
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
    ],
)
async def test_what_a_web_page_sends_is_refused(control: Control, headers: dict[str, str]) -> None:
    """The bug: a page whose name was rebound to this address could get an owner's token and set the clock."""
    body = {"role": "Data Owner", "scope": "https://servicebus.azure.net/.default"}
    for method, path in (("GET", "/state"), ("POST", "/clock"), ("POST", "/tokens"), ("POST", "/faults")):
        status, answer = await control.ask(method, path, json=body, headers=headers)
        assert status == 403
        assert answer["error"].startswith(("Host is ", "the request carries an Origin"))


@pytest.mark.parametrize("host", ["localhost:1", "127.0.0.1", "127.0.0.2:80", "[::1]:5671", "LOCALHOST"])
async def test_every_name_of_this_machine_is_served(control: Control, host: str) -> None:
    status, _ = await control.ask("GET", "/state", headers={"Host": host})
    assert status == 200


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", ""])
@pytest.mark.parametrize("path", ["/faults", "/tokens", "/clock"])
async def test_only_declared_json_changes_something(sandbox: Sandbox, control: Control, path: str, kind: str) -> None:
    """The bug: a form on any web page could set the clock."""
    before = sandbox["primary"].node.clock()
    status, answer = await control.ask("POST", path, data=b'{"advance_s": 3600}', headers={"Content-Type": kind})
    assert status == 415
    assert answer["error"].endswith("send Content-Type: application/json")
    assert sandbox["primary"].node.clock() - before < 60


async def test_json_may_name_its_charset(control: Control) -> None:
    kind = {"Content-Type": "application/json; charset=utf-8"}
    status, _ = await control.ask("POST", "/clock", data=b'{"advance_s": 0.1}', headers=kind)
    assert status == 200
