# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The documents agree with the code: names exist, links lead somewhere, Python blocks run."""

import importlib
import re
import threading
import tomllib
from pathlib import Path

import pytest

from hack import reference
from pkg.apis.trainer.v1alpha1 import TrainJobSpec

ROOT = Path(__file__).parents[3]
LIBRARY = ROOT / "controller-runtime"
DOCUMENTS = sorted(
    [
        *ROOT.glob("*.md"),
        *ROOT.glob("docs/**/*.md"),
        *ROOT.glob("examples/*.md"),
        *LIBRARY.glob("*.md"),
        *LIBRARY.glob("docs/**/*.md"),
        *LIBRARY.glob("examples/*.md"),
    ]
)


def test_there_are_documents() -> None:
    assert {"README.md", "port-map.md", "extending.md"} <= {path.name for path in DOCUMENTS}


def test_every_module_that_the_port_map_names_exists() -> None:
    names = set(
        re.findall(r"`((?:pkg|controller_runtime)\.[a-z0-9_.]+)`", (ROOT / "docs/port-map.md").read_text())
    )
    assert len(names) > 40
    missing = []
    for name in sorted(names):
        try:
            importlib.import_module(name)
        except ModuleNotFoundError as error:
            missing.append(f"{name}: {error}")
    assert missing == []


def test_the_architecture_lists_every_package_and_its_layers_are_those_that_are_checked() -> None:
    text = (ROOT / "docs/architecture.md").read_text()
    packages = {path.parent.name for path in ROOT.glob("pkg/*/__init__.py")}
    assert packages == set(re.findall(r"^\| `pkg\.(\w+)` \|", text, re.MULTILINE))
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    layers = {
        container: [set(layer.split(" | ")) for layer in contract["layers"]]
        for contract in settings["tool"]["importlinter"]["contracts"]
        for container in contract.get("containers", ())
    }
    (drawn,) = re.findall(r"^podgrouper: +(.*)$", text, re.MULTILINE)
    assert [set(layer.split(" │ ")) for layer in drawn.split(" → ")] == layers["pkg.podgrouper"]


@pytest.mark.parametrize(("name", "text"), reference.pages().items(), ids=str)
def test_the_reference_is_what_the_code_says(name: str, text: str) -> None:
    assert (ROOT / "docs" / "reference" / name).read_text() == text, "run `make manifests`"


def test_a_reference_has_rows() -> None:
    for text in reference.pages().values():
        rows = [line for line in text.splitlines() if line.startswith("| `")]
        assert rows


@pytest.mark.parametrize("name", ["configuration.md", "flags.md", "metrics.md", "trainerctl.md"])
def test_a_reference_explains_every_row(name: str) -> None:
    rows = [line for line in reference.pages()[name].splitlines() if line.startswith("| `")]
    assert [row for row in rows if row.endswith("|  |")] == []


def test_the_reference_of_trainerctl_has_every_command() -> None:
    text = reference.pages()["trainerctl.md"]
    for command in ("cluster up", "demo", "render", "explain", "validate", "group", "crds"):
        assert f"\n## trainerctl {command}\n" in text


def test_the_reference_of_the_api_has_every_field_and_its_links_lead_somewhere() -> None:
    text = reference.pages()["api.md"]
    sections = {name.lower() for name in re.findall(r"^## (\w+)$", text, re.MULTILINE)}
    assert {"trainjob", "trainjobspec", "trainingruntimespec", "containeroverride"} <= sections
    assert set(re.findall(r"\]\(#(\w+)\)", text)) <= sections
    for field in TrainJobSpec.model_fields.values():
        assert f"| `{field.alias}` |" in text


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_relative_links_lead_to_files(document: Path) -> None:
    links = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", document.read_text())
    assert [link for link in links if not (document.parent / link).exists()] == []


PYTHON_BLOCKS = [
    pytest.param(block, id=f"{path.relative_to(ROOT)}-{number}")
    for path in DOCUMENTS
    if "adr" not in path.parts  # a decision opens with code a user would write, in fragments
    for number, block in enumerate(
        re.findall(r"^```python\n(.*?)^```", path.read_text(), re.DOTALL | re.MULTILINE)
    )
]


@pytest.mark.parametrize("block", PYTHON_BLOCKS)
def test_python_in_documents_runs(block: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", "none")  # an exporter has a thread
    before = threading.enumerate()
    exec(compile(block, "<document>", "exec"), {"__name__": "document"})
    # Beside another thread, the virtual clock of each later test waits in real time.
    assert threading.enumerate() == before


def make_targets(*makefiles: str) -> set[str]:
    texts = ((ROOT / name).read_text() for name in makefiles)
    return {target for text in texts for target in re.findall(r"^([a-z-]+):.*##", text, re.MULTILINE)}


def test_every_make_target_in_the_documents_exists() -> None:
    """The library's documents also name targets of a project that `python -m controller_runtime new` writes."""
    ours = make_targets("Makefile")
    library = (
        "controller-runtime/Makefile",
        "controller-runtime/controller_runtime/tools/templates/Makefile.tmpl",
    )
    theirs = make_targets(*library)
    named = [
        (path, word)
        for path in DOCUMENTS
        for command in re.findall(r"(?:^|`|&& )make ((?:[a-z-]+ ?)+)", path.read_text(), re.MULTILINE)
        for word in command.split()
    ]
    assert {"demo", "manifests"} <= {word for _, word in named}
    wrong = [
        f"{path.name}: {word}"
        for path, word in named
        if word not in (theirs if path.is_relative_to(ROOT / "controller-runtime") else ours)
    ]
    assert wrong == []
