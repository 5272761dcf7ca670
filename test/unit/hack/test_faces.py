# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Imports of a package's inner modules are counted; imports of the names that a package exports are not."""

from pathlib import Path

import pytest

from hack import faces

FILES = ("pkg/jobs/__init__.py", "pkg/jobs/worker.py", "pkg/jobs/apis/v1alpha1.py", "pkg/other/__init__.py", "pkg/other/x.py",
         "controller-runtime/controller_runtime/handler.py", "controller-runtime/controller_runtime/client/__init__.py",
         "controller-runtime/controller_runtime/client/client.py", "controller-runtime/controller_runtime/client/eventually.py",
         "controller-runtime/controller_runtime/client/interceptor.py")  # fmt: skip
EXPORTS = """
from .eventually import eventually as eventually
if TYPE_CHECKING:
    from . import interceptor as interceptor
"""


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in FILES:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(EXPORTS if name.endswith("client/__init__.py") else "")
    (tmp_path / "pyproject.toml").write_text("[tool.faces]\ninner-imports = 1\n")
    monkeypatch.setattr(faces, "ROOT", tmp_path)
    return tmp_path


def write(repository: Path, name: str, text: str) -> None:
    path = repository / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


@pytest.mark.parametrize(
    ("text", "modules"),
    [
        ("from controller_runtime.client.client import A", ["controller_runtime.client.client"]),
        ("from controller_runtime.client import client", ["controller_runtime.client.client"]),
        ("import controller_runtime.client.client", ["controller_runtime.client.client"]),
        ("def test():\n    from pkg.jobs import worker", ["pkg.jobs.worker"]),
        ("from pkg.jobs.worker import A\nfrom pkg.jobs.worker import B", ["pkg.jobs.worker"]),
        ("from controller_runtime.client import A", []),
        ("from controller_runtime.client.interceptor import A", []),
        ("from controller_runtime.client import eventually, interceptor", []),
        ("from controller_runtime.client.eventually import A", ["controller_runtime.client.eventually"]),
        ("from controller_runtime import client, handler", []),
        ("from controller_runtime.handler import A", []),
        ("from pkg.jobs.apis.v1alpha1 import A", []),
        ("import json\nfrom pathlib import Path", []),
    ],
)
def test_an_inner_module_is_counted_once_a_file(repository: Path, text: str, modules: list[str]) -> None:
    write(repository, "test/unit/other/test_it.py", text)
    assert [module for _, module in faces.inner_imports(repository)] == modules


@pytest.mark.parametrize(
    ("path", "count"),
    [
        ("test/unit/jobs/test_it.py", 0),
        ("test/integration/jobs/below/test_it.py", 0),
        ("test/unit/other/test_it.py", 1),
        ("test/e2e/test_it.py", 1),
        ("testkit/jobs.py", 1),
        ("controller-runtime/test/unit/jobs/test_it.py", 1),
    ],
)
def test_tests_of_a_package_may_import_its_modules(repository: Path, path: str, count: int) -> None:
    write(repository, path, "from pkg.jobs.worker import A")
    assert len(list(faces.inner_imports(repository))) == count


@pytest.mark.parametrize(
    ("files", "code", "text"), [(2, 1, "2 times, more than the 1"), (1, 0, ""), (0, 0, "lower inner-imports")]
)
def test_the_count_must_not_rise(
    repository: Path, capsys: pytest.CaptureFixture[str], files: int, code: int, text: str
) -> None:
    for number in range(files):
        write(repository, f"test/e2e/test_{number}.py", "import pkg.jobs.worker")
    assert faces.main() == code
    written = capsys.readouterr()
    assert text in written.out + written.err
    assert bool(text) == bool(written.out + written.err)
    assert written.out.count("py: pkg.jobs.worker\n") == (files if code else 0)
