"""A whole sandbox: namespaces on their ports, certificates and the control URL, started and ended together.

It runs in the caller's event loop and cleans up: its folder is removed, its ports are closed. `sandbox_command` runs it
as a process.

A sandbox locks a file in its folder; the system unlocks it when the process ends. So the next sandbox recognizes and
removes the folders of killed ones.
"""

from __future__ import annotations

import fcntl
import logging
import os
import shutil
import ssl
import tempfile
import threading
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from servicebus_amqp.server.certificates import make_certificates
from servicebus_amqp.server.http_server import WebSocketServer
from servicebus_amqp.server.listener import ListenError, name_remark
from servicebus_sandbox.access.authorization import TENANT, Identity, Issuer, root_rule
from servicebus_sandbox.amqp_server.namespace_server import NamespaceServer
from servicebus_sandbox.arm.arm_request import ArmNamespace
from servicebus_sandbox.arm.resource_manager import ResourceManager
from servicebus_sandbox.atom.entity_xml import new_key
from servicebus_sandbox.atom.management_api import HttpsServer, ManagementApi
from servicebus_sandbox.broker.entity_settings import AuthorizationRule
from servicebus_sandbox.clock import SandboxClock
from servicebus_sandbox.control_http import HttpControlServer
from servicebus_sandbox.serving.process_settings import HOST, KEY_NAME, host_for, is_loopback, proxy_remark
from servicebus_sandbox.specs import DOMAIN, NamespaceSpec, primary_and_secondary
from servicebus_sandbox.token_endpoint import TokenEndpoint

log = logging.getLogger(__name__)

_PREFIX: Final = "servicebus-sandbox-"
ANYBODY: Final = "sandbox-owner"
"""The client id of the identity that there is without others."""
MAX_RETIRED: Final = 1000
"""Keys of earlier tests that are still recognized."""
_LOCK: Final = "in-use"


@contextmanager
def open_run_folder() -> Iterator[Path]:
    """Yield a new private folder for the duration of the context. Raises OSError."""
    _remove_abandoned(Path(tempfile.gettempdir()))
    folder = Path(tempfile.mkdtemp(prefix=_PREFIX))
    lock = None
    try:
        lock = _claim(folder)
        yield folder
    finally:
        shutil.rmtree(folder)
        if lock is not None:
            os.close(lock)


def _claim(folder: Path) -> int:
    """Lock the file before it gets its name, so that a named file of a living owner is never unlocked."""
    claimed = folder / "claimed"
    lock = os.open(claimed, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
    fcntl.flock(lock, fcntl.LOCK_EX)
    claimed.rename(folder / _LOCK)
    return lock


def _remove_abandoned(where: Path) -> None:
    """Remove our unlocked folders; skip those of other users or without permission."""
    for folder in where.glob(f"{_PREFIX}*"):
        try:
            if folder.lstat().st_uid != os.geteuid():
                continue
            lock = os.open(folder / _LOCK, os.O_WRONLY | os.O_NOFOLLOW)
        except OSError:  # not ours, or just removed
            continue
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(folder)
        except BlockingIOError:
            pass  # in use
        except OSError as error:
            log.info("the folder %s of a sandbox that was killed cannot be removed: %s", folder, error)
        finally:
            os.close(lock)


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxNamespace:
    """The addresses of a namespace, and its server `node` for tests in the same process. `spec`: as it was started.

    `key` is the first key of the rule `key_name`, which has every right; `host` is written as in URLs.
    """

    name: str
    amqp_port: int
    key_name: str
    key: str = field(repr=False)
    node: NamespaceServer = field(repr=False)
    spec: NamespaceSpec = field(repr=False)
    host: str = HOST
    host_name: str
    has_standard_ports: bool = False

    @property
    def connection_string(self) -> str:
        """Return the connection string: messages, management and WebSockets on one port, without TLS."""
        return self.connection_string_for(self.key_name, self.key)

    def connection_string_for(self, key_name: str, key: str) -> str:
        """Return a connection string with another key, such as one that only sends."""
        keys = f"SharedAccessKeyName={key_name};SharedAccessKey={key}"
        return f"Endpoint=sb://{self.host}:{self.amqp_port};{keys};UseDevelopmentEmulator=true"

    @property
    def standard_connection_string(self) -> str | None:
        """Return the connection string in Azure's form, by `host_name` and over TLS; None without standard ports."""
        keys = f"SharedAccessKeyName={self.key_name};SharedAccessKey={self.key}"
        return f"Endpoint=sb://{self.host_name}/;{keys}" if self.has_standard_ports else None

    @property
    def admin_url(self) -> str:
        return f"https://{self.host}:{self.amqp_port}"

    @property
    def endpoint(self) -> str:
        """Return the SDK's custom_endpoint_address, for clients that use the namespace's Azure name."""
        return f"sb://{self.host}:{self.amqp_port}"

    @property
    def fully_qualified_name(self) -> str:
        """Return the namespace's name in Azure; its certificate is valid for this name too."""
        return f"{self.name}.{DOMAIN}"


class Sandbox:
    """A running sandbox. TLS clients trust `ca_file`; `control_url` switches faults and issues tokens.

    `arm_url` replaces `https://management.azure.com`; the same port serves plain HTTP. `tokens` has the identities of
    azure-identity, with their variables. Namespaces come and go one by one.
    """

    ca_file: Path
    control_url: str
    arm_url: str
    tokens: TokenEndpoint
    _manager: ResourceManager
    _first: tuple[NamespaceSpec, ...]

    def __init__(self, *, clock: SandboxClock, issuer: Issuer, tls: ssl.SSLContext, listen: str) -> None:
        """Prepare for namespaces; `start` runs them."""
        self._clock = clock
        self._issuer = issuer
        self._tls = tls
        self._listen = listen
        self._running: dict[str, tuple[SandboxNamespace, AsyncExitStack]] = {}
        self._made_keys: dict[str, str] = {}
        self._retired: dict[str, str] = {}

    @property
    def namespaces(self) -> tuple[SandboxNamespace, ...]:
        """Return the running namespaces; ARM can create and delete some."""
        return tuple(namespace for namespace, _ in self._running.values())

    def __getitem__(self, name: str) -> SandboxNamespace:
        """Return the namespace called `name`. Raises KeyError."""
        if name not in self._running:
            raise KeyError(f"no namespace '{name}'; there are {', '.join(self._running)}")
        return self._running[name][0]

    def nodes(self) -> list[NamespaceServer]:
        return [namespace.node for namespace in self.namespaces]

    async def add(self, spec: NamespaceSpec) -> SandboxNamespace:
        """Start a namespace, or nothing on an error. Raises ListenError, and as `NamespaceSpec.fill` does."""
        given = spec.rules
        spec = replace(spec, rules=_with_root(given))
        if spec.rules is not given:
            self._made_keys[spec.name] = spec.rules[0].primary_key
        async with AsyncExitStack() as stack:
            namespace = await _open(spec, self._clock, self._tls, self._issuer, self._listen, stack)
            namespace.node.authorization.retired = self._retired
            self._running[spec.name] = namespace, stack.pop_all()
        return namespace

    def advance(self, seconds: float) -> None:
        """Set the clock of every namespace forward. Raises ValueError unless `seconds` is above 0."""
        self._clock.advance(seconds)
        for node in self.nodes():
            node.clock_jumped()

    async def renew(self, *, retire: str | None = None) -> None:
        """Replace every namespace by a new one, as at the start: same ports and keys, the clock at the time of day.

        retire: who has the keys until now; namespaces without a root rule of their own get new keys. None: they stay.
        Connections end. Messages, faults, changed entities and the namespaces that ARM created are gone.
        A port that another program took meanwhile is replaced by a free one.
        """
        specs = self._first if retire is None else [self._without_made_key(spec, retire) for spec in self._first]
        await self.end_all()
        self._clock.restart()
        for spec in specs:
            try:
                await self.add(spec)
            except ListenError as error:
                log.warning("namespace '%s' gets another port: %s", spec.name, error)
                await self.add(replace(spec, port=0))
        self._manager.replace([_place(namespace) for namespace in self.namespaces])

    def _without_made_key(self, spec: NamespaceSpec, owner: str) -> NamespaceSpec:
        """Retire a namespace's root key if it was made here; return its settings without it."""
        key = self._made_keys.pop(spec.name, None)
        if key is None:
            return spec
        self._retired[key] = owner
        while len(self._retired) > MAX_RETIRED:
            del self._retired[next(iter(self._retired))]
        return replace(spec, rules=tuple(rule for rule in spec.rules if rule.name != KEY_NAME))

    async def open(self, spec: NamespaceSpec) -> ArmNamespace:
        """Start a namespace for ARM."""
        return _place(await self.add(spec))

    async def end(self, name: str) -> None:
        """Close the namespace's port and connections, and drop its contents."""
        _, stack = self._running.pop(name)
        await stack.aclose()

    async def end_all(self) -> None:
        for name in reversed(tuple(self._running)):
            await self.end(name)

    @classmethod
    @asynccontextmanager
    async def start(
        cls,
        namespaces: Sequence[NamespaceSpec] | None = None,
        *,
        identities: Sequence[Identity] = (),
        tenant: str = TENANT,
        control_port: int = 0,
        token_port: int = 0,
        listen: str = HOST,
        activation_s: float = 0.0,
    ) -> AsyncIterator[Sandbox]:
        """Run `namespaces`, by default a primary and a secondary one, for the duration of the context.

        They listen on the address `listen`, and so does the token endpoint for the `identities` of the `tenant`, by
        default one with every right. The control URL is always on loopback, because it issues tokens without a key.
        A namespace made through ARM accepts connections after `activation_s` seconds of the clock.
        Raises ListenError for a port in use, ValueError for a repeated name, and as `NamespaceSpec.fill` does.
        """
        specs = tuple(primary_and_secondary() if namespaces is None else namespaces)
        if len({spec.name for spec in specs}) < len(specs):
            raise ValueError(f"namespaces need names of their own, not {', '.join(spec.name for spec in specs)}")
        addresses = tuple(dict.fromkeys((listen, *(spec.address for spec in specs if spec.address))))
        _warn_of_surroundings(addresses)
        clock = SandboxClock()
        issuer = Issuer(clock.time_of_day, tenant=tenant)
        async with AsyncExitStack() as stack:
            folder = stack.enter_context(open_run_folder())
            certificates = make_certificates(
                folder, host_names=(*addresses, f"*.{DOMAIN}", *(spec.host for spec in specs if spec.host))
            )
            tls = certificates.server_context()
            running = cls(clock=clock, issuer=issuer, tls=tls, listen=listen)
            running.ca_file = certificates.ca_file
            stack.push_async_callback(running.end_all)
            for spec in specs:
                await running.add(spec)
            running._first = tuple(each.spec for each in running.namespaces)
            control = HttpControlServer(running.nodes, issuer, clock)
            stack.push_async_callback(control.close)
            arm = running._manager = ResourceManager(
                [_place(namespace) for namespace in running.namespaces],
                issuer=issuer,
                clock=clock.time_of_day,
                owner=running,
                time=clock,
                activation_s=activation_s,
                tls=tls,
            )
            stack.push_async_callback(arm.close)
            running.tokens = TokenEndpoint(issuer, identities or (Identity(ANYBODY, new_key()),), tls=tls)
            stack.push_async_callback(running.tokens.close)
            await running.tokens.open(listen, token_port)
            running.control_url = await control.open(HOST, control_port)
            running.arm_url = f"https://{host_for(listen)}:{await arm.listen(listen)}"
            _warn_of_names(running.namespaces)
            yield running


async def _open(
    spec: NamespaceSpec, clock: SandboxClock, tls: ssl.SSLContext, issuer: Issuer, listen: str, stack: AsyncExitStack
) -> SandboxNamespace:
    """Open one namespace; `stack` closes it."""
    node = NamespaceServer(spec, issuer=issuer, clock=clock, time_of_day=clock.time_of_day)
    stack.callback(node.close)
    http = open_http(node, stack)
    spec.break_in(node.faults)
    address = spec.address or listen
    ports = [await node.listener(stack, http=http.protocol, tls=tls).open(address, port) for port in spec.ports]
    root = next(rule for rule in spec.rules if rule.name == KEY_NAME)
    return SandboxNamespace(
        name=spec.name,
        amqp_port=ports[0],
        key_name=root.name,
        key=root.primary_key,
        node=node,
        spec=replace(spec, port=ports[0]),
        host=host_for(address),
        host_name=spec.host_name,
        has_standard_ports=spec.standard_ports,
    )


def open_http(node: NamespaceServer, stack: AsyncExitStack, *, pages: Mapping[str, bytes] | None = None) -> HttpsServer:
    """Return the HTTP of a namespace, WebSockets included; `stack` ends it. `pages` is JSON that needs no token."""
    management = ManagementApi(
        node.namespace,
        authorization=node.authorization,
        clock=node.time_of_day,
        changed=node.wake,
        complaints=node.complaints,
    )
    websockets = WebSocketServer(node.protocol)
    http = HttpsServer(management, node.faults, admission=node.admission, websockets=websockets, pages=pages)
    stack.push_async_callback(http.close)
    stack.callback(websockets.close)
    node.faults.watch(http.faults_changed)
    return http


def _warn_of_surroundings(addresses: Sequence[str]) -> None:
    """Warn of addresses that other machines reach, and of a proxy that clients would use."""
    for address in addresses:
        if not is_loopback(address):
            log.warning(OPEN_TO_OTHERS, address)
    remark = proxy_remark(os.environ)
    if remark is not None:
        log.warning("%s", remark)


def _warn_of_names(namespaces: Iterable[SandboxNamespace]) -> None:
    """Warn of names that lead elsewhere, on a thread: a resolver may not answer for long."""
    names = [(each.host_name, each.host.strip("[]")) for each in namespaces if each.has_standard_ports]

    def warn() -> None:
        for name in names:
            remark = name_remark(*name)
            if remark is not None:
                log.warning("%s", remark)

    if names:
        threading.Thread(target=warn, name="names of the sandbox", daemon=True).start()


def _place(namespace: SandboxNamespace) -> ArmNamespace:
    """Return the namespace for ARM."""
    return ArmNamespace(node=namespace.node, authority=f"{namespace.host}:{namespace.amqp_port}")


def _with_root(rules: Sequence[AuthorizationRule]) -> tuple[AuthorizationRule, ...]:
    """Return the rules and the root rule of every namespace."""
    if any(rule.name == KEY_NAME for rule in rules):
        return tuple(rules)
    return root_rule(KEY_NAME, new_key(), new_key()), *rules


OPEN_TO_OTHERS: Final = (
    "the namespaces listen on %s: any host that reaches this machine reaches them, plain AMQP shows tokens and "
    "messages to the network, and nothing here was made to withstand attacks; without --listen and address they are on "
    "loopback"
)
