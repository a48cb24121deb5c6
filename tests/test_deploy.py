"""What `deploy` has to be imported: a unit that systemd takes, rules and panels of metrics that exist, manifests whose
configuration `paired` reads."""

from __future__ import annotations

import configparser
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from paired_servicebus.config import load_settings
from paired_servicebus.core.model.entity_state import State
from paired_servicebus.engine.service.metrics import families
from paired_servicebus.engine.service.probes import PATHS
from tests import fleet_views
from tests.engine.test_probes import snapshot

DEPLOY = Path(__file__).parents[1] / "console/paired_servicebus/deploy"
PROGRAM = "/opt/paired/bin/paired"
MANIFESTS = sorted((DEPLOY / "kubernetes").glob("*.yaml"))


# -- systemd -------------------------------------------------------------------------------------------------------


@pytest.fixture
def unit() -> str:
    return (DEPLOY / "paired@.service").read_text()


def test_it_has_what_a_service_with_secrets_needs(unit: str) -> None:
    read = configparser.ConfigParser(strict=False, interpolation=None)
    read.optionxform = str  # type: ignore[assignment,method-assign]
    read.read_string(unit)
    service = read["Service"]
    assert service["Type"] == "notify"
    assert service["ExecStart"].startswith(f"{PROGRAM} up --foreground ")
    assert service["Restart"] == "on-failure"
    assert service["RuntimeDirectory"] == service["StateDirectory"] == "paired"
    assert (service["Group"], service["RuntimeDirectoryMode"]) == ("oncall", "0750")
    assert service["StateDirectoryMode"] == "0700"  # the journal and the lock are no group's
    assert "LoadCredential" in service


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not here")
def test_systemd_verifies_it(unit: str, tmp_path: Path) -> None:
    (tmp_path / "paired@.service").write_text(unit.replace(PROGRAM, sys.executable))
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(tmp_path / "paired@orders.service")],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    ours = [line for line in done.stderr.splitlines() if "paired@" in line]
    assert ours == []


# -- Prometheus and Grafana ----------------------------------------------------------------------------------------


def metrics_of(text: str) -> set[str]:
    return set(re.findall(r"\bpaired_\w+", text))


@pytest.fixture(scope="module")
def made() -> set[str]:
    """The names of all samples of an engine in a fleet."""
    every = families(snapshot(fleet=fleet_views.calm()))
    return {f"{each.name}_total" if each.type == "counter" else each.name for each in every}


def test_each_alert_has_a_severity_and_names_metrics_that_exist(made: set[str]) -> None:
    text = (DEPLOY / "prometheus-rules.yaml").read_text()
    (group,) = yaml.safe_load(text)["groups"]
    assert {"critical", "warning"} == {rule["labels"]["severity"] for rule in group["rules"]}
    for rule in group["rules"]:
        assert rule["labels"]["severity"] in {"critical", "warning"}, rule["alert"]
        assert rule["annotations"]["summary"], rule["alert"]
        assert metrics_of(rule["expr"]) <= made, rule["alert"]
    gone = next(rule["expr"] for rule in group["rules"] if rule["alert"] == "PairedEngineGone")
    assert "absent(" in gone, "a target that vanishes has no `up` of 0"
    for states in re.findall(r'entity_state\{state=~"([^"]+)"', text):
        assert set(states.split("|")) <= set(State)


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not here")
def test_promtool_checks_the_rules() -> None:
    command = ["promtool", "check", "rules", str(DEPLOY / "prometheus-rules.yaml")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr


def test_each_panel_shows_metrics_that_exist(made: set[str]) -> None:
    board = json.loads((DEPLOY / "grafana-dashboard.json").read_text())
    shown = [target["expr"] for panel in board["panels"] for target in panel["targets"]]
    assert len(shown) == len(board["panels"]) > 8
    for expression in shown:
        assert metrics_of(expression), expression
        assert metrics_of(expression) <= made, expression
    places = [tuple(panel["gridPos"][key] for key in "xy") for panel in board["panels"]]
    assert len(set(places)) == len(places), "no panel covers another"


def test_the_page_on_metrics_names_some_that_exist(made: set[str]) -> None:
    page = (DEPLOY.parent / "engine/README.md").read_text()
    assert set(re.findall(r"rate\((paired_\w+)", page)) <= made


# -- containers ----------------------------------------------------------------------------------------------------


def pods(manifest: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Its ConfigMap and the pod of its workload."""
    settings, workload = yaml.safe_load_all(manifest.read_text())
    return settings, workload["spec"]["template"]["spec"]


@pytest.mark.parametrize("manifest", MANIFESTS, ids=lambda path: path.stem)
def test_the_configuration_of_a_manifest_is_one(manifest: Path, tmp_path: Path) -> None:
    settings, pod = pods(manifest)
    file = tmp_path / "pairing.toml"
    file.write_text(settings["data"]["pairing.toml"])
    found = load_settings(file)
    assert found.metrics is not None
    assert not found.metrics.loopback, "the kubelet asks from outside of the pod"
    assert found.policy.enable_syphon is (manifest.stem == "syphon")
    assert pod["volumes"][0]["configMap"]["name"] == settings["metadata"]["name"]


@pytest.mark.parametrize("manifest", MANIFESTS, ids=lambda path: path.stem)
def test_a_pod_is_restricted_probed_and_has_its_secrets_as_files(manifest: Path) -> None:
    _, pod = pods(manifest)
    engine = next(one for one in pod["containers"] if one["name"] == "paired")
    assert pod["securityContext"]["runAsNonRoot"]
    assert engine["securityContext"]["readOnlyRootFilesystem"]
    assert not engine["securityContext"]["allowPrivilegeEscalation"]
    assert {engine[probe]["httpGet"]["path"] for probe in ("livenessProbe", "readinessProbe")} == {"/livez", "/readyz"}
    assert {"/livez", "/readyz"} < set(PATHS)
    assert "env" not in engine, "no secret is in the environment"
    secrets = next(volume["secret"] for volume in pod["volumes"] if volume["name"] == "secrets")
    assert secrets["defaultMode"] == 0o440, "a file that every user can read is refused"
    assert pod["terminationGracePeriodSeconds"] > 90


def test_the_syphons_receipts_are_on_a_volume_that_outlives_the_pod() -> None:
    _, workload = yaml.safe_load_all((DEPLOY / "kubernetes/syphon.yaml").read_text())
    (claim,) = workload["spec"]["volumeClaimTemplates"]
    mounts = workload["spec"]["template"]["spec"]["containers"][0]["volumeMounts"]
    assert {"name": claim["metadata"]["name"], "mountPath": "/state"} in mounts
    assert "XDG_STATE_HOME=/state" in (DEPLOY / "Containerfile").read_text()


def test_the_image_runs_as_no_user_of_its_own_and_without_build_tools() -> None:
    lines = (DEPLOY / "Containerfile").read_text().splitlines()
    stage = lines[max(number for number, line in enumerate(lines) if line.startswith("FROM ")) :]
    assert "USER 10001:10001" in stage
    assert not [line for line in stage if line.startswith("RUN")], "the last stage installs nothing"
    assert 'CMD ["up", "--foreground", "--config", "/etc/paired/pairing.toml"]' in stage
