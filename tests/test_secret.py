"""A secret is shown to nobody, whatever it is put into."""

from __future__ import annotations

import copy
import json
import logging
import pickle
import traceback
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from pprint import pformat

import msgspec
import pytest
from azure.servicebus.exceptions import ServiceBusError

from paired_servicebus import cli
from paired_servicebus.core.errors import ConfigurationError
from paired_servicebus.core.model.pairing_events import PingFailed, Record, StateChanged, Warned
from paired_servicebus.core.model.verdict import judge
from paired_servicebus.core.text.masking import masked
from paired_servicebus.engine.instance.logs import FORMAT, MaskingFormatter
from paired_servicebus.engine.journal import records
from paired_servicebus.printing import report_error
from paired_servicebus.secret import Secret
from paired_servicebus.ui.display.crash_log import CrashLog
from tests.approval import Approve

CANARY = "Endpoint=sb://contoso/;SharedAccessKeyName=Root;SharedAccessKey=c4n4ry+/=="


@dataclass(frozen=True)
class Holder:
    """Something that has a secret among its values."""

    secret: Secret


def as_json(value: object) -> str:
    return json.dumps(value, default=str)


def raised(value: object) -> str:
    try:
        raise ValueError(value)
    except ValueError as error:
        return "".join(traceback.format_exception(error))


@pytest.mark.parametrize(
    "render",
    [
        repr, str, "{}".format, "{!r:>40}".format, lambda value: f"{value:>40}", as_json, pformat, raised,
        lambda value: repr(Holder(value)), lambda value: repr(asdict(Holder(value))), lambda value: repr([value]),
        lambda value: repr(copy.deepcopy(value)), lambda value: repr(copy.copy(Holder(value))),
        lambda value: pickle.dumps(value).decode("latin-1"), lambda value: repr(pickle.loads(pickle.dumps(value))),
        lambda value: "%s" % value,  # noqa: UP031
    ],
)  # fmt: skip
def test_it_renders_as_a_mask(render: Callable[[Secret], str]) -> None:
    text = render(Secret(CANARY))
    assert "c4n4ry" not in text
    assert "contoso" not in text


def test_json_of_values_refuses_it() -> None:
    with pytest.raises(TypeError):
        msgspec.json.encode(Holder(Secret(CANARY)))
    with pytest.raises(TypeError):
        json.dumps(Secret(CANARY))


def test_it_has_no_attributes_to_look_through() -> None:
    with pytest.raises(TypeError):
        vars(Secret(CANARY))


def test_only_reveal_gives_it() -> None:
    assert Secret(CANARY).reveal() == CANARY
    assert copy.deepcopy(Secret(CANARY)).reveal() == CANARY


def test_a_pickled_copy_says_that_it_has_nothing(approve: Approve) -> None:
    with pytest.raises(ConfigurationError) as refused:
        pickle.loads(pickle.dumps(Secret(CANARY))).reveal()
    approve.part(refused.value, "errors of the command line")


def test_equal_secrets_are_equal() -> None:
    assert Secret("a") == Secret("a")
    assert Secret("a") != Secret("b")
    assert len({Secret("a"), Secret("a")}) == 1


@pytest.mark.parametrize(
    "text",
    [
        CANARY,
        "SharedAccessSignature sr=sb%3A%2F%2Fx&sig=c4n4ry%2B%3D&se=1&skn=Root",
        "failed: {'Authorization': 'Bearer c4n4ry.x.y'}",
        "SharedAccessSignature=SharedAccessSignature sr=x&sig=c4n4ry&se=1",
        "sharedaccesskey = c4n4ry;EntityPath=q",
        "headers={'Proxy-Authorization': 'Basic c4n4ry='}",
        "407, message='no', url='http://me:c4n4ry@proxy:3128'",
        "post {'client_id': 'x', 'client_secret': 'c4n4ry'}",
    ],
)
def test_texts_of_others_are_masked(text: str) -> None:
    assert "c4n4ry" not in masked(text)
    assert "***" in masked(text)


def test_a_text_without_secrets_stays_as_it_is() -> None:
    text = "the secondary namespace contoso refused the key named Root; the signature's keyname is Root"
    assert masked(text) == text


STRINGS = {
    "a token": "refused eyJ0eXAiOiJKV1Qi.c4n4rybody.c4n4rysign",
    "a client's secret": "AZURE_CLIENT_SECRET=c4n4ry~8Q.c4n4ry",
    "a quoted key": "{'SharedAccessKey': 'c4n4ry+/=='}",
    "an encoded key": "Endpoint%3Dsb%3A%2F%2Fx%2F%3BSharedAccessKey%3Dc4n4ry%2B%3D",
    "an encoded signature": "SharedAccessSignature sr=x%26sig%3Dc4n4ry%252B%26se%3D1",
    "a password": "407 of http://me:p@c4n4ry@proxy:3128",
}


@pytest.mark.parametrize("said", STRINGS.values(), ids=STRINGS)
def test_what_an_error_says_is_masked_wherever_it_goes(
    said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """No secret in logs, journal, screenshots, crash screens: by the log's formatter, the reason of a failure, the
    journal's line, a command's sentence and the file of a crash."""
    error = ConfigurationError(said)
    made = logging.LogRecord("x", logging.ERROR, "", 0, "it failed: %s", (said,), (type(error), error, None))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    crash = CrashLog("orders")
    crash.report(error)
    report_error(str(error))
    events = [
        Warned(at=1.0, about="credentials", text=said),
        PingFailed(at=1.0, entity="orders", number=1, reason=said, took=1.0),
        StateChanged(at=1.0, entity="orders", was="healthy", now="suspect", why=said),
    ]
    texts = [
        MaskingFormatter(FORMAT).format(made),
        judge(error).reason,
        judge(ServiceBusError(said)).reason,
        *(records.encode(Record(engine="e", boot="b", seq=1, event=event)).decode() for event in events),
        capsys.readouterr().err,
        Path(cli._save_traceback(error)).read_text(),
        *(path.read_text() for path in tmp_path.rglob("dashboard.log")),
    ]
    assert len(texts) == 9
    assert all("***" in text for text in texts), texts
    assert "c4n4ry" not in "".join(texts)
    assert all(json.loads(text) for text in texts if text.startswith("{"))
