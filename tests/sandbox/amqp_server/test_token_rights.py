"""Rights on the wire: what a connection may do by the tokens it has put, and what it is told otherwise."""

import time

import pytest

from servicebus_amqp.access import sign
from servicebus_amqp.encoding.codec import Array, Int
from servicebus_sandbox.access.authorization import root_rule
from servicebus_sandbox.broker.entity_settings import AuthorizationRule, Right

RULES = [
    AuthorizationRule(name=name, rights=frozenset({right}), primary_key="a", secondary_key="b")
    for name, right in (("sender", Right.SEND), ("listener", Right.LISTEN))
]
PEEK = {"operation": "com.microsoft:peek-message"}, {"from-sequence-number": 1, "message-count": Int(1)}
CANCEL = {"operation": "com.microsoft:cancel-scheduled-message"}, {"sequence-numbers": Array.of(int, [7])}


@pytest.fixture(autouse=True)
def _rules(port):
    port.node.authorization.rules = (*RULES, root_rule("Root", "a key"))


async def put(peer, name: str, path: str = "orders", seconds: float = 60.0):
    audience = f"sb://127.0.0.1/{path}"
    return await peer.put_token(audience, sign(audience, name, "a", time.time() + seconds))


async def test_each_link_needs_its_right(peer, refused):
    assert (await put(peer, "sender"))[0] == 202
    await peer.attached(peer.sender("orders"))
    with pytest.raises(refused) as caught:
        await peer.attached(peer.receiver("orders"))
    assert caught.value.condition == "amqp:unauthorized-access"
    claim = "Unauthorized access. 'Listen' claim(s) are required to perform this operation. Resource: 'orders'."
    assert caught.value.description.startswith(claim)
    assert (await put(peer, "listener"))[0] == 202
    await peer.attached(peer.receiver("orders/$DeadLetterQueue"))


@pytest.mark.parametrize(("name", "good", "bad"), [("sender", CANCEL, PEEK), ("listener", PEEK, CANCEL)])
async def test_each_request_needs_its_right(peer, name, good, bad):
    await put(peer, name)
    answer, _ = await peer.request("orders/$management", *good)
    assert answer["statusCode"] in (200, 204, 404)
    answer, _ = await peer.request("orders/$management", *bad)
    assert (answer["statusCode"], answer["errorCondition"]) == (401, "amqp:unauthorized-access")


@pytest.mark.parametrize(
    "path", ["nowhere", "nowhere/$management", "audit/Subscriptions/nobody", "nowhere/$DeadLetterQueue"]
)
async def test_there_is_no_token_for_what_is_not_there(peer, path):
    audience = f"sb://127.0.0.1/{path}"
    status, description = await peer.put_token(audience, sign(audience, "Root", "a key", time.time() + 60))
    assert status == 404
    assert description.startswith(f"The messaging entity '{audience}' could not be found. To know more visit ")


@pytest.mark.parametrize(
    "path", ["", "Orders/$management", "audit/Subscriptions/ALL", "orders/$Transfer/$DeadLetterQueue"]
)
async def test_there_are_tokens_for_all_that_is(peer, path):
    await peer.authorize(path)
    assert peer.tokens == 1


@pytest.mark.parametrize("address", ["$", "$nothing", "$cbs/x", "$management", "orders/$nothing", "$Resources/queues"])
@pytest.mark.parametrize("direction", ["sender", "receiver"])
async def test_a_dollar_name_is_no_entity(peer, refused, address, direction):
    await peer.authorize("")
    with pytest.raises(refused) as caught:
        await peer.attached(getattr(peer, direction)(address))
    assert caught.value.condition == "amqp:not-found"
