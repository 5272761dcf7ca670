# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Garbage collection resumes after the start, and packages are loaded in parts."""

import contextlib
import gc
import importlib
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest

from controller_runtime import lean


@pytest.fixture(autouse=True)
def no_collections() -> Iterator[None]:
    gc.disable()
    yield
    gc.unfreeze()
    gc.enable()


async def test_collections_begin_a_second_after_the_caches_are_full() -> None:
    full = anyio.Event()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(lean.Collector(full.wait).start)
        await anyio.sleep(10)
        full.set()
        await anyio.sleep(0.5)
        assert not gc.isenabled()
        await anyio.sleep(1)
        assert gc.isenabled()


async def test_collections_begin_in_any_case() -> None:
    began = anyio.current_time()
    await lean.Collector(anyio.sleep_forever).start()
    assert gc.isenabled()
    assert anyio.current_time() - began == pytest.approx(30)


@pytest.mark.parametrize("error", [None, ImportError("x")])
def test_collections_stop_while_a_program_is_imported(error: Exception | None) -> None:
    gc.enable()
    with contextlib.suppress(ImportError), lean.importing():
        assert not gc.isenabled()
        if error is not None:
            raise error
    assert gc.isenabled()


def test_objects_of_imported_modules_are_not_scanned_by_later_collections() -> None:
    with lean.importing():
        module: list[object] = []
        assert any(each is module for each in gc.get_objects())
    assert not any(each is module for each in gc.get_objects())


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A package whose ``__init__`` imports a module that a module in use does not need."""
    folder = tmp_path / "package_in_parts"
    folder.mkdir()
    (folder / "__init__.py").write_text(
        "from . import used\nfrom .rest import serve\nVERSION = used.VERSION + 1\n"
    )
    (folder / "used.py").write_text("from . import below\nVERSION = below.VERSION\n")
    (folder / "below.py").write_text("VERSION = 1\n")
    (folder / "rest.py").write_text("def serve():\n    return 'served'\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    yield folder.name
    for name in [name for name in sys.modules if name.partition(".")[0] == folder.name]:
        del sys.modules[name]


def test_a_package_is_loaded_in_parts_until_one_of_its_own_names_is_used(package: str) -> None:
    lean.load_parts(package)
    used = importlib.import_module(f"{package}.used")
    assert used.VERSION == 1
    assert f"{package}.below" in sys.modules
    assert f"{package}.rest" not in sys.modules
    whole = importlib.import_module(package)
    assert whole.used is used
    assert whole.serve() == "served"
    assert whole.VERSION == 2
    with pytest.raises(AttributeError, match="missing"):
        _ = whole.missing


def test_a_loaded_package_stays_and_a_missing_one_is_an_error(package: str) -> None:
    whole = importlib.import_module(package)
    lean.load_parts(package)
    assert sys.modules[package] is whole
    with pytest.raises(ModuleNotFoundError, match="no_such_package"):
        lean.load_parts("no_such_package")


def test_a_package_is_loaded_without_a_part_until_a_name_from_it_is_used(package: str) -> None:
    lean.load_except(package, f"{package}.rest")
    whole = sys.modules[package]
    assert whole.VERSION == 2
    assert f"{package}.rest" not in sys.modules
    with pytest.raises(AttributeError, match="has no attribute 'missing'"):
        _ = whole.missing
    assert whole.serve() == "served"
    assert importlib.import_module(f"{package}.rest").serve is whole.serve
    lean.load_except(package, f"{package}.below")
    assert sys.modules[package] is whole


_PROGRAM = """
import sys
from controller_runtime import lean
with lean.importing():
    import controller_runtime as ctrl
    from controller_runtime import metrics
    from controller_runtime.apis.core.v1 import Pod
assert Pod.from_json('{"spec": {"containers": [{"name": "a"}]}}').spec.containers[0].name == "a"
assert Pod().to_json() and "pydantic_core.core_schema" not in sys.modules
assert b"# TYPE workqueue_depth gauge" in metrics.render()
print(*sorted({"http.server", "urllib.request", "importlib.metadata", "zipfile"} & sys.modules.keys()))
import prometheus_client
prometheus_client.push_to_gateway
assert prometheus_client.REGISTRY is not metrics.REGISTRY
import pydantic, pydantic_core
assert pydantic.TypeAdapter(Pod).json_schema()
assert pydantic_core.CoreConfig is pydantic_core.core_schema.CoreConfig
assert prometheus_client.Counter is type(metrics.REST_REQUESTS)
"""


@pytest.mark.real_time
def test_a_program_loads_no_servers_and_finders_of_other_libraries() -> None:
    answer = subprocess.run([sys.executable, "-c", _PROGRAM], capture_output=True, text=True, check=False)
    assert (answer.returncode, answer.stdout, answer.stderr) == (0, "\n", "")


_LOG = """
import importlib.util, sys
from controller_runtime import lean
with lean.importing():
    from controller_runtime import log
log.configure(log.Options(caller=True))
logger = log.logger_from("first")
logger.info("one", number=1)
assert log.verbosity() == 0
log.set_verbosity(1)
logger.bind(bound=True).debug("two")
print(sorted({"structlog._config", "structlog.dev", "rich", "pickle"} & set(sys.modules)))
importlib.util.find_spec("structlog._config")
MORE
logger.info("four")
log.configure(log.Options(encoder=log.Encoder.CONSOLE))
logger.info("five")
"""


@pytest.mark.real_time
@pytest.mark.parametrize(
    "more",
    [
        "import structlog; structlog.get_logger('second').info('three')",
        "from structlog import get_logger; get_logger('second').info('three')",
        "import structlog._config; structlog.get_logger('second').info('three')",
        "import structlog.stdlib; structlog.stdlib.get_logger('second').info('three')",
    ],
)
def test_the_log_needs_no_more_of_structlog_than_its_base_and_configures_it_once_it_is_loaded(
    more: str,
) -> None:
    answer = subprocess.run(
        [sys.executable, "-c", _LOG.replace("MORE", more)], capture_output=True, text=True, check=True
    )
    assert answer.stdout == "[]\n"
    lines = answer.stderr.splitlines()
    assert [json.loads(line)["msg"] for line in lines[:4]] == ["one", "two", "three", "four"]
    assert [json.loads(line)["level"] for line in lines[:4]] == ["info", "debug", "info", "info"]
    assert lines[4].endswith("INFO\tfirst\tfive")


@pytest.mark.real_time
def test_lines_before_the_log_is_configured_are_structlogs_own() -> None:
    program = "from controller_runtime import lean\nwith lean.importing():\n    from controller_runtime import log\n"
    answer = subprocess.run(
        [sys.executable, "-c", f"{program}log.logger_from('early').warning('unset', number=1)"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "unset" in answer.stdout
    assert "number" in answer.stdout


_PATTERNS = """
import json, re, sys
sys.path.insert(0, sys.argv[1])
from controller_runtime import lean
compiled, compile_ = [], re.compile
def count(pattern, flags=0):
    compiled.append(pattern)
    return compile_(pattern, flags)
re.compile = count
lean.compile_on_use("package_of_patterns")
restored = re.compile is count
import package_of_patterns
early = [*compiled]
found = [package_of_patterns.ONE.match("AB").group(), package_of_patterns.ONE.match("ac"), package_of_patterns.ONE.flags & re.I]
lean.compile_on_use("package_of_patterns")
print(json.dumps([restored, early, [str(each) for each in found], [*compiled], package_of_patterns.other.TWO.pattern]))
"""


@pytest.mark.real_time
def test_patterns_of_a_package_are_compiled_on_use(tmp_path: Path) -> None:
    folder = tmp_path / "package_of_patterns"
    folder.mkdir()
    (folder / "__init__.py").write_text(
        "import re\nimport package_of_another\nfrom . import other\nONE = re.compile('ab', re.I)\n"
    )
    (folder / "other.py").write_text("import re\nTWO = re.compile('cd')\n")
    (tmp_path / "package_of_another.py").write_text("import re\nTHREE = re.compile('ef')\n")
    command = [sys.executable, "-c", _PATTERNS, str(tmp_path)]
    answer = subprocess.run(command, capture_output=True, text=True, check=True)
    restored, early, found, compiled, pattern = json.loads(answer.stdout)
    assert restored
    assert early == ["ef"]
    assert found == ["AB", "None", "re.IGNORECASE"]
    assert compiled == ["ef", "ab"]
    assert pattern == "cd"


def test_a_package_that_cannot_be_imported_leaves_patterns_as_they_were() -> None:
    before = re.compile
    with pytest.raises(ModuleNotFoundError):
        lean.compile_on_use("no_such_package")
    assert re.compile is before
