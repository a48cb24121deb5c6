"""The programs of frameworks: what they need, how their registries' clients fetch them, how each runs and trusts."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
from dataclasses import KW_ONLY, dataclass
from enum import StrEnum, auto
from pathlib import Path
from typing import Final

from tests.conformance.checking import MAVEN, class_path, fetch, find_tool, install_python
from tests.examples.sender_programs import SenderProgram

FOLDER: Final = Path(__file__).parent
FETCHING_SECONDS: Final = 900.0
DEPENDENCY: Final = "<dependency><groupId>{}</groupId><artifactId>{}</artifactId><version>{}</version></dependency>"
STORE: Final = "changeit"
"""The password of Java's store of certificates."""


class Kind(StrEnum):
    """What the calls of a program are."""

    SENDER = auto()
    READER = auto()
    """Reads of administration."""
    ADMINISTRATOR = auto()
    """Reads in even lanes, changes of the queue of its own name in odd ones."""
    IDENTITY = auto()
    """Sends with DefaultAzureCredential, by a managed identity: at a sandbox alone."""
    SECRET = auto()
    """The same by a client's secret."""


SENDING: Final = frozenset({Kind.SENDER, Kind.IDENTITY, Kind.SECRET})
AT_SANDBOX: Final = frozenset({Kind.IDENTITY, Kind.SECRET})


@dataclass(frozen=True, slots=True)
class Program:
    """A program in one language.

    packages: in the form of the language's registry; for Go those of go.mod, for the reader.
    project: the folder of a program in Go.
    is_by_name: it uses a host's name alone: its string is in Azure's form, and it needs the standard ports.
    """

    name: str
    language: str
    packages: tuple[str, ...]
    _: KW_ONLY
    kind: Kind = Kind.SENDER
    project: str = ""
    is_by_name: bool = False

    @property
    def java_class(self) -> str:
        return self.name.title().replace("-", "")

    def fetch(self, folder: Path) -> None:
        """Have the registry's client fetch it, unless that was done for the same sources. Raises Skipped."""
        sources = [path for path in sorted((FOLDER / self.language).rglob("*.*")) if path.is_file()]
        digest = hashlib.sha256(repr(self).encode() + b"".join(path.read_bytes() for path in sources)).hexdigest()
        done = folder / f"{self.name}-{digest[:16]}.fetched"
        if done.exists():
            return
        match self.language:
            case "python":
                install_python(folder / "python", *self.packages, seconds=FETCHING_SECONDS)
            case "node":
                npm = ("install", "--no-audit", "--no-fund", "--ignore-scripts", "--prefix", str(folder / "node"))
                self._fetch("npm", *npm, *self.packages)
            case "java":
                self._fetch("mvn", "-f", str(self._write_project(folder) / "pom.xml"), *MAVEN)
            case _:
                project = shutil.copytree(FOLDER / "go" / self.project, folder / self.project, dirs_exist_ok=True)
                shutil.copy(FOLDER / "go" / "lanes.go", project)
                self._fetch("go", "-C", str(project), "build", "-o", "sender", ".")
        done.touch()

    def _fetch(self, tool: str, *arguments: str) -> None:
        fetch([find_tool(tool), *arguments], self.name, seconds=FETCHING_SECONDS)

    def _write_project(self, folder: Path) -> Path:
        """Return a project of Maven with the sources and the packages."""
        project = folder / self.name
        shutil.rmtree(project, ignore_errors=True)
        project.mkdir()
        for name in ("Lanes", self.java_class):
            shutil.copy(FOLDER / "java" / f"{name}.java", project)
        written = "".join(DEPENDENCY.format(*package.split(":")) for package in self.packages)
        pom = (FOLDER / "java" / "pom.xml").read_text()
        (project / "pom.xml").write_text(pom.replace("<!-- dependencies -->", written))
        return project

    def runnable(self, folder: Path, environment: dict[str, str]) -> SenderProgram:
        """Return how it runs."""
        command: tuple[str, ...]
        match self.language:
            case "python":
                command = (str(folder / "python" / "bin" / "python"), str(FOLDER / "senders.py"), self.name)
            case "node":
                copied = shutil.copy(FOLDER / "senders.cjs", folder / "node")
                command = (find_tool("node"), str(copied), self.name)
            case "java":
                command = (find_tool("java"), "-cp", class_path(folder / self.name), self.java_class)
            case _:
                command = (str(folder / self.project / "sender"), self.name)
        return SenderProgram(
            language=self.language, sdk=" ".join(self.packages), command=command, environment=environment
        )


def trust(folder: Path, ca_file: Path) -> dict[str, str]:
    """Make the programs trust an authority; return the variables that they need for it."""
    python = folder / "python" / "bin" / "python"
    if python.exists():  # the SDK's AMQP reads no variable
        asked = [str(python), "-c", "import certifi; print(certifi.where())"]
        file = Path(subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip())
        kept = file.with_suffix(".original")
        if not kept.exists():
            shutil.copy(file, kept)
        file.write_text(kept.read_text() + ca_file.read_text())
    store = folder / "trust.p12"
    store.unlink(missing_ok=True)
    if shutil.which("keytool") is not None:
        keytool = ["keytool", "-importcert", "-noprompt", "-alias", "gateway", "-storepass", STORE]
        subprocess.run([*keytool, "-file", str(ca_file), "-keystore", str(store)], capture_output=True, check=True)
    java = ("-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
    stores = (f"-Djavax.net.ssl.trustStore={store}", f"-Djavax.net.ssl.trustStorePassword={STORE}")
    variables = dict.fromkeys(("REQUESTS_CA_BUNDLE", "SSL_CERT_FILE", "NODE_EXTRA_CA_CERTS"), str(ca_file))
    return variables | {"JAVA_TOOL_OPTIONS": " ".join((*java, *stores))}


_KOMBU: Final = "kombu[azureservicebus]==5.7.0"
_NEST: Final = ("reflect-metadata@0.1", "rxjs@7", "@nestjs/common@10", "@nestjs/core@10", "@nestjs/microservices@10")
_QUIET: Final = "org.slf4j:slf4j-nop:2.0.17"
_LOGS: Final = "org.slf4j:slf4j-api:2.0.17"
_CAMEL: Final = "org.apache.camel:camel-{}:4.17.0"
_SPRING: Final = "com.azure.spring:spring-{}:6.1.0"
_JAVA: Final = ("com.azure:azure-messaging-servicebus:7.17.20", _QUIET)
_PYTHON: Final = ("azure-servicebus==7.15.0", "aiohttp==3.14.5", "azure-identity==1.27.0")
_NODE: Final = ("@azure/service-bus@7.9.5", "@azure/identity@4.14.1")
_GO: Final = ("azservicebus 1.10.0", "azidentity 1.14.1")
_ALL: Final = (
    Program("kombu", "python", (_KOMBU,), is_by_name=True),
    Program("celery", "python", ("celery==5.7.0", _KOMBU), is_by_name=True),
    Program("taskiq", "python", ("taskiq-service-bus==0.3.0", "taskiq==0.13.0")),
    Program("faststream", "python", ("faststream-azure-servicebus==0.2.1", "faststream==0.7.8")),
    Program("nestjs", "node", ("nestjs-azure-service-bus-transporter@1.0.1", _NODE[0], *_NEST)),
    Program("camel", "java", (_CAMEL.format("core"), _CAMEL.format("azure-servicebus"), _QUIET)),
    Program("spring-template", "java", (_SPRING.format("messaging-azure-servicebus"), _QUIET)),
    Program("spring-binder", "java", (_SPRING.format("cloud-azure-stream-binder-servicebus"), _LOGS)),
    Program("spring-jms", "java", (_SPRING.format("cloud-azure-starter-servicebus-jms"), _LOGS), is_by_name=True),
    Program("dapr", "go", ("components-contrib 1.18.0",), project="dapr"),
    Program("keda", "go", _GO, project="clients", kind=Kind.READER),
    Program("admin-python", "python", _PYTHON, kind=Kind.ADMINISTRATOR),
    Program("admin-javascript", "node", _NODE, kind=Kind.ADMINISTRATOR),
    Program("admin-go", "go", _GO, project="clients", kind=Kind.ADMINISTRATOR),
    Program("admin-java", "java", _JAVA, kind=Kind.ADMINISTRATOR),
    Program("identity-python", "python", _PYTHON, kind=Kind.IDENTITY),
    Program("identity-javascript", "node", _NODE, kind=Kind.IDENTITY),
    Program("identity-go", "go", _GO, project="clients", kind=Kind.IDENTITY),
    Program("secret-python", "python", _PYTHON, kind=Kind.SECRET),
    Program("secret-javascript", "node", _NODE, kind=Kind.SECRET),
    Program("secret-go", "go", _GO, project="clients", kind=Kind.SECRET),
)
PROGRAMS: Final = {program.name: program for program in _ALL}
