# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The Helm chart of Kubeflow Trainer v2.1.0 starts this project's image, which accepts every value that the chart renders."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from pkg import config
from pkg.app import flags
from testkit import charts
from testkit.charts import NAME

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[3]
IMAGE = "registry.example.com/ml/trainer-controller-manager:0.2.0"

Manifest = dict[str, Any]
Render = Callable[..., dict[tuple[str, str], Manifest]]


@pytest.fixture(scope="session")
def render(upstream: Path, tmp_path_factory: pytest.TempPathFactory) -> Render:
    """Return a function that renders the chart with values, without the JobSet chart that it depends on."""
    chart = charts.copied(upstream / "charts" / NAME, tmp_path_factory.mktemp("chart"), "jobset")
    assert yaml.safe_load((chart / "Chart.yaml").read_text())["version"] == "2.1.0"
    return lambda *values: charts.rendered(chart, *(f"--set={each}" for each in values))


VALUES = [
    "image.registry=registry.example.com",
    "image.repository=ml/trainer-controller-manager",
    "image.tag=0.2.0",
]


def pod(objects: dict[tuple[str, str], Manifest]) -> Manifest:
    deployment = objects["Deployment", f"{NAME}-controller-manager"]
    spec: Manifest = deployment["spec"]["template"]["spec"]
    return spec


def final_stage() -> str:
    """Return the last stage, which a build without a target builds."""
    stages = (ROOT / "Containerfile").read_text().split("\nFROM ")
    assert stages[-1].strip() == "manager"
    (found,) = [each for each in stages if each.splitlines()[0].endswith(" AS manager")]
    return found


def test_the_deployment_starts_a_program_that_the_image_has_with_flags_that_it_takes(render: Render) -> None:
    (container,) = pod(render(*VALUES))["containers"]
    assert container["image"] == IMAGE
    assert (
        container["command"]
        == ["/manager"]
        == yaml.safe_load(re.findall("ENTRYPOINT (.*)", final_stage())[0])
    )
    parsed = flags.parse(container["args"])
    assert parsed.config in {mount["mountPath"] for mount in container["volumeMounts"]}


def test_the_image_runs_as_a_user_that_the_security_context_allows(render: Render) -> None:
    (container,) = pod(render(*VALUES))["containers"]
    assert container["securityContext"]["runAsNonRoot"]
    assert "runAsUser" not in container["securityContext"]
    # The kubelet refuses to start a user given by name, because it cannot determine if that is root.
    assert re.fullmatch(r"[1-9]\d*(:\d+)?", re.findall("USER (.*)", final_stage())[0])


@pytest.mark.parametrize(
    "values",
    [
        [],
        [
            "manager.config.controller.groupKindConcurrency.trainJob=7",
            "manager.config.leaderElection.leaderElect=false",
        ],
        ["manager.config.certManagement.enable=false", "manager.config.webhook.host=0.0.0.0"],
        ["manager.config.metrics.secureServing=false", "manager.config.health.healthProbeBindAddress="],
    ],
    ids=lambda values: ",".join(values) or "default",
)
def test_the_configuration_is_accepted_and_its_probes_and_ports_answer(
    values: list[str], render: Render, tmp_path: Path
) -> None:
    objects = render(*VALUES, *values)
    file = tmp_path / "controller_manager_config.yaml"
    file.write_text(objects["ConfigMap", f"{NAME}-config"]["data"][file.name])
    cfg = config.load(str(file))
    options = config.manager_options(cfg)
    given = dict(each.split("=", 1) for each in values)
    assert cfg.cert_management.enable is (given.get("manager.config.certManagement.enable") != "false")
    assert options.leader_election is (given.get("manager.config.leaderElection.leaderElect") != "false")
    assert options.controller.group_kind_concurrency["TrainJob.trainer.kubeflow.org"] == int(
        given.get("manager.config.controller.groupKindConcurrency.trainJob", 5)
    )
    (container,) = pod(objects)["containers"]
    for probe, path in (
        ("livenessProbe", options.liveness_endpoint_name),
        ("readinessProbe", options.readiness_endpoint_name),
    ):
        asked = container[probe]["httpGet"]
        assert asked["path"].strip("/") == path
        assert options.health_probe_bind_address == f":{asked['port']}"
    service = objects["Service", f"{NAME}-controller-manager"]
    ports = {port["name"]: port["targetPort"] for port in service["spec"]["ports"]}
    assert ports["webhook-server"] == options.webhook_port


def test_certificates_are_kept_where_the_chart_mounts_them_and_trusted_where_it_configures_them(
    render: Render, tmp_path: Path
) -> None:
    objects = render(*VALUES)
    file = tmp_path / "controller_manager_config.yaml"
    file.write_text(objects["ConfigMap", f"{NAME}-config"]["data"][file.name])
    cfg = config.load(str(file))
    spec = pod(objects)
    (volume,) = [each for each in spec["volumes"] if "secret" in each]
    (mount,) = [each for each in spec["containers"][0]["volumeMounts"] if each["name"] == volume["name"]]
    # The image has no TMPDIR, so its temporary folder is /tmp.
    assert "TMPDIR" not in final_stage()
    assert mount["mountPath"] == "/tmp/k8s-webhook-server/serving-certs"
    assert volume["secret"]["secretName"] == cfg.cert_management.webhook_secret_name
    assert ("Secret", cfg.cert_management.webhook_secret_name) in objects
    hooks = objects["ValidatingWebhookConfiguration", "validator.trainer.kubeflow.org"]
    services = {hook["clientConfig"]["service"]["name"] for hook in hooks["webhooks"]}
    assert services == {cfg.cert_management.webhook_service_name}
    assert ("Service", cfg.cert_management.webhook_service_name) in objects
