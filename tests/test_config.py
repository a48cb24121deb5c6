"""pairing.toml: every setting is read, every mistake gets a sentence with what, where and what would be right."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from paired_servicebus import config
from paired_servicebus.config import find_config, load_config, load_settings
from paired_servicebus.core.errors import ConfigurationError
from paired_servicebus.core.model.policy import Policy
from paired_servicebus.sections.fleet_options import Fleet
from paired_servicebus.sections.gateway_options import GatewayOptions
from tests.approval import Approve

KEY = "SharedAccessKeyName=Root;SharedAccessKey=c4n4ry="
ENVIRON = {
    "PRIMARY": f"Endpoint=sb://contoso.servicebus.windows.net/;{KEY}",
    "SECONDARY": f"Endpoint=sb://backup.servicebus.windows.net/;{KEY}",
}
NAMESPACES = """
[primary]
connection_string = { env = "PRIMARY" }
[secondary]
connection_string = { env = "SECONDARY" }
"""


def read(folder: Path, text: str, **more: str) -> config.PairingConfig:
    path = folder / "pairing.toml"
    path.write_text(text)
    return load_config(path, environ=ENVIRON | more)


def with_pairing(settings: str) -> str:
    return f'[pairing]\nname = "orders"\n{settings}\n{NAMESPACES}'


def with_primary(settings: str) -> str:
    return (
        f'[pairing]\nname = "orders"\n[primary]\n{settings}\n[secondary]\nconnection_string = {{ env = "SECONDARY" }}\n'
    )


def test_the_smallest_file_has_the_defaults_and_a_syphon(tmp_path: Path) -> None:
    found = read(tmp_path, with_pairing(""))
    assert found.name == "orders"
    assert found.policy == Policy(enable_syphon=True)
    assert (found.environment, found.entities, found.read_only, found.require_reason) == ("", (), False, False)
    assert (found.primary.host, found.secondary.host) == (
        "contoso.servicebus.windows.net",
        "backup.servicebus.windows.net",
    )
    assert found.primary.connection_string is not None
    assert found.primary.connection_string.reveal() == ENVIRON["PRIMARY"]
    assert not found.primary.emulated


def test_an_operators_shell_needs_no_secret_to_name_the_engine(tmp_path: Path, approve: Approve) -> None:
    """The engine may be a service whose secrets only it can read."""
    (path := tmp_path / "pairing.toml").write_text(with_pairing('environment = "production"'))
    found = load_settings(path)
    assert (found.name, found.environment, found.policy) == ("orders", "production", Policy(enable_syphon=True))
    with pytest.raises(ConfigurationError) as refused:
        load_config(path, environ={})
    approve.part(refused.value, "errors of configuration")


@pytest.mark.parametrize(
    ("given", "address", "loopback"),
    [
        ("9464", "127.0.0.1:9464", True),
        ('"127.0.0.1:9464"', "127.0.0.1:9464", True),
        ('"localhost:9464"', "localhost:9464", True),
        ('"[::1]:9464"', "[::1]:9464", True),
        ('"0.0.0.0:9464"', "0.0.0.0:9464", False),
    ],
)
def test_metrics_are_for_this_machine_unless_told_otherwise(
    tmp_path: Path, given: str, address: str, loopback: bool
) -> None:
    found = read(tmp_path, with_pairing(f"metrics = {given}")).metrics
    assert (str(found), found and found.loopback) == (address, loopback)


def with_gateway(settings: str) -> str:
    return f"{with_pairing('')}[gateway]\n{settings}\n"


def test_a_gateway_listens_on_loopback_and_holds_sends_until_the_failover(tmp_path: Path) -> None:
    # "Engine with a gateway: hold_until_failover = true, send_timeout = 10 s by default"
    assert read(tmp_path, with_pairing("")).gateway is None
    found = read(tmp_path, with_gateway(""))
    assert found.gateway == GatewayOptions(port=5672, address="127.0.0.1", keys=None)
    assert (found.policy.hold_until_failover, found.policy.send_timeout) == (True, 10.0)
    assert found.remarks == (), "its clients send again: no warning about the short send_timeout"


def test_a_gateway_leaves_the_pairings_own_settings(tmp_path: Path) -> None:
    text = with_gateway("port = 5680").replace(
        "[primary]", 'send_timeout = "20s"\nhold_until_failover = false\n[primary]'
    )
    found = read(tmp_path, text)
    assert found.gateway is not None
    assert found.gateway.port == 5680
    assert (found.policy.hold_until_failover, found.policy.send_timeout) == (False, 20.0)


def test_other_hosts_reach_a_gateway_only_if_the_file_says_so_twice(tmp_path: Path) -> None:
    found = read(tmp_path, with_gateway('address = "0.0.0.0"\nallow_other_hosts = true\nkeys = "k"')).gateway
    assert found == GatewayOptions(address="0.0.0.0", keys=tmp_path / "k")
    assert read(tmp_path, with_gateway('address = "::1"')).gateway == GatewayOptions(address="::1")


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ('address = "0.0.0.0"', "which other hosts reach: .*allow_other_hosts = true"),
        ("allow_other_hosts = true", "which only this machine reaches"),
        ('address = "localhost"', "an IP address of this machine"),
        ("port = 0", "a port from 1 to 65535"),
        ("port = true", "a port from 1 to 65535"),
        ("keys = 7", "a text that is not empty"),
        ("prot = 5680", "no setting; did you mean port"),
    ],
)
def test_a_mistake_in_the_gateways_section_gets_a_sentence(tmp_path: Path, settings: str, words: str) -> None:
    with pytest.raises(ConfigurationError, match=rf"pairing.toml: \[gateway\] .*{words}"):
        read(tmp_path, with_gateway(settings))


def test_a_command_is_split_as_a_shell_would(tmp_path: Path, approve: Approve) -> None:
    assert read(tmp_path, with_pairing("")).on_change == ()
    found = read(tmp_path, with_pairing("on_change = \"sh -c 'tell $PAIRED_TEXT' x\""))
    approve.part(found.on_change, "errors of configuration")


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ("backlog_queue_count = 3", {"backlog_queue_count": 3}),
        ('failover_interval = "500ms"', {"failover_interval": 0.5}),
        ("failover_interval = 0", {"failover_interval": 0}),
        ('ping_primary_interval = "2m"', {"ping_primary_interval": 120.0}),
        ('ping_timeout = "1.5 s"', {"ping_timeout": 1.5}),
        ('cool_down = "2h"', {"cool_down": 7200.0}),
        ("send_timeout = 2.5", {"send_timeout": 2.5}),
        ("enable_syphon = false", {"enable_syphon": False}),
        ("hold_until_failover = true", {"hold_until_failover": True}),
        ('ping = "link"', {"ping": "link"}),
        ('ttl_policy = "elapsed"', {"ttl_policy": "elapsed"}),
        ('journal = "all"', {"journal": "all"}),
        ("failback_pings = 3", {"failback_pings": 3}),
    ],
)
def test_options_are_read_by_their_names(tmp_path: Path, settings: str, expected: dict[str, Any]) -> None:
    assert read(tmp_path, with_pairing(settings)).policy == Policy(**({"enable_syphon": True} | expected))


def test_options_that_do_not_go_together_are_remarked_with_the_file(tmp_path: Path, approve: Approve) -> None:
    found = read(tmp_path, with_pairing('hold_until_failover = true\nfailover_interval = "1m"\nstart_degraded = true'))
    assert found.policy.start_degraded
    (remark,) = found.remarks
    approve.part(remark, "errors of configuration", has=("[pairing]", "hold_until_failover", "send_timeout"))
    assert read(tmp_path, with_pairing('hold_until_failover = true\nfailover_interval = "20s"')).remarks == ()
    (unused,) = read(tmp_path, with_pairing("record_received = true")).remarks
    approve.part(unused, "errors of configuration", has=("record_received",))


def test_every_option_can_be_set() -> None:
    assert set(Policy.__dataclass_fields__) <= set(config.PAIRING_KEYS)


def test_a_namespace_can_be_entered_by_identity(tmp_path: Path) -> None:
    settings = 'namespace = "contoso.servicebus.windows.net"\ncredential = "managed"\nname = "contoso-eu"'
    primary = read(tmp_path, with_primary(settings)).primary
    assert (primary.host, primary.credential, primary.name) == (
        "contoso.servicebus.windows.net",
        "managed",
        "contoso-eu",
    )
    assert primary.connection_string is None


@pytest.mark.parametrize(
    ("mode", "folder", "said"),
    [(0o644, 0o755, True), (0o444, 0o755, True), (0o640, 0o755, False), (0o400, 0o755, False), (0o644, 0o700, False)],
)
def test_a_secret_that_every_user_can_read_is_used_and_remarked_once(
    tmp_path: Path, mode: int, folder: int, said: bool
) -> None:
    """Containers mount secrets so: it is no reason to refuse one."""
    where = tmp_path / "secrets"
    where.mkdir(mode=folder)
    (where / "key").write_text(ENVIRON["PRIMARY"])
    (where / "key").chmod(mode)
    found = read(tmp_path, with_primary('connection_string = { file = "secrets/key" }'))
    assert found.primary.connection_string is not None
    assert len(found.remarks) == said
    assert "c4n4ry" not in str(found.remarks)
    if said:
        (remark,) = found.remarks
        assert remark.startswith(f"the secret of [primary] connection_string stands in {where / 'key'}")
        assert "chmod o-r" in remark


def test_a_secret_can_come_from_a_file_beside_the_settings(tmp_path: Path) -> None:
    (tmp_path / "key.txt").write_text(ENVIRON["PRIMARY"] + "\n")
    primary = read(tmp_path, with_primary('connection_string = { file = "key.txt" }')).primary
    assert primary.connection_string is not None
    assert primary.connection_string.reveal() == ENVIRON["PRIMARY"]


@pytest.mark.parametrize("host", ["127.0.0.1:5671", "localhost:9", "[::1]:5672"])
def test_the_key_of_a_sandbox_may_stand_in_the_file(tmp_path: Path, host: str) -> None:
    text = f'connection_string = "Endpoint=sb://{host};{KEY};UseDevelopmentEmulator=true"'
    primary = read(tmp_path, with_primary(text)).primary
    assert primary.host == host
    assert primary.emulated


def test_the_last_settings_of_a_namespace(tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_text("")
    settings = (
        'connection_string = { env = "PRIMARY" }\nca_file = "ca.pem"\ntransport = "websocket"\n'
        'proxy = { env = "PROXY" }\ncustom_endpoint = "gateway.example.com:8443"\nmanagement = "arm"\n'
        'subscription = "s"\nresource_group = "g"\narm_url = "https://management.example.com/"\ncredential = "cli"'
    )
    primary = read(tmp_path, with_primary(settings), PROXY="http://me:pw@proxy:3128").primary
    assert primary.ca_file == tmp_path / "ca.pem"
    assert (primary.transport, primary.management, primary.credential) == ("websocket", "arm", "cli")
    assert (primary.custom_endpoint, primary.arm_url) == (
        "sb://gateway.example.com:8443",
        "https://management.example.com",
    )
    assert primary.proxy is not None
    assert primary.proxy.reveal() == "http://me:pw@proxy:3128"


def test_a_proxy_without_a_password_may_stand_in_the_file(tmp_path: Path) -> None:
    primary = read(tmp_path, with_primary('namespace = "a.b"\nproxy = "http://proxy:3128"')).primary
    assert primary.proxy is not None
    assert primary.proxy.reveal() == "http://proxy:3128"


def test_a_client_with_a_secret_is_told_by_the_file(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("c4n4ry\n")
    settings = (
        'namespace = "a.b"\ncredential = "client-secret"\ntenant = "t"\nclient_id = "c"\n'
        'client_secret = { file = "secret" }\nauthority = "login.microsoftonline.us"'
    )
    primary = read(tmp_path, with_primary(settings)).primary
    assert (primary.tenant, primary.client_id, primary.authority) == ("t", "c", "login.microsoftonline.us")
    assert primary.client_secret is not None
    assert primary.client_secret.reveal() == "c4n4ry"
    assert "c4n4ry" not in repr(primary)


def test_a_client_with_a_secret_is_told_by_the_environment_as_the_ecosystem_does(tmp_path: Path) -> None:
    settings = 'namespace = "a.b"\ncredential = "client-secret"\ntenant = "mine"'
    environ = {"AZURE_TENANT_ID": "t", "AZURE_CLIENT_ID": "c", "AZURE_CLIENT_SECRET": "c4n4ry"}
    primary = read(tmp_path, with_primary(settings), **environ).primary
    assert (primary.tenant, primary.client_id) == ("mine", "c")
    assert primary.client_secret is not None
    assert primary.client_secret.reveal() == "c4n4ry"


def test_nothing_secret_is_in_the_repr(tmp_path: Path) -> None:
    assert "c4n4ry" not in repr(read(tmp_path, with_pairing("")))


@pytest.mark.parametrize("host", ["contoso.servicebus.windows.net", "10.0.0.7:5672", "emulator", "127.0.0.1.a.com"])
def test_plain_amqp_is_for_this_machine_alone(tmp_path: Path, host: str) -> None:
    """UseDevelopmentEmulator=true means AMQP without TLS: a key and every message in clear."""
    string = f"Endpoint=sb://{host}/;{KEY};UseDevelopmentEmulator=true"
    with pytest.raises(ConfigurationError) as refused:
        read(tmp_path, with_primary('connection_string = { env = "PLAIN" }'), PLAIN=string)
    said = str(refused.value)
    assert f"has UseDevelopmentEmulator=true for {host}, which is not this machine" in said
    assert "leave that part out" in said
    assert "c4n4ry" not in said


@pytest.mark.parametrize(
    ("more", "refused"), [("", True), ('transport = "websocket"', False), ('proxy = "http://proxy:3128"', False)]
)
def test_plain_amqp_is_led_to_no_other_machine(tmp_path: Path, more: str, refused: bool) -> None:
    string = f"Endpoint=sb://127.0.0.1/;{KEY};UseDevelopmentEmulator=true"
    settings = f'connection_string = {{ env = "PLAIN" }}\ncustom_endpoint = "sb://10.0.0.7:5671"\n{more}'
    if refused:
        with pytest.raises(ConfigurationError, match=r"custom_endpoint is sb://10\.0\.0\.7:5671, which is not"):
            read(tmp_path, with_primary(settings), PLAIN=string)
    else:
        assert read(tmp_path, with_primary(settings), PLAIN=string).primary.emulated
    here = settings.replace("10.0.0.7", "localhost")
    assert read(tmp_path, with_primary(here), PLAIN=string).primary.emulated


PROXY_WITH_PASSWORD = "http://me:c4n4ry@proxy:3128"
ARM = 'namespace = "a.b"\nmanagement = "arm"\nsubscription = "s"\nresource_group = "g"\n'
LOOPBACK_WITHOUT_FLAG = f'connection_string = "Endpoint=sb://127.0.0.1;{KEY}"'
EMULATOR_ELSEWHERE = f'connection_string = "Endpoint=sb://contoso.net;{KEY};UseDevelopmentEmulator=true"'


@pytest.mark.parametrize(
    ("text", "what", "right"),
    [
        ("[pairing", "is not TOML", "line 1, column 9"),
        ('[pairing]\nname = "a"\nname = "b"', "is not TOML", "line 3"),
        ("", "section [pairing] is missing", "a pairing has pairing, primary, secondary"),
        ('[pairing]\nname = "orders"\n[primary]\nnamespace = "x.y"', "section [secondary] is missing", "a pairing has"),
        ("[pairing]\n" + NAMESPACES, "[pairing] name is missing", 'name = "orders"'),
        ("pairing = 3", "pairing is 3", "it is a section"),
        (with_pairing("") + "[primry]\n", "[primry] is no section", "did you mean primary?"),
        (
            with_pairing("failover_intervall = 3"),
            "[pairing] failover_intervall is no",
            "did you mean failover_interval?",
        ),
        (with_pairing("colour = 3"), "[pairing] colour is no setting", "there are name, environment"),
        (with_pairing('failover_interval = "soon"'), "[pairing] failover_interval is 'soon'", '"30s", "1m", "500ms"'),
        (with_pairing("failover_interval = true"), "failover_interval is True", '"30s"'),
        (with_pairing('failover_interval = "2h"'), "[pairing] failover_interval is 7200", "0 to 3600 seconds"),
        (with_pairing("ping_timeout = 0.5"), "[pairing] ping_timeout is 0.5", "1 to 120 seconds"),
        (with_pairing("backlog_queue_count = 0"), "[pairing] backlog_queue_count is 0", "1 to 10000"),
        (with_pairing("backlog_queue_count = 2.5"), "backlog_queue_count is 2.5", "a whole number"),
        (with_pairing("throttle_wait = 5"), "[pairing] throttle_wait is 5", "10 to"),
        (with_pairing("failover_interval = nan"), "failover_interval is nan", "0 to 3600"),
        (with_pairing('enable_syphon = "yes"'), "[pairing] enable_syphon is 'yes'", "true or false"),
        (with_pairing('ping = "icmp"'), "[pairing] ping is 'icmp'", "one of message, link"),
        (with_pairing('ping = ["link"]'), "[pairing] ping is ['link']", "one of message, link"),
        (with_pairing('entities = "orders"'), "[pairing] entities is 'orders'", '["orders", "audit"]'),
        (with_pairing('entities = ["a", ""]'), "[pairing] entities is ['a', '']", "lists queues and topics"),
        (with_pairing('entities = ["a", "A"]'), "names an entity twice", "without case"),
        (with_pairing('entities = ["a/$management"]'), "[pairing] entities has 'a/$management'", "begins with '$'"),
        (with_pairing('destinations = "entities"'), "[pairing] destinations", "needs entities"),
        (with_pairing('destinations = ["a"]'), "[pairing] destinations is ['a']", "any, entities"),
        (with_pairing('entities = ["a"]\nprobe = ["b"]'), "[pairing] probe names 'b'", "entities does not list"),
        (with_pairing("journal_mb = 1"), "[pairing] journal_mb is 1", "64 at least"),
        (with_pairing('journal_mb = "4 GB"'), "[pairing] journal_mb is", "whole number of megabytes"),
        (with_pairing("metrics = true"), "[pairing] metrics is True", "a port of this machine such as 9464"),
        (with_pairing('on_change = "tell \\"us"'), "[pairing] on_change is", "cannot be split into words"),
        (with_pairing('on_change = " "'), "[pairing] on_change is", "a text that is not empty"),
        (with_pairing('on_change = ["a"]'), "[pairing] on_change is", "a text"),
        (with_pairing("metrics = 0"), "[pairing] metrics is 0", "9464"),
        (with_pairing("metrics = 70000"), "[pairing] metrics is 70000", "9464"),
        (with_pairing('metrics = "example.com:9464"'), "[pairing] metrics is", "127.0.0.1:9464"),
        (with_pairing('metrics = ":9464"'), "[pairing] metrics is", "127.0.0.1:9464"),
        (with_pairing("probe = true"), "[pairing] probe is True", "lists queues and topics"),
        (with_pairing("environment = 3"), "[pairing] environment is 3", "a text"),
        (with_pairing("").replace('"orders"', '"or/ders"'), "[pairing] name is 'or/ders'", "letters, digits"),
        (with_primary('connection_string = { env = "NOPE" }'), "environment variable NOPE", "export NOPE"),
        (with_primary('connection_string = { file = "none" }'), "the file none, which cannot be read", "No such file"),
        (with_primary('connection_string = { env = "PRIMARY", file = "x" }'), "this file may not contain", "{ env ="),
        (with_primary(LOOPBACK_WITHOUT_FLAG), "this file may not contain", '{ env = "NAME" }'),
        (with_primary(EMULATOR_ELSEWHERE), "this file may not contain", '{ file = "PATH" }'),
        (with_primary('connection_string = { env = "EMPTY" }'), "has no Endpoint", "copy the namespace's"),
        (with_primary('connection_string = { env = "KEYLESS" }'), "has no SharedAccessKeyName", "copy the namespace's"),
        (with_primary('connection_string = { env = "ENTITY" }'), "is one entity's", "needs the namespace's"),
        (with_primary('connection_string = { env = "PORT" }'), "has no Endpoint", "copy the namespace's"),
        (with_primary(""), "[primary] has either", "connection_string or a namespace"),
        (with_primary('connection_string = { env = "PRIMARY" }\nnamespace = "a.b"'), "has either", "not both"),
        (
            with_primary('connection_string = { env = "PRIMARY" }\ncredential = "cli"'),
            "[primary] credential",
            "namespace",
        ),
        (with_primary('namespace = "sb://a.b"'), "[primary] namespace is 'sb://a.b'", '"contoso.servicebus'),
        (with_primary(f'namespace = "Endpoint=sb://a;{KEY}"'), "[primary] namespace is", '"contoso.servicebus'),
        (with_primary('namespace = "a.b"\ncredential = "magic"'), "credential is 'magic'", "default, managed, cli"),
        (with_primary('namespace = "a.b"\nca_file = "no.pem"'), "'no.pem', which is not a file", "ca_file"),
        (with_primary('namespace = "a.b"\nproxy = "proxy"'), "[primary] proxy is no proxy", "http://proxy.example.com"),
        (with_primary('namespace = "a.b"\nmanagement = "arm"'), 'management = "arm"', "needs subscription"),
        (with_primary(f'namespace = "a.b"\nproxy = "{PROXY_WITH_PASSWORD}"'), "proxy carries a password", "{ env ="),
        (with_primary('namespace = "a.b"\nproxy = { env = "NOPE" }'), "environment variable NOPE", "export NOPE"),
        (with_primary('namespace = "a.b"\nproxy = 3'), "[primary] proxy is a secret", '{ file = "PATH" }'),
        (with_primary('namespace = "a.b"\ntransport = "udp"'), "transport is 'udp'", "one of amqp, websocket"),
        (with_primary('namespace = "a.b"\nmanagement = 3'), "management is 3", "one of atom, arm"),
        (with_primary('namespace = "a.b"\ncustom_endpoint = "http://x"'), "custom_endpoint is 'http://x'", "sb://gate"),
        (with_primary('namespace = "a.b"\ncustom_endpoint = "x:y:z"'), "custom_endpoint is 'x:y:z'", "sb://gateway"),
        (with_primary(f'{ARM}arm_url = "http://x"'), "arm_url is 'http://x'", "https://management.azure.com"),
        (with_primary('namespace = "a.b"\nsubscription = "s"'), "subscription goes with management", '"arm"'),
        (with_primary('namespace = "a.b"\ntenant = "t"'), "tenant goes with credential", '"cli" or "client-secret"'),
        (with_primary('namespace = "a.b"\ntenant = 3'), "[primary] tenant is 3", "a text"),
        (with_primary('namespace = "a.b"\ncredential = "managed"\nauthority = "x.y"'), "authority goes", '"default"'),
        (with_primary('namespace = "a.b"\nauthority = "https://x"'), "authority is 'https://x'", "it is a host"),
        (with_primary('namespace = "a.b"\nclient_secret = "c4n4ry"'), "client_secret is a secret", "{ env ="),
        (with_primary('namespace = "a.b"\nclient_secret = { file = "empty" }'), "the file empty, which is", "empty"),
        (with_primary('namespace = "a.b"\ncredential = "client-secret"'), "needs tenant", "AZURE_TENANT_ID"),
        (with_primary('connection_string = { env = "PRIMARY" }\nclient_id = "x"'), "client_id goes with", "namespace"),
        (
            with_primary('namespace = "a.b"\nconection_string = 1'),
            "conection_string",
            "did you mean connection_string?",
        ),
    ],
)
def test_a_mistake_gets_one_sentence(tmp_path: Path, text: str, what: str, right: str) -> None:
    more = {
        "EMPTY": "nothing like it",
        "KEYLESS": "Endpoint=sb://a.b/",
        "ENTITY": ENVIRON["PRIMARY"] + ";EntityPath=orders",
        "PORT": f"Endpoint=sb://a.b:99999/;{KEY}",
    }
    (tmp_path / "empty").touch()
    with pytest.raises(ConfigurationError) as caught:
        read(tmp_path, text, **more)
    sentence = str(caught.value)
    assert str(tmp_path / "pairing.toml") in sentence
    assert what in sentence
    assert right in sentence
    assert "\n" not in sentence
    assert "c4n4ry" not in sentence


def test_a_file_that_is_no_text(tmp_path: Path, approve: Approve) -> None:
    path = tmp_path / "pairing.toml"
    path.write_bytes(b"name = '\xff'")
    with pytest.raises(ConfigurationError) as refused:
        load_config(path)
    approve.part(refused.value, "errors of configuration")


# -- where it is looked for -----------------------------------------------------------------------------------------


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder and a configuration folder with nothing in them."""
    (tmp_path / "work").mkdir()
    (tmp_path / "config" / "paired").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "work")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    return tmp_path


def test_the_named_file_comes_first_then_this_folder_then_the_users(elsewhere: Path) -> None:
    users, here, named = elsewhere / "config/paired/pairing.toml", elsewhere / "work/pairing.toml", elsewhere / "x.toml"
    users.touch()
    assert find_config() == users
    here.touch()
    assert find_config() == here
    named.touch()
    assert find_config(named) == named


def test_a_missing_file_says_where_it_was_looked_for(elsewhere: Path) -> None:
    with pytest.raises(ConfigurationError) as caught:
        find_config()
    assert str(elsewhere / "work/pairing.toml") in str(caught.value)
    assert str(elsewhere / "config/paired/pairing.toml") in str(caught.value)
    assert "--config" in str(caught.value)


def test_a_named_file_that_is_not_there_is_not_replaced_by_another(elsewhere: Path, approve: Approve) -> None:
    (elsewhere / "work/pairing.toml").touch()
    with pytest.raises(ConfigurationError) as refused:
        find_config(Path("nope.toml"))
    approve.part(refused.value, "errors of configuration")


# -- the fleet -----------------------------------------------------------------------------------------------------


def with_fleet(settings: str) -> str:
    return f"{with_pairing('')}\n[fleet]\n{settings}\n"


def test_without_a_table_an_engine_takes_no_part_in_the_fleet(tmp_path: Path) -> None:
    assert read(tmp_path, with_pairing("")).fleet is None
    assert read(tmp_path, with_fleet("")).fleet == Fleet()


def test_the_fleets_settings_are_read(tmp_path: Path) -> None:
    text = (
        'operators = "operators"\nexpect = ["web-1", "web-2"]\nname = { env = "POD" }\norders = { env = "SECONDARY" }'
    )
    found = read(tmp_path, with_fleet(text), POD="web-1").fleet
    assert found is not None
    assert (found.operators, found.name) == (tmp_path / "operators", "web-1")
    assert found.expect == ("web-1", "web-2")
    assert found.orders is not None
    assert found.orders.reveal() == ENVIRON["SECONDARY"]
    assert found.reports is None
    assert "c4n4ry" not in repr(found)


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ("expect = 0", "a number of engines from 1 to 5000, or a list of their names"),
        ("expect = true", "a number of engines from 1 to 5000, or a list of their names"),
        ('expect = ["a", "A"]', "names an engine twice"),
        ('expect = ["a b"]', "has a name of an engine that is not 1 to 64 letters"),
        ('name = "a b"', "1 to 64 letters, digits, dots, dashes or underscores"),
        ('name = { env = "POD" }', "comes from the environment variable POD, which is not set"),
        ("expct = 3", "did you mean expect?"),
        ('orders = { env = "OTHER" }', "is the connection string of another entity"),
    ],
)
def test_a_mistake_in_the_fleets_table_has_a_sentence(tmp_path: Path, settings: str, sentence: str) -> None:
    other = f"{ENVIRON['SECONDARY']};EntityPath=payments"
    with pytest.raises(ConfigurationError) as failure:
        read(tmp_path, with_fleet(settings), OTHER=other)
    assert sentence in str(failure.value)
    assert "[fleet]" in str(failure.value)
    assert "c4n4ry" not in str(failure.value)


@pytest.mark.parametrize(("section", "hidden"), [("", False), ('bodies = "shown"', False), ('bodies = "hidden"', True)])
def test_bodies_are_hidden_only_if_the_console_section_says_so(tmp_path: Path, section: str, hidden: bool) -> None:
    assert read(tmp_path, f"{with_pairing('')}[console]\n{section}\n").hides_bodies is hidden
    assert not read(tmp_path, with_pairing("")).hides_bodies


def test_a_mistake_in_the_consoles_section_has_a_sentence(tmp_path: Path, approve: Approve) -> None:
    with pytest.raises(ConfigurationError) as refused:
        read(tmp_path, f'{with_pairing("")}[console]\nbodies = "no"\n')
    approve.part(refused.value, "errors of configuration")
