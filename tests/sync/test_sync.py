"""The pairing without asyncio: the SDK's synchronous names, threads, interruptions, the end of the program."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from azure.core.credentials import AzureNamedKeyCredential
from azure.servicebus import AutoLockRenewer, ServiceBusClient, ServiceBusMessage, ServiceBusSession, _session_browser
from azure.servicebus.aio import _session_browser_async

from paired_servicebus.core.errors import (
    ConfigurationError,
    NamespaceUnreachableError,
    PairingClosedError,
    ScheduledInBacklogError,
)
from paired_servicebus.core.model.command import Command
from paired_servicebus.core.model.entity_state import State
from paired_servicebus.core.model.pairing_events import Event, InDoubt, MessageReceived
from paired_servicebus.engine.control.control_client import ControlClient
from paired_servicebus.engine.control.discovery import local_engines, query_engines
from paired_servicebus.engine.instance.engine_paths import engine_paths
from paired_servicebus.sync import Namespace, PairedServiceBusClient, pair_namespaces
from paired_servicebus.sync import portal as portals
from paired_servicebus.sync.portal import Portal, _close_all, close_at_exit, forget
from servicebus_sandbox import SandboxCredential
from servicebus_sandbox.broker.topology.namespace import QueueSettings
from tests.journal_files import read_records
from tests.surface import differences

from ..pairing.tracer import RecordedSpan, tracing

PATIENCE = 60.0
QUICK = {
    "backlog_queue_count": 1,
    "primary_name": "primary",
    "send_timeout": 30.0,
    "ping_primary_interval": 1.0,
    "failover_interval": 0,
}


def until(what: Callable[[], Any]) -> None:
    """Wait until something is so."""
    end = time.monotonic() + PATIENCE
    while not what():
        assert time.monotonic() < end, "it did not come about"
        time.sleep(0.02)


def namespace(sandbox: Any, name: str) -> Namespace:
    return Namespace.from_connection_string(
        sandbox[name].connection_string, options={"connection_verify": str(sandbox.ca_file)}
    )


def pair(sandbox: Any, events: list[Event] | None = None, **options: Any) -> PairedServiceBusClient:
    seen = [] if events is None else events
    chosen = QUICK | options
    return pair_namespaces(
        namespace(sandbox, "primary"), namespace(sandbox, "secondary"), on_event=seen.append, **chosen
    )


@contextmanager
def broken(sandbox: Any, fault: str) -> Iterator[None]:
    """The primary's orders, for as long as the context lasts."""
    order = json.dumps({"namespace": "primary", "fault": fault, "entity": "orders"}).encode()
    asked = urllib.request.Request(f"{sandbox.control_url}/faults", order, {"Content-Type": "application/json"})
    with urllib.request.urlopen(asked) as answer:
        number = json.load(answer)["id"]
    yield
    urllib.request.urlopen(urllib.request.Request(f"{sandbox.control_url}/faults/{number}", method="DELETE")).close()


@pytest.fixture
def paired(servicebus_sandbox: Any) -> Iterator[PairedServiceBusClient]:
    with pair(servicebus_sandbox) as one:
        yield one


def body(message: Any) -> bytes:
    return b"".join(message.body)


def test_an_application_changes_one_line(paired: PairedServiceBusClient) -> None:
    """`paired` answers to the names of `ServiceBusClient`."""
    with paired.get_queue_sender("orders") as sender, paired.get_queue_receiver("orders", max_wait_time=1) as receiver:
        batch = sender.create_message_batch()
        batch.add_message(ServiceBusMessage(b"4"))
        sender.send_messages(ServiceBusMessage(b"1"))
        sender.send_messages([ServiceBusMessage(b"2"), ServiceBusMessage(b"3")])
        sender.send_messages(batch)
        assert [body(message) for message in receiver.peek_messages(10)] == [b"1", b"2", b"3", b"4"]
        found = []
        for message in receiver:
            found.append(body(message))
            receiver.complete_message(message)
        assert found == [b"1", b"2", b"3", b"4"]
        assert receiver.receive_messages(1, max_wait_time=0.2) == []
    assert paired.backlog_queue_count == 1
    assert paired.fully_qualified_namespace.startswith("127.0.0.1")


def test_sessions_and_schedules_work_as_the_sdks(paired: PairedServiceBusClient) -> None:
    tomorrow = datetime.now(UTC) + timedelta(days=1)
    with paired.get_queue_sender("payments") as sender:
        sender.send_messages(ServiceBusMessage(b"x", session_id="amsterdam"))
        sender.cancel_scheduled_messages(
            sender.schedule_messages(ServiceBusMessage(b"y", session_id="amsterdam"), tomorrow)
        )
    with paired.get_queue_receiver("payments", session_id="amsterdam") as receiver:
        session = receiver.session
        assert session is not None
        session.set_state(b"seen")
        assert session.get_state() == b"seen"
        (message,) = receiver.receive_messages(5, max_wait_time=5)
        receiver.complete_message(message)
        assert session.session_id == "amsterdam"


def test_it_fails_over_and_back_and_the_syphon_delivers(servicebus_sandbox: Any) -> None:
    with (
        pair(servicebus_sandbox, enable_syphon=True) as paired,
        paired.get_queue_sender("orders") as sender,
        paired.get_queue_receiver("orders") as receiver,
    ):
        paired.watch("orders")
        paired.force("orders", by="kim")
        sender.send_messages(ServiceBusMessage(b"parked"))
        (number,) = sender.schedule_messages(ServiceBusMessage(b"x"), datetime.now(UTC) + timedelta(days=1))
        with pytest.raises(ScheduledInBacklogError):
            sender.cancel_scheduled_messages(number)
        assert paired.entity_views()[0].state is State.FORCED
        paired.pin("orders", by="kim")
        (message,) = receiver.receive_messages(1, max_wait_time=PATIENCE)
        assert body(message) == b"parked"


def test_threads_share_a_sender(paired: PairedServiceBusClient, servicebus_sandbox: Any) -> None:
    """Several callers may share it."""
    with paired.get_queue_sender("orders") as sender, ThreadPoolExecutor(8) as threads:

        def caller(number: int) -> None:
            for index in range(40):
                sender.send_messages(ServiceBusMessage(b"x", message_id=f"{number}-{index:02}"))

        list(threads.map(caller, range(8)))
    with paired.get_queue_receiver("orders", receive_mode="receiveanddelete", max_wait_time=1) as receiver:
        found = [str(message.message_id) for message in receiver]
    assert sorted(found) == sorted(f"{number}-{index:02}" for number in range(8) for index in range(40))
    for number in range(8):
        mine = [name for name in found if name.startswith(f"{number}-")]
        assert mine == sorted(mine)


@pytest.mark.skipif(threading.current_thread() is not threading.main_thread(), reason="signals reach the main thread")
def test_an_interrupted_send_raises_at_once_is_in_doubt_and_leaves_the_sender_usable(servicebus_sandbox: Any) -> None:
    events: list[Event] = []
    with pair(servicebus_sandbox, events) as paired, paired.get_queue_sender("orders") as sender:
        sender.send_messages(ServiceBusMessage(b"before"))
        with broken(servicebus_sandbox, "unanswered"):

            def interrupt(number: int, frame: Any) -> None:
                raise KeyboardInterrupt

            before = signal.signal(signal.SIGALRM, interrupt)
            signal.setitimer(signal.ITIMER_REAL, 0.3)
            try:
                with pytest.raises(KeyboardInterrupt):
                    sender.send_messages(ServiceBusMessage(b"during", message_id="during"))
            finally:
                signal.signal(signal.SIGALRM, before)
            until(lambda: [event.message_id for event in events if isinstance(event, InDoubt)] == ["during"])
        sender.send_messages(ServiceBusMessage(b"after"))


def test_what_is_closed_says_so(servicebus_sandbox: Any) -> None:
    """Section 9: sends after close raise."""
    paired = pair(servicebus_sandbox)
    sender, receiver = paired.get_queue_sender("orders"), paired.get_queue_receiver("orders")
    paired.close()
    paired.close()
    sender.close()
    receiver.close()
    with pytest.raises(PairingClosedError, match="the pairing was closed"):
        sender.send_messages(ServiceBusMessage(b"x"))
    with pytest.raises(PairingClosedError):
        paired.get_queue_sender("orders")


def test_a_fork_is_told_that_it_has_no_thread(paired: PairedServiceBusClient, monkeypatch: pytest.MonkeyPatch) -> None:
    """A paired client does not survive a fork."""
    with monkeypatch.context() as other:
        other.setattr(portals.os, "getpid", lambda: -1)
        with pytest.raises(RuntimeError, match="does not survive a fork"):
            paired.get_queue_sender("orders")
        paired.close()  # of the parent's pairing, which goes on
    paired.get_queue_sender("orders")


FORKS = """
import os, sys, threading, time
from azure.servicebus import ServiceBusMessage
from paired_servicebus.sync import Namespace, pair_namespaces
primary, secondary, trust, count = sys.argv[1:]
options = {"connection_verify": trust}
pair = [Namespace.from_connection_string(text, options=options) for text in (primary, secondary)]
with pair_namespaces(*pair, backlog_queue_count=1, primary_name="primary") as paired:
    sender, stop = paired.get_queue_sender("orders"), threading.Event()
    def send():
        while not stop.is_set():
            sender.send_messages(ServiceBusMessage("x"))
    threads = [threading.Thread(target=send) for _ in range(8)]
    [thread.start() for thread in threads]
    hung = wrong = 0
    for _ in range(int(count)):
        child = os.fork()
        if not child:
            try:
                sender.send_messages(ServiceBusMessage("child"))
            except RuntimeError as error:
                os._exit(0 if "does not survive a fork" in str(error) else 1)
            os._exit(2)
        end = time.monotonic() + 60
        while not (ended := os.waitpid(child, os.WNOHANG))[0] and time.monotonic() < end:
            time.sleep(0.001)
        if not ended[0]:
            hung += 1
            os.kill(child, 9)
            os.waitpid(child, 0)
        wrong += ended[1] != 0
    stop.set()
    [thread.join() for thread in threads]
print(hung, wrong)
"""


def test_children_of_a_sending_process_are_refused_at_once(servicebus_sandbox: Any) -> None:
    """A paired client does not survive a fork: each child gets the error, whatever lock a thread held at the fork."""
    texts = [servicebus_sandbox[name].connection_string for name in ("primary", "secondary")]
    command = [sys.executable, "-W", "ignore", "-c", FORKS, *texts, str(servicebus_sandbox.ca_file), "40"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=170, check=False)
    assert done.stdout == "0 0\n", done.stderr


class SendingHandler(logging.Handler):
    """Sends each record through the pairing, as an application's log handler does."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.sender: Any = None
        self.sent: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if self.sender is not None:
            self.sender.send_messages(ServiceBusMessage(self.format(record)), timeout=10)
            self.sent.append(record.name)


@pytest.fixture
def root_handler() -> Iterator[Callable[[logging.Handler], None]]:
    added: list[logging.Handler] = []

    def add(handler: logging.Handler) -> None:
        logging.getLogger().addHandler(handler)
        added.append(handler)

    yield add
    for handler in added:
        logging.getLogger().removeHandler(handler)


def test_a_log_handler_may_send_through_the_pairing_in_an_outage(
    servicebus_sandbox: Any, root_handler: Callable[[logging.Handler], None]
) -> None:
    """A log handler that sends through the pairing delays its own call only, and gets the pairing's records, too."""
    handler = SendingHandler()
    root_handler(handler)
    with pair(servicebus_sandbox) as paired, broken(servicebus_sandbox, "disabled"):
        handler.sender = paired.get_queue_sender("orders")
        done = threading.Event()

        def work() -> None:
            logging.getLogger("application").warning("in the outage")
            done.set()

        threading.Thread(target=work, daemon=True).start()
        assert done.wait(PATIENCE), "the call did not return"
        until(lambda: "paired_servicebus.pairing" in handler.sent)
        handler.sender = None


class StuckHandler(logging.Handler):
    """Blocks, or raises, on each record of the pairing."""

    def __init__(self, *, raises: bool) -> None:
        super().__init__(logging.WARNING)
        self.raises = raises
        self.met = threading.Event()
        self.freed = threading.Event()

    def emit(self, record: logging.LogRecord) -> None:
        if record.name == "paired_servicebus.pairing":
            self.met.set()
            if self.raises:
                raise RuntimeError("this handler is broken")
            self.freed.wait(PATIENCE)


@pytest.mark.parametrize("raises", [False, True])
def test_a_log_handler_that_blocks_or_raises_stops_no_send(
    servicebus_sandbox: Any, root_handler: Callable[[logging.Handler], None], raises: bool
) -> None:
    """A log handler that blocks or raises does not stop sends."""
    handler = StuckHandler(raises=raises)
    root_handler(handler)
    with pair(servicebus_sandbox) as paired, broken(servicebus_sandbox, "disabled"):
        sender = paired.get_queue_sender("orders")
        sender.send_messages(ServiceBusMessage("fails over"))
        assert handler.met.wait(PATIENCE)
        for number in range(10):
            sender.send_messages(ServiceBusMessage(str(number)))
        handler.freed.set()


def test_a_session_and_its_lock_renewer(servicebus_sandbox: Any, paired: PairedServiceBusClient) -> None:
    """The SDK's samples: `AutoLockRenewer.register(receiver, receiver.session)`, and the option `auto_lock_renewer`."""
    failed: list[object] = []
    with paired.get_queue_sender("payments") as sender:
        sender.send_messages(ServiceBusMessage("x", session_id="1"))
    with paired.get_queue_receiver("payments", session_id="1") as receiver, AutoLockRenewer() as renewer:
        session = receiver.session
        assert isinstance(session, ServiceBusSession)
        assert session.session_id == "1"
        renewer.register(receiver, session, on_lock_renew_failure=lambda *why: failed.append(why))
        before = session.locked_until_utc
        session.set_state("counted")
        assert session.get_state() == b"counted"
        assert session.renew_lock() >= before
        (message,) = receiver.receive_messages(max_wait_time=PATIENCE)
        receiver.complete_message(message)
    assert failed == []


def test_received_messages_are_registered_with_the_renewer(paired: PairedServiceBusClient) -> None:
    """The option `auto_lock_renewer` is the SDK's: it gets each locked message, or the session."""
    registered: list[Any] = []

    class Renewer(AutoLockRenewer):
        def register(self, receiver: Any, renewable: Any, *_: Any, **__: Any) -> None:
            registered.append(renewable)

    with paired.get_queue_sender("orders") as sender, paired.get_queue_sender("payments") as sessions:
        sender.send_messages([ServiceBusMessage("1"), ServiceBusMessage("2")])
        sessions.send_messages(ServiceBusMessage("s", session_id="1"))
    with paired.get_queue_receiver("orders", auto_lock_renewer=Renewer()) as receiver:
        first = receiver.receive_messages(1, max_wait_time=PATIENCE)
        assert registered == first
        second = next(receiver)
        assert registered == [*first, second]
    registered.clear()
    with paired.get_queue_receiver("payments", session_id="1", auto_lock_renewer=Renewer()) as receiver:
        receiver.receive_messages(1, max_wait_time=PATIENCE)
        assert registered == [receiver.session]


def test_a_call_on_the_pairings_own_thread_is_refused_instead_of_waiting_for_ever(
    paired: PairedServiceBusClient,
) -> None:
    with pytest.raises(RuntimeError, match="would wait for itself"):
        paired._portal.run(paired.get_queue_sender, "orders")


class TestBadInput:
    def test_a_key_that_is_refused(self, servicebus_sandbox: Any) -> None:
        """Section 4.5: bad credentials are raised by the pairing call itself."""
        wrong = servicebus_sandbox["secondary"].connection_string.replace("SharedAccessKey=", "SharedAccessKey=wrong")
        secondary = Namespace.from_connection_string(
            wrong, options={"connection_verify": str(servicebus_sandbox.ca_file)}
        )
        with pytest.raises(NamespaceUnreachableError, match="check the key"):
            pair_namespaces(namespace(servicebus_sandbox, "primary"), secondary)
        assert not [thread for thread in threading.enumerate() if thread.name == "servicebus-pairing"]

    @pytest.mark.parametrize("given", [None, "text", "client"])
    def test_what_is_no_namespace(self, given: str | None) -> None:
        """Those who come from the SDK hand in what they have: its client, or its connection string."""
        text = "Endpoint=sb://contoso.servicebus.windows.net/;SharedAccessKeyName=n;SharedAccessKey=c4n4ry="
        made: Any = {"text": text, "client": ServiceBusClient.from_connection_string(text), None: None}[given]
        with pytest.raises(ConfigurationError, match=r"secondary is a \w+; it has to be a Namespace") as refused:
            pair_namespaces(Namespace.from_connection_string(text), made)
        assert "c4n4ry" not in str(refused.value)

    def test_a_key_for_the_backlog_links_that_is_refused(self, servicebus_sandbox: Any) -> None:
        """Section 4.5, where only the links to the backlog queues are refused."""
        wrong = servicebus_sandbox["secondary"].connection_string.replace("SharedAccessKey=", "SharedAccessKey=wrong")
        right = namespace(servicebus_sandbox, "secondary")
        began = time.monotonic()
        with pytest.raises(NamespaceUnreachableError, match="credential needs Send on the secondary"):
            pair_namespaces(
                namespace(servicebus_sandbox, "primary"),
                Namespace.from_connection_string(wrong),
                admin=right.admin,
                **QUICK,
            )
        assert time.monotonic() - began < 60
        assert not [thread for thread in threading.enumerate() if thread.name == "servicebus-pairing"]

    def test_an_option_that_is_none(self, servicebus_sandbox: Any) -> None:
        with pytest.raises(TypeError, match="colour"):
            pair(servicebus_sandbox, colour="blue")

    def test_no_connection_string(self) -> None:
        one = Namespace.from_connection_string("nonsense")
        with pytest.raises(ConfigurationError, match="does not accept these settings"):
            pair_namespaces(one, one)

    def test_no_secret_is_shown(self) -> None:
        secret = "Endpoint=sb://contoso.servicebus.windows.net/;SharedAccessKeyName=n;SharedAccessKey=s3cret="
        assert "s3cret" not in repr(Namespace.from_connection_string(secret))


class TestCredentials:
    """What holders of the synchronous SDK's clients have in hand."""

    def there_and_back(self, sandbox: Any, credentials: dict[str, Any]) -> str:
        """What came back of a message "x"."""
        options = {"connection_verify": str(sandbox.ca_file)}
        sides = [
            Namespace(f"127.0.0.1:{sandbox[name].amqp_port}", one, options=options, messaging={"use_tls": False})
            for name, one in credentials.items()
        ]
        with pair_namespaces(*sides, **QUICK) as paired:
            with paired.get_queue_sender("orders") as sender:
                sender.send_messages(ServiceBusMessage(b"x"))
            with paired.get_queue_receiver("orders") as receiver:
                (message,) = receiver.receive_messages(max_wait_time=PATIENCE)
                return str(message)

    def test_a_named_key(self, servicebus_sandbox: Any) -> None:
        names = ("primary", "secondary")
        keys = {one: servicebus_sandbox[one] for one in names}
        credentials = {one: AzureNamedKeyCredential(key.key_name, key.key) for one, key in keys.items()}
        assert self.there_and_back(servicebus_sandbox, credentials) == "x"

    def test_a_synchronous_token_credential(self, servicebus_sandbox: Any) -> None:
        asked = SandboxCredential(servicebus_sandbox.control_url, "Data Owner")
        assert self.there_and_back(servicebus_sandbox, {"primary": asked, "secondary": asked}) == "x"


def test_eight_threads_send_in_their_own_traces(servicebus_sandbox: Any) -> None:
    """Each message carries the trace context of the call that sent it: through the synchronous door, too."""
    traces: dict[str, str] = {}

    def request(name: str) -> None:
        with RecordedSpan(name=name) as span:
            traces[name] = span.trace
            sender.send_messages(ServiceBusMessage(name, message_id=name))

    primary, secondary = (namespace(servicebus_sandbox, name) for name in ("primary", "secondary"))
    with tracing(RecordedSpan), pair_namespaces(primary, secondary, **QUICK) as paired, ThreadPoolExecutor(8) as pool:
        sender = paired.get_queue_sender("orders")
        list(pool.map(request, map(str, range(300))))
    found: dict[str, str] = {}
    text = servicebus_sandbox["primary"].connection_string
    with ServiceBusClient.from_connection_string(text, connection_verify=str(servicebus_sandbox.ca_file)) as client:
        receiver = client.get_queue_receiver("orders", receive_mode="receiveanddelete")
        while len(found) < len(traces):
            for message in receiver.receive_messages(200, max_wait_time=PATIENCE):
                found[str(message.message_id)] = (message.application_properties or {})[b"traceparent"].decode()[3:35]
    assert found == traces


# -- Code written for the SDK's synchronous client works with a paired one: same names, same parameters.


@pytest.fixture
def paired_of_drop_in(servicebus_sandbox: Any) -> Any:
    with pair(servicebus_sandbox) as made:
        yield made


def test_every_name_and_parameter_of_the_sdks_client_sender_and_receiver_is_accepted(
    servicebus_sandbox: Any, paired_of_drop_in: PairedServiceBusClient
) -> None:
    text = servicebus_sandbox["primary"].connection_string
    with ServiceBusClient.from_connection_string(text) as plain:
        assert differences(plain, paired_of_drop_in, refused={"from_connection_string"}) == []
        assert (
            differences(plain.get_queue_sender("orders"), paired_of_drop_in.get_queue_sender("orders"), refused=set())
            == []
        )
        theirs, ours = plain.get_queue_receiver("orders"), paired_of_drop_in.get_queue_receiver("orders")
        assert differences(theirs, ours, refused=set()) == []
    with pytest.raises(ConfigurationError, match="pass two of Namespace to pair_namespaces"):
        PairedServiceBusClient.from_connection_string(text)
    with pytest.raises(TypeError, match=r"auto_lock_renewer is an azure.servicebus.AutoLockRenewer, not object"):
        paired_of_drop_in.get_queue_receiver("orders", auto_lock_renewer=object())


def test_options_of_senders_and_sessions_are_the_sdks(
    servicebus_sandbox: Any, paired_of_drop_in: PairedServiceBusClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (_session_browser, _session_browser_async):
        monkeypatch.setattr(module, "_PAGE_SIZE", 2)
    servicebus_sandbox["primary"].node.namespace.create_queue("by-session", QueueSettings(requires_session=True))
    with paired_of_drop_in.get_queue_sender("by-session", client_identifier="checkout-7", socket_timeout=2.0) as sender:
        assert (sender.client_identifier, "checkout-7" in str(sender)) == ("checkout-7", True)
        assert sender.fully_qualified_namespace == paired_of_drop_in.fully_qualified_namespace
        for name in "abc":  # more than a page
            sender.send_messages(ServiceBusMessage(b"x", session_id=name))
    listed = paired_of_drop_in.list_queue_sessions("by-session", timeout=20)
    assert sorted(listed) == ["a", "b", "c"]


# -- The thread behind the synchronous client: what meets its end is told so.


def test_calls_that_meet_the_end_of_the_thread_are_told_and_none_waits_for_ever() -> None:
    """Section 9: "sends in hand finish or raise"."""
    for _ in range(20):
        portal = Portal("a test's")

        def call_until_closed(portal: Portal = portal) -> None:
            try:
                while True:
                    portal.call(asyncio.sleep, 0)
            except PairingClosedError:
                pass

        callers = [threading.Thread(target=call_until_closed, daemon=True) for _ in range(4)]
        for caller in callers:
            caller.start()
        portal.close()
        for caller in callers:
            caller.join(PATIENCE)
        assert not any(caller.is_alive() for caller in callers)


# -- What is left open ends with the program, in order and in silence.


ROOT = Path(__file__).parents[2]

BARE = """
    import sys, types
    package = sys.modules["paired_servicebus.sync"] = types.ModuleType("paired_servicebus.sync")
    package.__path__ = ["paired_servicebus/sync"]
"""
"""The room without its front door: its thread needs the standard library alone, and so runs in any Python."""
ON_ITS_THREAD = (
    BARE
    + """
    import asyncio, threading
    from paired_servicebus.sync.portal import close_at_exit
    from paired_servicebus.sync.portal import Portal

    portal = Portal("left open")
    portal.call(asyncio.to_thread, print, "a thread for the executor")

    def close():
        portal.call(asyncio.to_thread, print, "still given work")
        portal.close()

    close_at_exit(close)
"""
)

NO_NEW_THREADS = (
    BARE
    + """
    import asyncio, threading
    from paired_servicebus.sync.portal import Portal

    portal = Portal("left open")
    portal.call(asyncio.to_thread, print, "a thread for the executor")

    def refuse(*what):
        raise RuntimeError("can't create new thread at interpreter shutdown")

    threading._start_new_thread = refuse
    portal.close()
    print(portal.is_open)
"""
)


def run(script: str, interpreter: str) -> tuple[int, str, str]:
    ended = subprocess.run(
        [interpreter, "-c", textwrap.dedent(script)],
        cwd=ROOT / "console",
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return ended.returncode, ended.stdout, ended.stderr


def starts_threads_to_the_end(interpreter: str) -> bool:
    """CPython 3.12.0 and 3.12.1 may refuse a thread at any moment of their end; the other script plays that."""
    return run("import sys; print(sys.version_info[:3] in ((3, 12, 0), (3, 12, 1)))", interpreter)[1] == "False\n"


def other_interpreters() -> list[str]:
    """Pythons of other versions on this machine that can run the portal, which needs nothing but the library."""
    folders = [Path(sys.base_prefix).parent, *map(Path, os.get_exec_path())]
    names = ("python3.12", "python3.13", "3.12*/bin/python", "3.13*/bin/python")
    found = {str(path.resolve()): path for folder in folders for name in names for path in folder.glob(name)}
    return [
        path for path in map(str, found.values()) if run("print(1)", path)[0] == 0
    ]  # a version manager's may not run


@pytest.mark.parametrize("script", [ON_ITS_THREAD, NO_NEW_THREADS], ids=["program ends", "no new threads"])
def test_the_thread_ends_while_it_can_still_be_given_work(script: str) -> None:
    """Also where the interpreter starts no threads any more, as CPython 3.12.0 and 3.12.1 do while they end."""
    expected = ("a thread for the executor\n" + ("still given work\n" if script is ON_ITS_THREAD else "False\n"), "")
    interpreters = [sys.executable, *other_interpreters()]
    if script is ON_ITS_THREAD:
        interpreters = [interpreter for interpreter in interpreters if starts_threads_to_the_end(interpreter)]
    found = {interpreter: run(script, interpreter) for interpreter in interpreters}
    assert found == dict.fromkeys(found, (0, *expected))


def test_each_is_closed_whatever_another_raises() -> None:
    closed: list[str] = []

    def fail() -> None:
        closed.append("fails")
        raise OSError("no answer")

    closes = [lambda: closed.append("first"), fail, lambda: closed.append("last")]
    for close in closes:
        close_at_exit(close)
    try:
        with pytest.raises(OSError, match="no answer"):
            _close_all()
    finally:
        for close in closes:
            forget(close)
    assert sorted(closed) == ["fails", "first", "last"]


# -- An application without asyncio that pairs with `control=True` is an engine, on the pairing's thread.


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where engines of this test are; a socket's path may have some hundred characters."""
    with tempfile.TemporaryDirectory(prefix="p-") as folder:
        monkeypatch.setenv("XDG_STATE_HOME", folder)
        monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
        yield Path(folder)


async def forced(entity: str) -> str:
    """What a console does: it finds the engine, looks at it and gives an order; where the engine was found."""
    (places,) = local_engines()
    (standing,) = await query_engines([places])
    assert standing.snapshot is not None
    assert (standing.snapshot.own_process, standing.snapshot.environment) == (False, "test")
    client = await ControlClient.connect(places.socket)
    await client.order(Command(action_id="force", targets=(entity,), by="ada"), typed=entity)
    await client.close()
    return places.name


def test_a_console_lists_and_commands_it_until_it_is_closed(servicebus_sandbox: Any, short: Path) -> None:
    with pair(servicebus_sandbox, control=True, environment="test") as paired:
        paired.watch("orders")
        assert asyncio.run(forced("orders")) == "primary"
        assert paired.entity_views()[0].state is State.FORCED
    assert local_engines() == ()
    assert "servicebus-pairing" not in [thread.name for thread in threading.enumerate()]
    kinds = [record.event.kind for record in read_records(engine_paths("primary").spool)]
    assert (kinds[0], kinds[-1]) == ("engine-started", "engine-stopped")


def test_each_message_that_a_blocking_receiver_gets_is_in_the_journal(servicebus_sandbox: Any, short: Path) -> None:
    """`record_received`, for an application without asyncio."""
    with pair(servicebus_sandbox, control=True, record_received=True) as paired:
        with paired.get_queue_sender("orders") as sender:
            sender.send_messages([ServiceBusMessage(b"x", message_id=name) for name in ("one", "two")])
        with paired.get_queue_receiver("orders") as receiver:
            receiver.complete_message(*receiver.receive_messages(1, max_wait_time=5))
            receiver.complete_message(next(receiver))
    received = [record.event for record in read_records(engine_paths("primary").spool)]
    assert [one.message_id for one in received if isinstance(one, MessageReceived)] == ["one", "two"]


PROGRAM = """
    import sys
    from azure.servicebus import ServiceBusMessage
    from paired_servicebus.engine.control.discovery import local_engines
    from paired_servicebus.sync import Namespace, pair_namespaces

    trust = {"connection_verify": sys.argv[3]}
    primary, secondary = (Namespace.from_connection_string(text, options=trust) for text in sys.argv[1:3])
    options = {"control": True, "primary_name": "primary", "backlog_queue_count": 1, "enable_syphon": True}
    paired = pair_namespaces(primary, secondary, **options)
    paired.get_queue_sender("orders").send_messages(ServiceBusMessage(b"x"))
    print([places.name for places in local_engines()])
"""


def test_one_left_open_ends_with_the_program(servicebus_sandbox: Any, short: Path) -> None:
    sandbox = servicebus_sandbox
    namespaces = [sandbox[name].connection_string for name in ("primary", "secondary")]
    command = [sys.executable, "-c", textwrap.dedent(PROGRAM), *namespaces, str(sandbox.ca_file)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=150, check=False, env=dict(os.environ))
    assert (ended.returncode, ended.stdout.strip(), ended.stderr) == (0, "['primary']", "")
    assert local_engines() == ()
    assert [record.event.kind for record in read_records(engine_paths("primary").spool)][-1] == "engine-stopped"
