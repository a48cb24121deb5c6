"""What Qpid Proton sees of a sandbox. Runs where Proton is, and imports nothing of this project.

python checks.py CONNECTION_STRING. Needs the entities that `paired sandbox` opens with: the queue orders, the session
queue payments; both empty, and each check leaves them so.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any
from urllib.parse import quote_plus

from proton import Data, Disposition, Message, char, decimal64, float32, int32, symbol, timestamp, ubyte, uint, ulong
from proton.reactor import AtMostOnce, Filter
from proton.utils import BlockingConnection, LinkDetached, SendException

PATIENCE = 15.0
SECONDS_OF_SILENCE = 2.5
SETTINGS = dict(part.split("=", 1) for part in sys.argv[1].split(";") if part)
HOST = SETTINGS["Endpoint"].removeprefix("sb://").rstrip("/")


@contextmanager
def connected(*paths: str, **options: Any) -> Iterator[BlockingConnection]:
    """A connection that shows tokens for `paths`."""
    connection = BlockingConnection(f"amqp://{HOST}", timeout=PATIENCE, allowed_mechs="ANONYMOUS", **options)
    try:
        for path in paths:
            reply = ask(connection, "$cbs", token(path), operation="put-token", type="jwt", name=f"sb://{HOST}/{path}")
            assert reply.properties["status-code"] == 202, reply.properties
        yield connection
    finally:
        connection.close()


def token(path: str) -> str:
    audience, until = quote_plus(f"sb://{HOST}/{path}"), int(time.time()) + 3600
    key = SETTINGS["SharedAccessKey"].encode()
    signature = base64.b64encode(hmac.digest(key, f"{audience}\n{until}".encode(), hashlib.sha256))
    name = SETTINGS["SharedAccessKeyName"]
    return f"SharedAccessSignature sr={audience}&sig={quote_plus(signature)}&se={until}&skn={name}"


def ask(connection: BlockingConnection, node: str, body: Any, **properties: Any) -> Message:
    """One request, and its reply."""
    replies, requests = connection.create_receiver(node, credit=1), connection.create_sender(node)
    try:
        asked = Message(id=uuid.uuid4(), properties=properties, body=body)
        requests.send(asked)
        reply = replies.receive(PATIENCE)
        replies.accept()
        assert reply.correlation_id == asked.id
        return reply
    finally:
        replies.close()
        requests.close()


def peeked(connection: BlockingConnection, path: str) -> int:
    body = {"from-sequence-number": 0, "message-count": int32(100)}
    reply = ask(connection, f"{path}/$management", body, operation="com.microsoft:peek-message")
    return 0 if reply.properties["statusCode"] == 204 else len(reply.body["messages"])


def there_and_back(connection: BlockingConnection, *messages: Message, path: str = "orders") -> list[Message]:
    sender, receiver = connection.create_sender(path), connection.create_receiver(path)
    for message in messages:
        sender.send(message)
    got = []
    for _ in messages:
        got.append(receiver.receive(PATIENCE))
        receiver.accept()
    sender.close()
    receiver.close()
    return got


def failure_of(act: Callable[[], object], kind: type[Exception]) -> Any:
    """The exception that it has to raise."""
    try:
        act()
    except kind as error:
        return error
    raise AssertionError(f"no {kind.__name__}")


def what_is_sent_is_received_accepted_and_gone() -> None:
    with connected("orders") as connection:
        got = there_and_back(connection, *[Message(id=f"{n}", body=f"body {n}") for n in range(20)])
        assert [message.body for message in got] == [f"body {n}" for n in range(20)]
        assert got[0].annotations[symbol("x-opt-sequence-number")] > 0
        assert peeked(connection, "orders") == 0


def every_type_comes_back_as_it_was_sent() -> None:
    values = {
        "ubyte": ubyte(7),
        "uint": uint(1_000_000),
        "ulong": ulong(2**63),
        "int": int32(-5),
        "long": -(2**40),
        "float": float32(0.5),
        "double": 0.1,
        "char": char("ä"),
        "time": timestamp(1_700_000_000_000),
        "decimal": decimal64(12),
        "uuid": uuid.uuid4(),
        "symbol": symbol("s"),
        "binary": b"\x00\xff",
        "text": "ü" * 300,
        "true": True,
        "none": None,
    }
    body = {"list": [1, "two", None], "map": {"a": ulong(1)}}
    with connected("orders") as connection:
        (got,) = there_and_back(connection, Message(id=ulong(9), properties=values, body=body, subject="s"))
    got.properties["binary"] = bytes(got.properties["binary"])
    for name, value in values.items():
        assert (got.properties[name], type(got.properties[name])) == (value, type(value)), (name, got.properties[name])
    assert (got.id, got.body, got.subject) == (9, body, "s"), (got.id, got.body)


def a_message_of_many_frames_arrives_whole() -> None:
    body = bytes(range(256)) * 900
    for frame_size in (512, 4096, 65536):
        with connected("orders", max_frame_size=frame_size) as connection:
            (got,) = there_and_back(connection, Message(body=body))
            assert bytes(got.body) == body, frame_size


def a_message_that_is_too_large_is_rejected_and_the_link_lives() -> None:
    with connected("orders") as connection:
        sender = connection.create_sender("orders")
        failure = failure_of(lambda: sender.send(Message(body=bytes(300_000))), SendException)
        assert failure.state == Disposition.REJECTED, failure.state
        sender.send(Message(body="small"))
        receiver = connection.create_receiver("orders")
        assert receiver.receive(PATIENCE).body == "small"
        receiver.accept()


def outcomes_count_give_back_and_dead_letter() -> None:
    with connected("orders") as connection:
        connection.create_sender("orders").send(Message(body="again"))
        receiver = connection.create_receiver("orders")
        assert receiver.receive(PATIENCE).delivery_count == 0
        receiver.release(delivered=False)
        assert receiver.receive(PATIENCE).delivery_count == 0
        receiver.release(delivered=True)
        assert receiver.receive(PATIENCE).delivery_count == 1
        receiver.reject()
        dead = connection.create_receiver("orders/$DeadLetterQueue")
        assert dead.receive(PATIENCE).body == "again"
        dead.accept()
        assert peeked(connection, "orders") == peeked(connection, "orders/$DeadLetterQueue") == 0


def settled_by_the_sender_both_ways() -> None:
    with connected("orders") as connection:
        sender = connection.create_sender("orders", options=AtMostOnce())
        for number in range(3):
            sender.link.send(Message(body=number))
        receiver = connection.create_receiver("orders", credit=3, options=AtMostOnce())
        assert [receiver.receive(PATIENCE).body for _ in range(3)] == [0, 1, 2]
        assert peeked(connection, "orders") == 0


def a_drain_takes_the_credit_back() -> None:
    with connected("orders") as connection:
        connection.create_sender("orders").send(Message(body="one"))
        receiver = connection.create_receiver("orders")
        receiver.link.drain(5)
        assert receiver.receive(PATIENCE).body == "one"
        receiver.accept()
        connection.wait(lambda: receiver.link.credit == 0, timeout=PATIENCE)
        assert receiver.link.drained() == 4


def a_session_is_named_in_the_answer() -> None:
    name = symbol("com.microsoft:session-filter")
    with connected("payments") as connection:
        sender = connection.create_sender("payments")
        sender.send(Message(body="mine", group_id="a"))
        sender.send(Message(body="other", group_id="b"))
        for session, body in (("b", "other"), ("a", "mine")):
            receiver = connection.create_receiver("payments", options=Filter({name: session}))
            answered = Data()
            answered.copy(receiver.link.remote_source.filter)
            answered.rewind()
            answered.next()
            assert answered.get_object() == {name: session}
            assert receiver.receive(PATIENCE).body == body
            receiver.accept()
            receiver.close()


def a_link_without_a_token_is_refused_with_a_reason() -> None:
    with connected() as connection:
        for create in (connection.create_sender, connection.create_receiver):
            failure = failure_of(partial(create, "orders"), LinkDetached)
            assert failure.condition == "amqp:unauthorized-access", failure
            assert "Unauthorized access" in str(failure), failure


def an_entity_that_is_missing_is_not_found() -> None:
    with connected("") as connection:
        failure = failure_of(lambda: connection.create_sender("nowhere"), LinkDetached)
        assert failure.condition == "amqp:not-found", failure


def three_hundred_links_on_one_connection() -> None:
    with connected("orders") as connection:
        senders = [connection.create_sender("orders", name=f"link {number}") for number in range(300)]
        senders[-1].send(Message(body="last"))
        receiver = connection.create_receiver("orders")
        assert receiver.receive(PATIENCE).body == "last"
        receiver.accept()


def a_silent_connection_is_kept_alive() -> None:
    with connected("orders", heartbeat=1) as connection:
        sender = connection.create_sender("orders")
        time_out = time.monotonic() + SECONDS_OF_SILENCE
        connection.wait(lambda: time.monotonic() > time_out, timeout=None)
        sender.send(Message(body="still here"))
        receiver = connection.create_receiver("orders")
        assert receiver.receive(PATIENCE).body == "still here"
        receiver.accept()


CHECKS: tuple[Callable[[], None], ...] = (
    what_is_sent_is_received_accepted_and_gone,
    every_type_comes_back_as_it_was_sent,
    a_message_of_many_frames_arrives_whole,
    a_message_that_is_too_large_is_rejected_and_the_link_lives,
    outcomes_count_give_back_and_dead_letter,
    settled_by_the_sender_both_ways,
    a_drain_takes_the_credit_back,
    a_session_is_named_in_the_answer,
    a_link_without_a_token_is_refused_with_a_reason,
    an_entity_that_is_missing_is_not_found,
    three_hundred_links_on_one_connection,
    a_silent_connection_is_kept_alive,
)


def main() -> None:
    for check in CHECKS:
        error = None
        try:
            check()
        except Exception as failure:  # a check that fails is told, and the next one run
            error = f"{type(failure).__name__}: {failure}"
        said = {"check": check.__name__.replace("_", " "), "passed": error is None, "error": error}
        print(json.dumps(said), flush=True)


if __name__ == "__main__":
    main()
