# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Every overlay builds, and a real API server accepts each of its objects under strict field validation."""

import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from controller_runtime.client import LiveClient
from controller_runtime.envtest import Environment
from controller_runtime.machinery import Unstructured
from controller_runtime.rest import RESTMapper, Transport

from hack.third_party import PINS
from pkg import config
from pkg.apis.config.v1alpha1 import Configuration
from pkg.app import flags

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[3]
CONFIG = ROOT / "config"
OVERLAYS = sorted(path.parent.name for path in (CONFIG / "overlays").glob("*/kustomization.yaml"))
WEBHOOKS = {"ValidatingWebhookConfiguration", "MutatingWebhookConfiguration"}
MANAGER = "kubeflow-trainer-controller-manager"
NAMESPACES = {"data-cache": "kubeflow-system", "kubeflow-platform": "kubeflow", "manager": "kubeflow-system"}
PUBLIC = "kubeflow-trainer-public"
VIEW = "kubeflow-trainer-view-cluster-runtimes"

Manifest = dict[str, Any]
Build = Callable[[str], list[Manifest]]


def with_local_sources(folder: Path, third_party: dict[str, Path]) -> None:
    """Replace the repositories in the kustomizations of ``third-party`` by sources on this machine."""
    for name, source in third_party.items():
        target = folder / f"{name}-source"
        shutil.copytree(source, target)
        file = folder / "third-party" / name / "kustomization.yaml"
        text, count = re.subn(r"https://github\.com/\S+", f"../../{target.name}/default", file.read_text())
        assert count == 1
        file.write_text(text)


@pytest.fixture
def build(kustomize: Callable[[Path], list[Manifest]], releases: str, tmp_path: Path) -> Build:
    """Return a function that builds an overlay by its name, or a folder of ``config`` by its path."""
    copied = tmp_path / "config"
    shutil.copytree(CONFIG, copied)
    for file in (copied / "third-party").glob("*/kustomization.yaml"):
        there = f"{releases}/{file.parent.name}.yaml"
        text, count = re.subn(r"https://github\.com/\S+/manifests\.yaml", there, file.read_text())
        assert count == 1
        file.write_text(text)

    def by_name(name: str) -> list[Manifest]:
        return kustomize(copied / "overlays" / name if name in OVERLAYS else copied / name)

    return by_name


@pytest.fixture
def build_upstream(
    kustomize: Callable[[Path], list[Manifest]], upstream: Path, third_party: dict[str, Path], tmp_path: Path
) -> Build:
    """Return a function that builds an overlay of Kubeflow Trainer v2.1.0 by its name."""
    copied = tmp_path / "manifests"
    shutil.copytree(upstream / "manifests", copied)
    with_local_sources(copied, third_party)

    def by_name(name: str) -> list[Manifest]:
        return kustomize(copied / "overlays" / name)

    return by_name


def strict(transport: Transport) -> LiveClient:
    return LiveClient(transport, RESTMapper(transport), field_validation="Strict")


async def install(environment: Environment, objects: list[Manifest]) -> None:
    """Apply ``objects``; webhook configurations last and only briefly, because no server answers their calls."""
    await environment.install_crds(*[each for each in objects if each["kind"] == "CustomResourceDefinition"])
    async with Transport(environment.config) as transport:
        client = strict(transport)
        for each in sorted(objects, key=lambda each: (each["kind"] in WEBHOOKS, each["kind"] != "Namespace")):
            applied = await client.apply(Unstructured.wrap(each), field_owner="kubectl", force=True)
            if each["kind"] in WEBHOOKS:
                await client.delete(applied)


async def ensure_namespace(environment: Environment, name: str) -> None:
    async with Transport(environment.config) as transport:
        namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
        await strict(transport).apply(Unstructured.wrap(namespace), field_owner="kubectl", force=True)


@pytest.mark.parametrize("name", OVERLAYS)
async def test_an_api_server_takes_every_object_of_the_overlay(
    name: str, build: Build, bare_cluster: Environment, monitoring_crds: list[Path]
) -> None:
    await bare_cluster.install_crds(CONFIG / "crd" / "json", *monitoring_crds)
    objects = build(name)
    assert objects
    made = {each["metadata"]["name"] for each in objects if each["kind"] == "Namespace"}
    needed = {each["metadata"].get("namespace") for each in objects} - {None} - made
    assert needed <= {"kubeflow", "default"}, "an overlay creates its namespace, unless the platform does"
    for namespace in needed:
        await ensure_namespace(bare_cluster, namespace)
    await install(bare_cluster, objects)


async def test_an_optimization_job_is_stored_with_all_its_fields(
    build: Build, bare_cluster: Environment
) -> None:
    objects = build("optimizationjobs")
    await bare_cluster.install_crds(*objects)
    choices = {"categorical": {"choices": ["1e-3", "1e-4"]}}
    spec = {
        "objectives": [{"metric": "loss", "direction": "Minimize"}],
        "parameters": [{"name": "lr", "searchSpace": choices}],
        "numTrials": 2,
        "trainJobTemplate": {"spec": {"runtimeRef": {"name": "torch-distributed"}}},
    }
    wanted = {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "OptimizationJob",
        "metadata": {"name": "search", "namespace": "default"},
        "spec": spec,
    }
    async with Transport(bare_cluster.config) as transport:
        client = strict(transport)
        created = await client.create(Unstructured.wrap(wanted))
        assert created.to_dict()["spec"] == spec
        await client.delete(created)


@pytest.mark.parametrize("name", OVERLAYS)
def test_every_reference_inside_an_overlay_is_met(name: str, build: Build) -> None:
    objects = build(name)
    known = {
        (each["kind"], each["metadata"].get("namespace", ""), each["metadata"]["name"]) for each in objects
    }
    for each in objects:
        for subject in (found for found in each.get("subjects", ()) if found["kind"] != "Group"):
            assert (subject["kind"], subject.get("namespace", ""), subject["name"]) in known, each["metadata"]
        if "roleRef" in each:
            namespace = "" if each["roleRef"]["kind"] == "ClusterRole" else each["metadata"]["namespace"]
            assert (each["roleRef"]["kind"], namespace, each["roleRef"]["name"]) in known, each["metadata"]
        if each["kind"] in WEBHOOKS:
            for hook in each["webhooks"]:
                service = hook["clientConfig"]["service"]
                assert ("Service", service["namespace"], service["name"]) in known, hook["name"]
        if each["kind"] == "Deployment":
            namespace, pod = each["metadata"]["namespace"], each["spec"]["template"]["spec"]
            assert ("ServiceAccount", namespace, pod["serviceAccountName"]) in known
            for volume in pod.get("volumes", ()):
                if "configMap" in volume:
                    assert ("ConfigMap", namespace, volume["configMap"]["name"]) in known
                if "secret" in volume:
                    assert ("Secret", namespace, volume["secret"]["secretName"]) in known


def identities(objects: list[Manifest]) -> set[tuple[str, str, str]]:
    return {
        (each["kind"], each["metadata"].get("namespace", ""), each["metadata"]["name"]) for each in objects
    }


@pytest.mark.parametrize("name", ["data-cache", "kubeflow-platform", "manager", "runtimes"])
def test_an_overlay_brings_what_the_go_releases_overlay_of_that_name_brings(
    name: str, build: Build, build_upstream: Build
) -> None:
    theirs, ours = identities(build_upstream(name)), identities(build(name))
    assert theirs
    # The objects that only releases after v2.1.0 have.
    later = (
        {("MutatingWebhookConfiguration", "", "defaulter.trainer.kubeflow.org")}
        if name in NAMESPACES
        else set()
    )
    if namespace := NAMESPACES.get(name):
        later |= {(kind, namespace, PUBLIC) for kind in ("ConfigMap", "Role", "RoleBinding")}
    if name == "kubeflow-platform":
        later |= {(kind, "", VIEW) for kind in ("ClusterRole", "ClusterRoleBinding")}
    if name in ("kubeflow-platform", "runtimes"):
        namespace = NAMESPACES.get(name, "")
        later |= {("ClusterTrainingRuntime", namespace, f"{each}-distributed") for each in ("jax", "xgboost")}
    assert ours - theirs == later
    # Nothing in the Go release's overlay is missing from ours.
    assert theirs <= ours


def test_a_component_makes_the_end_of_a_log_the_message_of_a_failed_container(
    kustomize: Callable[[Path], list[Manifest]], build: Build, tmp_path: Path
) -> None:
    folder = tmp_path / "own"
    folder.mkdir()
    parts = {
        "resources": ["../config/overlays/runtimes"],
        "components": ["../config/components/log-as-message"],
    }
    (folder / "kustomization.yaml").write_text(yaml.safe_dump(parts))
    plain, changed = build("runtimes"), kustomize(folder)
    for each in changed:
        for job in each["spec"]["template"]["spec"]["replicatedJobs"]:
            for container in job["template"]["spec"]["template"]["spec"]["containers"]:
                assert container.pop("terminationMessagePolicy") == "FallbackToLogsOnError"
    assert changed == plain, "nothing else changes"


def test_the_former_name_of_the_managers_overlay_still_builds_it(build: Build) -> None:
    assert build("standalone") == build("manager")


def test_the_manager_comes_without_jobset_too(build: Build) -> None:
    whole, without = identities(build("manager")), identities(build("default"))
    assert without < whole
    assert all("jobset" in name for _, _, name in whole - without)


@pytest.mark.parametrize("name", OVERLAYS)
def test_every_service_of_an_overlay_selects_the_pods_of_one_deployment(name: str, build: Build) -> None:
    objects = build(name)
    pods = [
        (each["metadata"]["namespace"], each["spec"]["template"]["metadata"]["labels"])
        for each in objects
        if each["kind"] == "Deployment"
    ]
    for service in (each for each in objects if each["kind"] == "Service"):
        namespace, selector = service["metadata"]["namespace"], service["spec"]["selector"]
        selected = [
            labels for place, labels in pods if place == namespace and selector.items() <= labels.items()
        ]
        assert len(selected) == 1, service["metadata"]["name"]


@pytest.mark.parametrize("name", ["manager", "standalone", "kubeflow-platform", "podgrouper"])
def test_the_overlays_that_install_a_manager_pin_its_image(name: str, build: Build) -> None:
    (manager,) = [
        each for each in build(name) if each["kind"] == "Deployment" and each["metadata"]["name"] == MANAGER
    ]
    (container,) = manager["spec"]["template"]["spec"]["containers"]
    assert re.fullmatch(r"\S+:\d+\.\d+\.\d+", container["image"])


@pytest.mark.parametrize(
    ("name", "module", "pinned"),
    [
        ("jobset", "sigs.k8s.io/jobset", "trainerctl/trainerctl/localcluster/tools/jobset"),
        ("leaderworkerset", "sigs.k8s.io/lws", "test/tools/lws"),
    ],
)
def test_third_parties_come_in_the_release_that_the_tests_build(name: str, module: str, pinned: str) -> None:
    (release,) = re.findall(rf"\s{re.escape(module)} (v\S+)", (ROOT / pinned / "go.mod").read_text())
    text = (CONFIG / "third-party" / name / "kustomization.yaml").read_text()
    assert re.findall(r"/releases/download/(\S+)/manifests\.yaml", text) == [release]
    assert re.findall(r"newTag: (\S+)", text) == [release]
    assert PINS[name].version == release


def test_the_platform_gets_one_namespace_and_the_mesh_is_kept_off_the_webhook(build: Build) -> None:
    objects = build("kubeflow-platform")
    assert not [each for each in objects if each["kind"] == "Namespace"]
    assert {each["metadata"].get("namespace", "kubeflow") for each in objects} == {"kubeflow"}
    deployments = [each for each in objects if each["kind"] == "Deployment"]
    assert {each["metadata"]["name"] for each in deployments} == {MANAGER, "jobset-controller-manager"}
    for each in deployments:
        annotations = each["spec"]["template"]["metadata"]["annotations"]
        ports = "9443,10443" if each["metadata"]["name"] == MANAGER else "9443"
        assert annotations["traffic.sidecar.istio.io/excludeInboundPorts"] == ports


def configuration(objects: list[Manifest], tmp_path: Path) -> Configuration:
    """Return the Configuration of the Deployment's ``--config``, parsed as the manager does."""
    (manager,) = [
        each
        for each in objects
        if each["kind"] == "Deployment" and each["metadata"]["name"].startswith("kubeflow-trainer-")
    ]
    (container,) = manager["spec"]["template"]["spec"]["containers"]
    (argument,) = [each for each in container["args"] if each.startswith("--config=/")]
    (config_map,) = [
        each["configMap"]["name"]
        for each in manager["spec"]["template"]["spec"]["volumes"]
        if "configMap" in each
    ]
    (held,) = [
        each for each in objects if each["kind"] == "ConfigMap" and each["metadata"]["name"] == config_map
    ]
    file = tmp_path / "configuration.yaml"
    file.write_text(held["data"][argument.removeprefix("--config=/")])
    return config.load(str(file))


@pytest.mark.parametrize(
    ("overlay", "objects", "switch"),
    [
        (
            "podgrouper",
            {
                ("ClusterRole", "", "kubeflow-trainer-pod-grouper"),
                ("ClusterRoleBinding", "", "kubeflow-trainer-pod-grouper"),
            },
            {"pod_grouper": {"enable": True}},
        ),
        (
            "metrics-authorization",
            {
                ("ClusterRole", "", "kubeflow-trainer-metrics-authorization"),
                ("ClusterRole", "", "kubeflow-trainer-metrics-reader"),
                ("ClusterRoleBinding", "", "kubeflow-trainer-metrics-authorization"),
            },
            {"metrics": {"require_authorization": True}},
        ),
        (
            "status-server",
            {
                ("ClusterRole", "", "kubeflow-trainer-status-server"),
                ("ClusterRoleBinding", "", "kubeflow-trainer-status-server"),
            },
            {"feature_gates": {"TrainJobStatus": True}},
        ),
    ],
    ids=["pod grouper", "authorized metrics", "status server"],
)
def test_an_overlay_is_the_managers_with_its_roles_and_its_switch(
    build: Build,
    tmp_path: Path,
    overlay: str,
    objects: set[tuple[str, str, str]],
    switch: dict[str, dict[str, bool]],
) -> None:
    plain, changed = build("default"), build(overlay)
    assert identities(changed) - identities(plain) == objects
    usual, switched = configuration(plain, tmp_path), configuration(changed, tmp_path)
    assert switched != usual
    ((section, keys),) = switch.items()
    before = getattr(usual, section)
    after = keys if before is None else before.model_copy(update=keys)
    assert switched == usual.model_copy(update={section: after})


def test_the_pod_grouper_alone_has_no_right_name_or_lease_of_the_trainers(
    build: Build, tmp_path: Path
) -> None:
    alone, trainers = build("podgrouper-only"), build("default")
    shared = {(each["kind"], each["metadata"]["name"]) for each in alone} & {
        (each["kind"], each["metadata"]["name"]) for each in trainers
    }
    assert shared == {("Namespace", "kubeflow-system")}
    ours, theirs = configuration(alone, tmp_path), configuration(trainers, tmp_path)
    assert ours.leader_election.leader_elect
    assert ours.leader_election.resource_name != theirs.leader_election.resource_name
    (deployment,) = [each for each in alone if each["kind"] == "Deployment"]
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    assert flags.parse(container["args"]).controllers == (flags.POD_GROUPER,)
    assert re.fullmatch(r"\S+:\d+\.\d+\.\d+", container["image"])


def remote(folder: Path) -> set[str]:
    """Return the resources and components of kustomizations that are not files or folders on this machine."""
    return {
        each
        for file in (*folder.rglob("kustomization.yaml"), *folder.rglob("Kustomization"))
        for listed in [yaml.safe_load(file.read_text())]
        for each in (*listed.get("resources", ()), *listed.get("components", ()))
        if not (file.parent / each).exists()
    }


def test_the_offline_form_needs_no_network_and_renders_the_same(
    build: Build, kustomize: Callable[[Path], list[Manifest]], tmp_path: Path
) -> None:
    assert len(remote(CONFIG)) == 2  # JobSet and LeaderWorkerSet; the fixture serves both
    arguments = [f"VENV={sys.prefix}", f"CONFIG={tmp_path / 'config'}", f"COPY={tmp_path / 'offline'}"]
    subprocess.run(
        ["make", "-o", f"{sys.prefix}/.runtime", "offline", *arguments],
        cwd=ROOT,
        check=True,
        capture_output=True,
    )
    offline = tmp_path / "offline" / "config"
    assert remote(offline) == set()
    for name in ("manager", "kubeflow-platform", "data-cache"):
        assert kustomize(offline / "overlays" / name) == build(name)


@pytest.mark.parametrize("name", ["default", "kubeflow-platform", "podgrouper"])
def test_high_availability_is_one_component(
    name: str, build: Build, kustomize: Callable[[Path], list[Manifest]], tmp_path: Path
) -> None:
    plain = {(each["kind"], each["metadata"]["name"]): each for each in build(name)}
    folder = "default" if name == "default" else f"overlays/{name}"
    (tmp_path / "kustomization.yaml").write_text(
        yaml.safe_dump(
            {"resources": [f"config/{folder}"], "components": ["config/components/high-availability"]}
        )
    )

    changed = {(each["kind"], each["metadata"]["name"]): each for each in kustomize(tmp_path)}

    budget, manager = changed.pop(("PodDisruptionBudget", MANAGER)), changed["Deployment", MANAGER]
    assert manager["spec"].pop("replicas") == 2
    assert changed == plain
    assert budget["metadata"]["namespace"] == manager["metadata"]["namespace"]
    assert budget["spec"] == {"maxUnavailable": 1, "selector": manager["spec"]["selector"]}


@pytest.mark.parametrize("name", sorted({*OVERLAYS, "default"} - {"runtimes"}))
def test_every_deployment_of_ours_requests_cpu_and_memory(name: str, build: Build) -> None:
    ours = [
        each
        for each in build(name)
        if each["kind"] == "Deployment" and each["metadata"]["name"].startswith("kubeflow-trainer-")
    ]
    assert len(ours) == 1
    for container in ours[0]["spec"]["template"]["spec"]["containers"]:
        assert set(container["resources"]["requests"]) == {"cpu", "memory"}
