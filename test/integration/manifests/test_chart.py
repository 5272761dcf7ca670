# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The Helm chart takes the values of Kubeflow Trainer's charts v2.1.0 and v2.3.0, and renders the same installation.

``upstream.json`` holds the objects that those charts render for the values in ``values.json``: of CRDs the name, of
runtimes name, labels and images, of ClusterRoles no rules.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from hack import chart
from pkg import config
from testkit import charts

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[3]
DATA = ROOT / "test" / "testdata" / "chart"
VALUES: dict[str, Any] = json.loads((DATA / "values.json").read_text())
UPSTREAM: dict[str, Any] = json.loads((DATA / "upstream.json").read_text())

Manifest = dict[str, Any]
Objects = dict[tuple[str, str], Manifest]
Render = Callable[..., Objects]

DIFFERENT: Final = {
    # The version of the chart, and the image of this project.
    r".*labels\.(helm\.sh/chart|app\.kubernetes\.io/version)": "the version",
    r"ClusterTrainingRuntime .*": "compared by itself",
    # The runtimes are those of v2.3.0 in both cases.
    r"ConfigMap kubeflow-trainer-public .*": "compared by itself",
    r"ConfigMap .*\.data\.runtimes\.yaml": "compared by itself",
    # v2.1.0's Service names a port on which nothing listens.
    r"Service .*ports\.monitoring-port\.(port|targetPort)": "8443",
    r"Service .*ports\.webhook-server\.targetPort": "by name",
    r".*(livenessProbe|readinessProbe)\.httpGet\.port": "by name",
    # Our probes request the paths that are in the Configuration.
    r".*(livenessProbe|readinessProbe)\.httpGet\.path": "compared by itself",
    r"ClusterRole kubeflow-trainer-cache-initializer.*component": "it has one",
}


@pytest.fixture(scope="session")
def render(tmp_path_factory: pytest.TempPathFactory) -> Render:
    """Return a function that renders the chart with values, without the charts that it depends on."""
    home = tmp_path_factory.mktemp("own-chart")
    copied = charts.copied(chart.CHART, home, "jobset", "lws")
    rendered: dict[str, Objects] = {}

    def run(values: Manifest, *, refused: str = "") -> Objects:
        key = json.dumps(values)
        if key not in rendered:
            (home / "values.json").write_text(key)
            said = charts.template(copied, "-f", str(home / "values.json"), code=1 if refused else 0)
            assert refused in said
            rendered[key] = {} if refused else by_name(said)
        return rendered[key]

    return run


def by_name(text: str) -> Objects:
    """Return the rendered objects by kind and name; of a CRD only its name, because it is long."""
    found: Objects = {}
    for document in re.split(r"(?m)^---$", text):
        if "\nkind: CustomResourceDefinition\n" in document:
            (name,) = re.findall(r"(?m)^  name: (\S+)$", document)
            each: Manifest = {"kind": "CustomResourceDefinition", "metadata": {"name": name}}
            each["apiVersion"] = "apiextensions.k8s.io/v1"
        else:
            each = yaml.safe_load(document)
        if each:
            key = each["kind"], each["metadata"]["name"]
            assert key not in found
            found[key] = each
    return found


def leaves(value: object, path: str) -> Iterator[tuple[str, object]]:
    """Yield every leaf with its path; items of lists are identified by their name, embedded YAML is decoded."""
    if isinstance(value, dict):
        for key, each in value.items():
            yield from leaves(each, f"{path}.{key}")
    elif isinstance(value, list):
        for number, each in enumerate(value):
            name = each.get("name", number) if isinstance(each, dict) else number
            yield from leaves(each, f"{path}.{name}")
    elif path.endswith(".controller_manager_config.yaml"):
        yield from leaves(yaml.safe_load(str(value)), path)
    else:
        yield path, value


@pytest.mark.parametrize("case", UPSTREAM["cases"])
def test_the_chart_renders_what_upstream_renders(case: str, render: Render) -> None:
    name, version = case.split()
    values = VALUES[name]["values"]
    ours = render(values)
    wanted = {
        (each["kind"], each["metadata"]["name"]): each
        for each in map(UPSTREAM["objects"].get, UPSTREAM["cases"][case])
    }
    if values.get("manager", {}).get("config", {}).get("certManagement", {}).get("enable") is False:
        wanted.pop(
            ("Secret", "kubeflow-trainer-webhook-cert")
        )  # an empty Secret would hide that the certificates are missing

    assert wanted.keys() - ours.keys() == set()
    differences = [
        (path, value, found.get(path))
        for key, expected in wanted.items()
        for found in [dict(leaves(ours[key], " ".join(key)))]
        for path, value in leaves(expected, " ".join(key))
        if found.get(path) != value and not is_different(path, value, values)
    ]
    assert differences == [], version


def is_different(path: str, value: object, values: Manifest) -> bool:
    """Return True if the charts differ at the path on purpose."""
    if path.endswith("containers.manager.image"):
        return not values.get("image", {}).get("registry")  # the charts have different default images
    return value in ("", None) or any(re.fullmatch(pattern, path) for pattern in DIFFERENT)


@pytest.mark.parametrize("name", [name for name in VALUES if f"{name} 2.3.0" in UPSTREAM["cases"]])
def test_the_same_runtimes_are_installed_with_the_same_images_and_labels(name: str, render: Render) -> None:
    key = ("ConfigMap", "kubeflow-trainer-runtimes-installer")
    objects = map(UPSTREAM["objects"].get, UPSTREAM["cases"][f"{name} 2.3.0"])
    upstream = [each for each in objects if (each["kind"], each["metadata"]["name"]) == key]
    ours = render(VALUES[name]["values"])
    if not upstream:
        assert key not in ours
        return

    assert runtimes(ours[key]["data"]["runtimes.yaml"]) == runtimes(upstream[0]["data"]["runtimes.yaml"])


def runtimes(text: str) -> dict[str, tuple[list[str], dict[str, str]]]:
    """Return images and labels of each runtime by its name."""
    found = {}
    for each in filter(None, yaml.safe_load_all(text)):
        named = each.get("images") or sorted(set(re.findall(r"image: (\S+)", yaml.safe_dump(each))))
        # Upstream's chart starts the newest initializers, whatever the release.
        named = [re.sub(r"(-initializer):.*", r"\1", image) for image in named]
        labels = each["metadata"].get("labels") or {}
        kept = {
            key: value
            for key, value in labels.items()
            if key.startswith("trainer.kubeflow.org/") or "/" not in key
        }
        found[each["metadata"]["name"]] = (named, kept)
    return found


@pytest.mark.parametrize("name", VALUES)
def test_the_configuration_is_accepted_by_the_manager(name: str, render: Render, tmp_path: Path) -> None:
    (found,) = [
        each["data"]["controller_manager_config.yaml"]
        for each in render(VALUES[name]["values"]).values()
        if "controller_manager_config.yaml" in each.get("data", {})
    ]
    written = tmp_path / "config.yaml"
    written.write_text(found)

    loaded = config.load(str(written))

    assert loaded.health.readiness_endpoint_name in ("readyz", "ready")


def test_probes_and_ports_follow_the_configuration(render: Render) -> None:
    wanted = {
        "health": {"healthProbeBindAddress": "0.0.0.0:9000", "readinessEndpointName": "ready", "livenessEndpointName": "alive"},
        "metrics": {"bindAddress": "0"},
        "webhook": {"port": 9444},
        "statusServer": {"port": 10444},
        "certManagement": {"webhookSecretName": "own", "webhookServiceName": "hook"},
    }  # fmt: skip
    objects = render({"manager": {"config": wanted}})
    (container,) = objects["Deployment", "kubeflow-trainer-controller-manager"]["spec"]["template"]["spec"][
        "containers"
    ]
    service = objects["Service", "hook"]["spec"]["ports"]

    assert {each["name"]: each["containerPort"] for each in container["ports"]} == {
        "health": 9000, "webhook": 9444, "status-server": 10444,
    }  # fmt: skip
    assert container["readinessProbe"]["httpGet"] == {"path": "/ready", "port": "health"}
    assert container["livenessProbe"]["httpGet"] == {"path": "/alive", "port": "health"}
    assert {each["name"]: each["port"] for each in service} == {"webhook-server": 443, "status-server": 10444}
    assert ("Secret", "own") in objects
    for kind in ("ValidatingWebhookConfiguration", "MutatingWebhookConfiguration"):
        (configuration,) = [each for (found, _), each in objects.items() if found == kind]
        assert {each["clientConfig"]["service"]["name"] for each in configuration["webhooks"]} == {"hook"}


def test_what_is_new_can_be_enabled(render: Render) -> None:
    manager = {
        "podDisruptionBudget": {"enabled": True}, "networkPolicy": {"enabled": True}, "priorityClassName": "system",
        "topologySpreadConstraints": [{"maxSkew": 1}], "args": ["--zap-log-level=1"], "annotations": {"a": "b"},
        "config": {"podGrouper": {"enable": True}, "metrics": {"requireAuthorization": True}, "notStartedAfter": "5m"},
    }  # fmt: skip
    objects = render({"manager": manager, "commonLabels": {"team": "ml"}})
    pod = objects["Deployment", "kubeflow-trainer-controller-manager"]["spec"]["template"]

    assert ("PodDisruptionBudget", "kubeflow-trainer-controller-manager") in objects
    assert objects["NetworkPolicy", "kubeflow-trainer-controller-manager"]["spec"]["policyTypes"] == [
        "Ingress"
    ]
    assert pod["spec"]["priorityClassName"] == "system"
    assert pod["spec"]["topologySpreadConstraints"] == [{"maxSkew": 1}]
    assert pod["spec"]["containers"][0]["args"][1:] == ["--zap-log-level=1"]
    assert pod["metadata"]["annotations"]["a"] == "b"
    assert {name for kind, name in objects if kind == "ClusterRole"} == {
        "kubeflow-trainer-controller-manager",
        "kubeflow-trainer-controller-manager-podgrouper",
        "kubeflow-trainer-controller-manager-metrics-authorization",
    }
    labelled = [each for (kind, _), each in objects.items() if kind != "CustomResourceDefinition"]
    assert all(each["metadata"]["labels"]["team"] == "ml" for each in labelled)


@pytest.mark.parametrize(
    ("metrics", "has_role"),
    [({"auth": {"enabled": True}}, True), ({"auth": {"enabled": False}}, False), ({"auth": {}}, False)],
)
def test_authorized_metrics_by_their_name_in_newer_releases_bring_their_role(
    metrics: Manifest, has_role: bool, render: Render
) -> None:
    objects = render({"manager": {"config": {"metrics": metrics}}})
    role = "kubeflow-trainer-controller-manager-metrics-authorization"
    assert (("ClusterRole", role) in objects) is has_role


@pytest.mark.parametrize("policy", ["", "FallbackToLogsOnError"])
def test_the_end_of_a_log_can_be_the_message_of_a_failed_container(policy: str, render: Render) -> None:
    objects = render({"runtimes": {"defaultEnabled": True, "terminationMessagePolicy": policy}})
    text = objects["ConfigMap", "kubeflow-trainer-runtimes-installer"]["data"]["runtimes.yaml"]
    found = list(filter(None, yaml.safe_load_all(text)))
    jobs = [job for each in found for job in each["spec"]["template"]["spec"]["replicatedJobs"]]
    containers = [each for job in jobs for each in job["template"]["spec"]["template"]["spec"]["containers"]]
    assert len(found) == 8
    assert {each.get("terminationMessagePolicy", "") for each in containers} == {policy}


@pytest.mark.parametrize(("given", "replicas"), [(None, 2), (1, 2), (3, 3)])
def test_high_availability_is_one_value(given: int | None, replicas: int, render: Render) -> None:
    manager = {"highAvailability": True} | ({} if given is None else {"replicas": given})
    plain, changed = dict(render({})), dict(render({"manager": manager}))

    assert changed.keys() - plain.keys() == {("PodDisruptionBudget", "kubeflow-trainer-controller-manager")}
    deployment = changed["Deployment", "kubeflow-trainer-controller-manager"]
    assert deployment["spec"]["replicas"] == replicas
    budget = changed["PodDisruptionBudget", "kubeflow-trainer-controller-manager"]
    assert budget["spec"] == {"maxUnavailable": 1, "selector": deployment["spec"]["selector"]}


def test_the_manager_requests_what_the_manifests_of_config_request(render: Render) -> None:
    wanted, _ = yaml.safe_load_all((ROOT / "config" / "manager" / "manager.yaml").read_text())
    requests, ours = (
        each["spec"]["template"]["spec"]["containers"][0]["resources"]["requests"]
        for each in (wanted, render({})["Deployment", "kubeflow-trainer-controller-manager"])
    )
    assert set(requests) == {"cpu", "memory"}
    assert ours == requests


def test_no_network_is_needed_once_the_dependencies_are_in_the_charts_folder(
    render: Render, tmp_path: Path
) -> None:
    copied = Path(shutil.copytree(chart.CHART, tmp_path / charts.NAME))
    for each in yaml.safe_load((copied / "Chart.yaml").read_text())["dependencies"]:
        templates = copied / "charts" / each["name"] / "templates"
        templates.mkdir(parents=True)
        described = {"apiVersion": "v2", "name": each["name"], "version": each["version"]}
        (templates.parent / "Chart.yaml").write_text(yaml.safe_dump(described))
        config_map = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": f"of-{each['name']}"}}
        (templates / "config_map.yaml").write_text(yaml.safe_dump(config_map))
    objects = by_name(charts.template(copied, PATH="/nonexistent", HTTPS_PROXY="http://127.0.0.1:1"))
    assert objects.pop(("ConfigMap", "of-jobset"))
    assert objects == render({})


@pytest.mark.parametrize(
    ("manager", "bound"),
    [
        ({}, []),
        ({"config": {"featureGates": {"TrainJobStatus": True}}}, ["status-server"]),
        ({"config": {"featureGates": {"FailureEvidence": True}}}, ["failure-evidence"]),
        ({"config": {"featureGates": {"TTLAfterFinished": True}}}, ["ttl-after-finished"]),
        (
            {"config": {"featureGates": {"AllAlpha": True}}},
            ["status-server", "failure-evidence", "ttl-after-finished"],
        ),
        (
            {"config": {"featureGates": {"AllAlpha": True, "TrainJobStatus": False}}},
            ["failure-evidence", "ttl-after-finished"],
        ),
        ({"config": {"featureGates": None}}, []),
        (
            {"args": ["--zap-log-level=1", "--feature-gates=AllBeta=true,TrainJobStatus=true"]},
            ["status-server"],
        ),
        ({"args": ["--feature-gates=TrainJobStatus=false"]}, []),
    ],
    ids=str,
)
def test_the_manager_has_a_right_of_a_feature_gate_only_with_this_gate(
    manager: Manifest, bound: list[str], render: Render
) -> None:
    objects = render({"manager": manager})
    for kind in ("ClusterRole", "ClusterRoleBinding"):
        for name in ("status-server", "failure-evidence", "ttl-after-finished"):
            assert ((kind, f"kubeflow-trainer-controller-manager-{name}") in objects) is (name in bound)


@pytest.mark.parametrize(
    ("values", "installed"),
    [
        ({}, False),
        ({"manager": {"config": {"compatibilityVersion": "2.3"}}}, False),
        ({"manager": {"config": {"compatibilityVersion": "2.4"}}}, True),
        ({"crds": {"enabled": False}, "manager": {"config": {"compatibilityVersion": "2.4"}}}, False),
    ],
    ids=str,
)
def test_optimization_jobs_are_kept_in_the_preview_of_v2_4(
    values: Manifest, installed: bool, render: Render
) -> None:
    crds = {name for kind, name in render(values) if kind == "CustomResourceDefinition"}
    assert ("optimizationjobs.trainer.kubeflow.org" in crds) is installed
    others = {
        f"{each}.trainer.kubeflow.org"
        for each in ("clustertrainingruntimes", "trainingruntimes", "trainjobs")
    }
    assert (others <= crds) is ("crds" not in values)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"manager": {"replica": 2}}, "replica"),
        ({"unknown": {}}, "unknown"),
        ({"runtimes": {"torchDistributed": {"enable": True}}}, "enable"),
        ({"manager": {"replicas": "two"}}, "replicas"),
        ({"dataCache": {"runtimes": {"torchDistributedWithCache": {"enabled": True}}}}, "dataCache.enabled"),
    ],
)
def test_a_value_that_is_not_known_is_refused_by_its_name(
    values: Manifest, words: str, render: Render
) -> None:
    render(values, refused=words)


def test_the_generated_files_are_those_of_config() -> None:
    assert {name: (chart.CHART / name).read_text() for name in chart.files()} == chart.files()
    kept = {str(path.relative_to(chart.CHART)) for path in (chart.CHART / "files").rglob("*.yaml")}
    assert kept == {name for name in chart.files() if name.startswith("files/")}
