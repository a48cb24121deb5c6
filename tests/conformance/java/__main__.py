"""The command `python -m tests.conformance.java`: run checks with Microsoft's Java client on a sandbox.

Maven fetches azure-messaging-servicebus. The checks are methods of the classes in `src`; `pom.xml` names the client's
version. Maven compiles in a temporary
folder, which is used again, and keeps packages in its own cache. Each check has a namespace of its own, so several run
at once. Exit status: 0 when every check passed, 1 when one did not. Where the checks cannot be run it prints
`skipped: java` and the reason, and the status is 0, with --required 1.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from tests.conformance.checking import ENDING, Skipped, Verdict, fetch, run, sandbox_facts

PROJECT: Final = Path(__file__).parent
OLDEST_JAVA: Final = 17
BUILDING_SECONDS: Final = 300.0
LIBRARIES: Final = "libraries"
"""The file with the packages of the class path; Maven writes it last."""
CHECKS: Final = (
    # MessageChecks
    "sendsOneMessage",
    "sendsAList",
    "fillsABatchToTheLimit",
    "refusesABatchAboveTheLimit",
    "refusesAMessageThatIsTooLarge",
    "sendsAMessageOfSeveralFrames",
    "assignsAMessageIdIfThereIsNone",
    "keepsSystemProperties",
    "setsBrokerProperties",
    "keepsTheTypesOfApplicationProperties",
    "sendsAValueBody",
    "sendsASequenceBody",
    "sendsAnEmptyBody",
    "keepsTheHeader",
    "sendsAReceivedMessageAgain",
    "peeksWithoutReceiving",
    "schedulesAndCancels",
    "receivesAScheduledMessageWhenDue",
    "deadLettersAnExpiredMessage",
    "detectsADuplicate",
    # SettlementChecks
    "receivesAndDeletes",
    "receivesNothingFromAnEmptyQueue",
    "completesEachOfMany",
    "abandonCountsTheDelivery",
    "deadLettersAfterTooManyDeliveries",
    "receivesADeferredMessage",
    "receivesSeveralDeferredMessages",
    "findsNoDeferredMessageOfAnotherNumber",
    "deadLettersWithAReason",
    "renewsAMessageLock",
    "losesALockThatEnds",
    "processorCompletesMessages",
    "processorAbandonsWhatFails",
    "processorRenewsLocks",
    # SessionChecks
    "acceptsANamedSession",
    "acceptsTheNextSession",
    "findsNoNextSession",
    "refusesASessionThatIsHeld",
    "acceptsASessionAgainAfterClosing",
    "keepsSessionState",
    "renewsASessionLock",
    "settlesInASession",
    "peeksInASession",
    "refusesAMessageWithoutASession",
    "sessionProcessorTakesSeveralSessions",
    # TopicChecks
    "subscriptionReceivesACopy",
    "subscriptionHasDeadLetters",
    "schedulesOnATopic",
    "listsTheDefaultRule",
    "sqlRuleFilters",
    "correlationRuleFilters",
    "falseRuleFiltersAll",
    "ruleActionChangesTheMessage",
    "listsRulesAsCreated",
    "refusesRulesThatAreWrong",
    # ConnectionChecks
    "speaksAmqpOverTls",
    "speaksAmqpOverWebSockets",
    "sharesOneConnection",
    "refusesAWrongKey",
    "findsNoMissingQueue",
    "asyncClientsSendAndReceive",
    "refusesTransactions",
    "administratesQueues",
    "administratesTopics",
    "countsMessages",
    "refusesAnAdministratorWithAWrongKey",
    # FaultChecks
    "survivesReset",
    "survivesRefused",
    "survivesBlackHole",
    "survivesABlackHoleOfAnEntity",
    "survivesDetached",
    "survivesDisconnected",
    "survivesRestartOfANode",
    "survivesLatency",
    "survivesBusy",
    "survivesUnanswered",
    "survivesLostAcknowledgement",
    "survivesHalfOpen",
    "survivesLate",
    "busyIsReported",
    "disabledIsReported",
    "notFoundIsReported",
    "unauthorizedIsReported",
    "fullIsReported",
    "settlesOverANewConnection",
    "processorSurvivesDisconnected",
    "processorSurvivesDetached",
    "sessionProcessorSurvivesDisconnected",
    "processorSurvivesReset",
)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.conformance.java", description="Check the Java client.")
    parser.add_argument("--required", action="store_true", help="fail where the checks cannot be run")
    parser.add_argument("--only", metavar="TEXT", default="", help="only checks with this text in their names")
    asked = parser.parse_args(arguments)
    checks = [check for check in CHECKS if asked.only in check]
    began = time.monotonic()
    try:
        verdicts = cross_check(checks)
    except Skipped as reason:
        print(f"skipped: java: {reason}")
        return 1 if asked.required else 0
    for one in verdicts:
        print(f"{'passed' if one.passed else 'FAILED'}  {one.check}{f': {one.error}' * (not one.passed)}")
    passed = sum(one.passed for one in verdicts)
    print(f"{passed} of {len(verdicts)} checks passed, with {client()}, in {time.monotonic() - began:.0f} s")
    return 0 if passed == len(verdicts) else 1


def client() -> str:
    """The client and its version, as in the pom."""
    found = re.search(r"<artifactId>(azure-[^<]*)</artifactId>\s*<version>([^<]*)", (PROJECT / "pom.xml").read_text())
    assert found is not None
    return f"{found[1]} {found[2]}"


def cross_check(checks: Sequence[str]) -> list[Verdict]:
    """Run `checks` on a sandbox. Raises Skipped."""
    tools = {name: _tool(name) for name in ("java", "mvn", "keytool")}
    _require_version(tools["java"])
    class_path = build(tools["mvn"])
    with tempfile.TemporaryDirectory(prefix="sandbox-java-") as name:
        folder = Path(name)
        config = folder / "namespaces.toml"
        config.write_text(namespaces(checks), encoding="utf-8")
        with sandbox_facts(config) as facts:
            trusted = _truststore(tools["keytool"], facts["ca_file"], folder)
            command = [tools["java"], "-cp", class_path, *trusted, "conformance.Main"]
            return complete(checks, run(command, folder, _environment(facts)))


def build(mvn: str) -> str:
    """Compile, or find what was compiled from the same sources; return the class path. Raises Skipped."""
    files = (PROJECT / "pom.xml", *sorted(PROJECT.rglob("*.java")))
    version = hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()[:16]
    built = Path(tempfile.gettempdir()) / f"servicebus-conformance-{os.getuid()}" / f"java-{version}"
    if not _is_complete(built):
        built.parent.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(built, ignore_errors=True)
        shutil.copytree(PROJECT, built, ignore=shutil.ignore_patterns("*.py", "__pycache__"))
        command = [mvn, "-B", "-q", "compile", "dependency:build-classpath", f"-Dmdep.outputFile={LIBRARIES}"]
        fetch([*command, "-f", str(built / "pom.xml")], client(), seconds=BUILDING_SECONDS)
    return os.pathsep.join((str(built / "target" / "classes"), (built / LIBRARIES).read_text().strip()))


def _is_complete(built: Path) -> bool:
    """Whether it was compiled to the end, and Maven's packages are still there."""
    libraries = built / LIBRARIES
    return libraries.is_file() and all(Path(each).is_file() for each in libraries.read_text().split(os.pathsep))


def namespaces(checks: Sequence[str]) -> str:
    """A configuration of the sandbox: a namespace for each check, all with the same entities."""
    entities = (PROJECT / "namespaces.toml").read_text(encoding="utf-8")
    return "\n".join(f'[[namespace]]\nname = "{check}"\n{entities}' for check in checks)


def complete(checks: Sequence[str], verdicts: Sequence[Verdict]) -> list[Verdict]:
    """The verdicts in the order of `checks`; one that is missing has failed."""
    found = {one.check: one for one in verdicts}
    missing = "it was not run to its end"
    ordered = [found.pop(check, Verdict(check, False, missing)) for check in checks]
    return [*ordered, *found.values()]


def _tool(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        raise Skipped(f"{name} is not on the PATH; install a JDK, {OLDEST_JAVA} or newer, and Maven")
    return found


def _require_version(java: str) -> None:
    done = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=ENDING, check=False)
    found = re.search(r'version "(?:1\.)?(\d+)', done.stderr)
    if found is None or int(found[1]) < OLDEST_JAVA:
        said = done.stderr.strip().partition("\n")[0]
        raise Skipped(f"java is {said or 'of an unknown version'}; the checks need {OLDEST_JAVA} or newer")


def _truststore(keytool: str, ca_file: str, folder: Path) -> list[str]:
    """Options with which Java trusts the sandbox."""
    store, password = str(folder / "trusted.p12"), "sandbox"
    command = [keytool, "-importcert", "-noprompt", "-alias", "sandbox", "-file", ca_file, "-keystore", store]
    command += ["-storetype", "PKCS12", "-storepass", password]
    subprocess.run(command, capture_output=True, timeout=ENDING * 3, check=True)
    return [f"-Djavax.net.ssl.trustStore={store}", f"-Djavax.net.ssl.trustStorePassword={password}"]


def _environment(facts: Mapping[str, Any]) -> dict[str, str]:
    lines = [f"{each['name']}={each['connection_string']}" for each in facts["namespaces"]]
    return {"SANDBOX_NAMESPACES": "\n".join(lines), "SANDBOX_CONTROL": facts["control_url"]}


if __name__ == "__main__":
    sys.exit(main())
