# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Where binaries are looked for, and from which inputs their cache key is computed."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from controller_runtime.envtest import (
    DEFAULT_RELEASE,
    RELEASES,
    Binaries,
    EnvtestError,
    Tool,
    ToolError,
    ToolGroup,
    cache_directory,
    kube_tool,
)
from controller_runtime.envtest.binaries import executable
from controller_runtime.envtest.controlplane import release_of
from controller_runtime.envtest.gotoolchain import parse_version

GO_MOD = """module tools/thing

go 1.25.0

require (
	example.com/other v0.1.0 // indirect
	example.com/thing/v3 v3.6.5 // indirect
)
"""


@pytest.fixture
def group(tmp_path: Path) -> ToolGroup:
    directory = tmp_path / "thing"
    directory.mkdir()
    (directory / "go.mod").write_text(GO_MOD)
    (directory / "go.sum").write_text("sums\n")
    return ToolGroup(directory, "example.com/thing/v3")


def put(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return path


def test_version_and_go_come_from_go_mod(group: ToolGroup) -> None:
    assert (group.version, group.go) == ("v3.6.5", (1, 25))


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("go1.26.8", (1, 26)),
        ("devel go1.27-abc linux/amd64", (1, 27)),
        ("1.24", (1, 24)),
        ("gibberish", None),
    ],
)
def test_go_versions_are_understood(text: str, version: tuple[int, int] | None) -> None:
    assert parse_version(text) == version


def test_the_key_names_version_go_line_and_platform_and_changes_with_the_sums(group: ToolGroup) -> None:
    assert group.key.startswith("thing-v3.6.5-go1.25-")
    (group.directory / "go.sum").write_text("other sums\n")
    assert ToolGroup(group.directory, group.module).key != group.key


@pytest.mark.parametrize(
    ("package", "name"),
    [
        ("k8s.io/kubernetes/cmd/kube-apiserver", "kube-apiserver"),
        ("go.etcd.io/etcd/server/v3", "server"),
        ("example.com/cmd/version", "version"),
        ("v2", "v2"),
    ],
)
def test_programs_are_found_under_the_names_that_go_gives_them(package: str, name: str) -> None:
    assert executable(package) == name


def test_a_module_that_is_not_required_is_named(group: ToolGroup) -> None:
    with pytest.raises(ToolError, match=r"does not require example\.com/absent"):
        _ = ToolGroup(group.directory, "example.com/absent").version


async def test_assets_come_before_the_cache_for_what_they_have(group: ToolGroup, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    one, two = Tool("one", group, "example.com/one"), Tool("two", group, "example.com/two")
    asset = put(tmp_path / "assets" / "one")
    put(cache / "bin" / group.key / "one")
    cached = put(cache / "bin" / group.key / "two")
    environ = {"KUBEBUILDER_ASSETS": str(tmp_path / "assets"), "PATH": ""}
    located = await Binaries(cache=cache, environ=environ).locate(one, two)
    assert {name: binary.path for name, binary in located.items()} == {"one": asset, "two": cached}


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda assets: None, "is not a directory"),
        (put, "is not a directory"),
        (lambda assets: assets.mkdir(), "contains none of one, two"),
        (lambda assets: put(assets / "two").chmod(0o644), "two is not executable"),
    ],
    ids=["missing", "a file", "empty", "not executable"],
)
async def test_assets_that_cannot_serve_are_an_error_and_nothing_is_built_instead(
    group: ToolGroup, tmp_path: Path, make: Callable[[Path], object], message: str
) -> None:
    cache, assets = tmp_path / "cache", tmp_path / "assets"
    make(assets)
    for name in ("one", "two"):
        put(cache / "bin" / group.key / name)
    tools = [Tool(name, group, f"example.com/{name}") for name in ("one", "two")]
    with pytest.raises(ToolError, match=f"^KUBEBUILDER_ASSETS: .*{message}$"):
        await Binaries(cache=cache, environ={"KUBEBUILDER_ASSETS": str(assets)}).locate(*tools)


async def test_a_tool_with_manifests_is_not_taken_from_assets_which_have_none(
    group: ToolGroup, tmp_path: Path
) -> None:
    put(tmp_path / "assets" / "one")
    cached = put(tmp_path / "cache" / "bin" / group.key / "one")
    cached.with_name("one.json").write_text(json.dumps([{"kind": "ClusterRole"}]))
    tool = Tool("one", group, "example.com/one", manifests=("*.yaml",))
    environ = {"KUBEBUILDER_ASSETS": str(tmp_path / "assets"), "PATH": ""}
    binary = (await Binaries(cache=tmp_path / "cache", environ=environ).locate(tool))["one"]
    assert binary.path == cached
    assert binary.manifests() == [{"kind": "ClusterRole"}]
    assert binary.manifests() is not binary.manifests()


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({"XDG_CACHE_HOME": "/caches"}, Path("/caches")),
        ({"XDG_CACHE_HOME": "relative"}, Path.home() / ".cache"),
    ],
)
def test_the_cache_is_where_xdg_says(environ: dict[str, str], expected: Path) -> None:
    assert cache_directory(environ) == expected / "controller-runtime"
    assert cache_directory(environ, program="other") == expected / "other"


async def test_a_tool_in_the_cache_is_used(group: ToolGroup, tmp_path: Path) -> None:
    tool, environ = Tool("one", group, "example.com/one"), {"XDG_CACHE_HOME": str(tmp_path), "PATH": ""}
    cached = put(tmp_path / "controller-runtime" / "bin" / group.key / "one")
    assert (await Binaries(environ=environ).locate(tool))["one"].path == cached


async def test_nothing_is_built_if_builds_are_forbidden(group: ToolGroup, tmp_path: Path) -> None:
    environ = {"XDG_CACHE_HOME": str(tmp_path), "PATH": "", "ENVTEST_BUILD": "never"}
    tools = [Tool(name, group, f"example.com/{name}") for name in ("one", "two")]
    cached = put(tmp_path / "controller-runtime" / "bin" / group.key / "one")
    assert (await Binaries(environ=environ).locate(tools[0]))["one"].path == cached
    with pytest.raises(ToolError, match=r"^two v\S+ must be built, but ENVTEST_BUILD is never$"):
        await Binaries(environ=environ).locate(*tools)


@pytest.mark.parametrize("release", RELEASES)
def test_kubernetes_programs_report_the_version_that_is_pinned(release: str) -> None:
    tool = kube_tool("kube-apiserver", release)
    assert tool.group.version.startswith(f"v{release}.")
    assert tool.symbols["k8s.io/component-base/version.gitVersion"] == tool.group.version


def test_each_release_has_its_own_place_in_the_cache_and_all_its_sums() -> None:
    assert len({group.key for group in RELEASES.values()}) == len(RELEASES)
    for group in RELEASES.values():
        staging = f"v0.{group.version.removeprefix('v1.')}"
        assert f"k8s.io/apiserver {staging} h1:" in (group.directory / "go.sum").read_text()


@pytest.mark.parametrize(
    ("version", "environ", "release"),
    [
        ("", {}, DEFAULT_RELEASE),
        ("", {"ENVTEST_K8S_VERSION": "1.37"}, "1.37"),
        ("1.36", {"ENVTEST_K8S_VERSION": "1.37"}, "1.36"),
        ("v1.34.4", {}, "1.34"),
        ("1.37.x", {}, "1.37"),
    ],
)
def test_the_release_of_an_environment(version: str, environ: dict[str, str], release: str) -> None:
    assert release_of(version, environ) == release


def test_a_release_that_is_not_pinned_is_refused_with_those_that_are() -> None:
    with pytest.raises(
        EnvtestError, match=r"Kubernetes 1\.20 is not among the pinned releases: 1\.34, 1\.35"
    ):
        release_of("1.20")
