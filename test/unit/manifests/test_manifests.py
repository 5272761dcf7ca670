# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The shipped manifests agree with the code, and keep the names of existing installations."""

import itertools
import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from controller_runtime.fake import FakeClient

from hack import rbac
from pkg import config
from pkg.constants.trainer import API_RELEASE
from pkg.podgrouper import new_plugins_hub

ROOT = Path(__file__).parents[3]
CONFIG = ROOT / "config"
NAME = "kubeflow-trainer-controller-manager"
APART = (
    "podgrouper",
    "metrics/filters.py",
    "statusserver",
    "controller/evidence.py",
    "controller/ttl_after_finished.py",
)


def read(path: str, *, root: Path = CONFIG) -> list[dict[str, Any]]:
    return [document for document in yaml.safe_load_all((root / path).read_text()) if document]


def marker_fields(marker: str) -> dict[str, list[str]]:
    fields = dict(field.split("=", 1) for field in marker.split(","))
    return {key: value.strip('"').split(";") for key, value in fields.items()}


def markers(kind: str, *, below: str = "") -> list[dict[str, list[str]]]:
    """Return the markers in the folder or module ``below``, or in all code that has no role of its own."""
    pattern = re.compile(rf"^# \+kubebuilder:{kind}:(\S+)$", re.MULTILINE)
    sources = [
        source
        for package in (ROOT / "pkg", ROOT / "controller-runtime/controller_runtime")
        for source in sorted(package.rglob("*.py"))
        if {each for each in APART if source.is_relative_to(package / each)} == ({below} if below else set())
    ]
    return [marker_fields(found) for source in sources for found in pattern.findall(source.read_text())]


def permissions(rules: list[dict[str, list[str]]]) -> set[tuple[str, str, str]]:
    """Return the group, resource and verb of each permission; for a URL path, the group is empty."""
    found = set()
    for rule in rules:
        paths = rule.get("urls", rule.get("nonResourceURLs"))
        groups = [""] if paths else rule.get("groups", rule.get("apiGroups", []))
        found |= set(itertools.product(groups, paths or rule["resources"], rule["verbs"]))
    return found


def reference(release: str = "v2.1.0") -> Path:
    root = (
        Path(os.environ.get("TRAINER_REFERENCE", ROOT.parent / "shared" / "reference")) / f"trainer-{release}"
    )
    if not root.is_dir():
        pytest.skip(f"no reference manifests at {root}")
    return root


def test_the_sdk_is_told_the_release_that_the_code_serves() -> None:
    (generators,) = (each["configMapGenerator"] for each in read("manager/kustomization.yaml"))
    (public,) = (each for each in generators if each["name"] == "kubeflow-trainer-public")
    assert public["literals"] == [f"kubeflow_trainer_version={API_RELEASE}"]


def test_the_roles_are_written_from_the_markers_and_grant_no_more() -> None:
    for path, text in rbac.render().items():
        assert (CONFIG / path).read_text() == text, f"run `make manifests`: {path}"
    (role,) = read("rbac/role.yaml")
    assert permissions(role["rules"]) == permissions(markers("rbac"))


def test_the_role_grants_what_the_reference_does_and_only_these_more() -> None:
    (theirs,) = read("rbac/role.yaml", root=reference())
    (ours,) = read("rbac/role.yaml")
    assert ours["metadata"] == theirs["metadata"]
    added = {("scheduling.k8s.io", "priorityclasses", verb) for verb in ("list", "watch")}
    added.add(("jobset.x-k8s.io", "jobsets", "delete"))
    mutating = ("admissionregistration.k8s.io", "mutatingwebhookconfigurations")
    added |= {(*mutating, verb) for verb in ("get", "list", "update", "watch")}
    gangs = {
        (resource, verb) for resource in ("podgroups", "workloads") for verb in ("create", "delete", "get")
    }
    gangs |= {
        (resource, verb) for resource in ("podgroups", "workloads") for verb in ("list", "patch", "watch")
    }
    added |= {("scheduling.k8s.io", *each) for each in gangs}
    assert permissions(ours["rules"]) == permissions(theirs["rules"]) | added


@pytest.mark.parametrize("release", ["v2.1.0", "v2.3.0"])
def test_the_recorded_rights_of_a_go_release_are_those_of_its_role(release: str) -> None:
    recorded = json.loads((ROOT / "test" / "testdata" / "rbac" / "go-trainer.json").read_text())[release]
    (theirs,) = read("rbac/role.yaml", root=reference(release))
    rows = {(group, resource, verb) for group, resource, verbs in recorded for verb in verbs.split()}
    assert rows == permissions(theirs["rules"])


def test_the_role_names_the_webhook_configurations_that_it_grants() -> None:
    (role,) = read("rbac/role.yaml")
    for configuration in read("webhook/manifests.yaml"):
        resource = f"{configuration['kind'].lower()}s"
        (rule,) = [each for each in role["rules"] if resource in each.get("resources", ())]
        assert rule["resourceNames"] == [configuration["metadata"]["name"]]


def test_reviews_for_metrics_are_granted_only_by_the_overlay_that_requires_authorization() -> None:
    (role,) = read("metrics-authorization/role.yaml")
    granted = permissions(role["rules"])
    assert granted == permissions(markers("rbac", below="metrics/filters.py"))
    assert {resource for _, resource, _ in granted} == {"tokenreviews", "subjectaccessreviews"}
    (binding,) = read("metrics-authorization/role_binding.yaml")
    assert binding["roleRef"]["name"] == role["metadata"]["name"]
    assert {each["name"] for each in binding["subjects"]} == {NAME}


def test_pods_and_jobs_are_granted_only_by_the_overlay_whose_pods_report_their_progress() -> None:
    (role,) = read("status-server/role.yaml")
    granted = permissions(role["rules"])
    assert granted == permissions(markers("rbac", below="statusserver"))
    # Upstream does not read the pod and its Job, and its paths are permitted by a default role of Kubernetes.
    paths = {("", path, "get") for path in ("/.well-known/openid-configuration", "/openid/v1/jwks")}
    assert granted == {("", "pods", "get"), ("batch", "jobs", "get"), *paths}
    (binding,) = read("status-server/role_binding.yaml")
    assert binding["roleRef"]["name"] == role["metadata"]["name"]
    assert {each["name"] for each in binding["subjects"]} == {NAME}


@pytest.mark.parametrize(
    ("folder", "module", "expected"),
    [
        ("failure-evidence", "evidence.py", {("", "pods", "list"), ("", "pods", "watch")}),
        ("ttl-after-finished", "ttl_after_finished.py", {("trainer.kubeflow.org", "trainjobs", "delete")}),
    ],
)
def test_a_right_that_a_feature_gate_needs_is_granted_only_by_the_folder_of_the_gate(
    folder: str, module: str, expected: set[tuple[str, str, str]]
) -> None:
    (role,) = read(f"{folder}/role.yaml")
    granted = permissions(role["rules"])
    assert granted == permissions(markers("rbac", below=f"controller/{module}")) == expected
    (binding,) = read(f"{folder}/role_binding.yaml")
    assert binding["roleRef"]["name"] == role["metadata"]["name"]
    assert {each["name"] for each in binding["subjects"]} == {NAME}


def test_the_pod_groupers_role_is_one_of_its_own_that_grants_what_its_markers_ask_for() -> None:
    (role,) = read("podgrouper/role.yaml")
    assert permissions(role["rules"]) == permissions(markers("rbac", below="podgrouper"))
    (binding,) = read("podgrouper/role_binding.yaml")
    assert binding["roleRef"]["name"] == role["metadata"]["name"]
    assert {each["name"] for each in binding["subjects"]} == {NAME}
    (trainers,) = read("rbac/role.yaml")
    assert not {verb for _, resource, verb in permissions(trainers["rules"]) if resource == "pods"}


def test_the_pod_groupers_role_reads_every_kind_that_has_a_grouper() -> None:
    (role,) = read("podgrouper/role.yaml")
    granted = {(group, resource) for group, resource, verb in permissions(role["rules"]) if verb == "watch"}
    hub = new_plugins_hub(FakeClient(), found=[])
    assert {(kind.group, f"{kind.kind.lower()}s") for kind in hub.kinds()} <= granted


def test_the_webhooks_are_those_of_the_markers() -> None:
    configurations = read("webhook/manifests.yaml")
    names = [configuration["metadata"]["name"] for configuration in configurations]
    assert names == ["defaulter.trainer.kubeflow.org", "validator.trainer.kubeflow.org"]
    found = {
        (
            str(configuration["kind"] == "MutatingWebhookConfiguration").lower(),
            hook["name"],
            hook["clientConfig"]["service"]["path"],
            hook["failurePolicy"].lower(),
            hook["sideEffects"],
            *rule["resources"],
            *(operation.lower() for operation in rule["operations"]),
        )
        for configuration in configurations
        for hook in configuration["webhooks"]
        for rule in hook["rules"]
    }
    asked = {
        (
            *m["mutating"],
            *m["name"],
            *m["path"],
            *m["failurePolicy"],
            *m["sideEffects"],
            *m["resources"],
            *m["verbs"],
        )
        for m in markers("webhook")
    }
    assert len(found) == 4
    assert found == asked


NOT_DISABLED = {
    "matchExpressions": [
        {"key": "trainer.kubeflow.org/webhook-validation", "operator": "NotIn", "values": ["disabled"]}
    ]
}


def test_the_webhook_configurations_equal_the_reference() -> None:
    mutating, validating = read("webhook/manifests.yaml", root=reference("v2.3.0"))
    mutating["metadata"]["name"] = "defaulter.trainer.kubeflow.org"
    validating["metadata"]["name"] = "validator.trainer.kubeflow.org"
    for hook in validating["webhooks"][:2]:  # the reference adds this in a kustomize patch
        hook["objectSelector"] = NOT_DISABLED
    for hook in (*mutating["webhooks"], *validating["webhooks"]):
        hook["clientConfig"]["service"] |= {"name": NAME, "namespace": "kubeflow-system"}
    ours = read("webhook/manifests.yaml")
    (defaulter,) = ours[0]["webhooks"]
    assert [each["name"] for each in defaulter.pop("matchConditions")] == ["may-change"]
    assert defaulter.pop("reinvocationPolicy") == "IfNeeded"
    assert ours == [mutating, validating]


def test_the_configuration_file_equals_the_reference() -> None:
    path = "manager/controller_manager_config.yaml"
    assert read(path) == read(path, root=reference())


def test_the_deployment_keeps_its_names_probes_and_mounts() -> None:
    deployment, service = read("manager/manager.yaml")
    theirs, their_service = read("manager/manager.yaml", root=reference())
    (patch,) = read("manager/manager_config_patch.yaml", root=reference())
    ours_pod, theirs_pod = (d["spec"]["template"]["spec"] for d in (deployment, theirs))
    assert deployment["metadata"] == theirs["metadata"]
    assert deployment["spec"]["selector"] == theirs["spec"]["selector"]
    assert deployment["spec"]["template"]["metadata"] == theirs["spec"]["template"]["metadata"]
    assert ours_pod["serviceAccountName"] == theirs_pod["serviceAccountName"]
    (container,), (their_container,) = ours_pod["containers"], theirs_pod["containers"]
    patched = patch["spec"]["template"]["spec"]
    # Only our container has a read-only root file system, and a volume for its temporary files.
    assert container["securityContext"].pop("readOnlyRootFilesystem") is True
    assert container["volumeMounts"].pop(0) == {"name": "tmp", "mountPath": "/tmp"}
    assert ours_pod["volumes"].pop(0) == {"name": "tmp", "emptyDir": {}}
    for key in ("securityContext", "livenessProbe", "readinessProbe", "name"):
        assert container[key] == their_container[key]
    assert container["args"] == patched["containers"][0]["args"]
    assert (
        container["volumeMounts"]
        == their_container["volumeMounts"] + patched["containers"][0]["volumeMounts"]
    )
    mounted = ours_pod["volumes"][0]["secret"]
    assert mounted.pop("optional"), "the pod must start although the keys do not exist yet"
    assert {each["key"] for each in mounted.pop("items")} == {"ca.crt", "tls.crt", "tls.key"}
    assert ours_pod["volumes"] == theirs_pod["volumes"] + patched["volumes"]
    labels = service["metadata"].pop("labels")  # only ours has labels, for the selector of the ServiceMonitor
    assert labels.items() <= deployment["metadata"]["labels"].items()
    assert service["metadata"] == their_service["metadata"]
    assert service["spec"]["selector"] == their_service["spec"]["selector"]


def secrets_given_to_pods(value: object) -> Iterator[dict[str, Any]]:
    """Yield the references to Secrets in volumes and environment variables, also within patches in a string."""
    if isinstance(value, str) and "\n" in value and "ecret" in value:
        for document in yaml.safe_load_all(value):
            yield from secrets_given_to_pods(document)
    for key, each in value.items() if isinstance(value, dict) else ():
        if key in ("secret", "secretRef", "secretKeyRef") and isinstance(each, dict):
            yield each
        yield from secrets_given_to_pods(each)
    for each in value if isinstance(value, list) else ():
        yield from secrets_given_to_pods(each)


def documents_of_the_installation() -> Iterator[tuple[str, object]]:
    """Yield each manifest of the installation's kustomizations and of the chart, with its file.

    The chart's template actions are removed or replaced by ``x``.
    """
    others = {"crd", "runtimes", "samples", "third-party"}
    for path in CONFIG.rglob("*.yaml"):
        if path.relative_to(CONFIG).parts[0] not in others:
            yield from ((str(path), each) for each in yaml.safe_load_all(path.read_text()))
    for path in (ROOT / "charts").rglob("templates/**/*.yaml"):
        text = re.sub(r"(?m)^\s*{{-? *(/\*(.|\n)*?\*/|.*?) *-?}}\n", "", path.read_text())
        yield from ((str(path), each) for each in yaml.safe_load_all(re.sub(r"{{.*?}}", "x", text)))


def test_the_key_of_the_authority_is_given_to_no_pod() -> None:
    found = [
        (path, each) for path, doc in documents_of_the_installation() for each in secrets_given_to_pods(doc)
    ]
    assert {Path(path).name for path, _ in found} >= {"manager.yaml", "deployment.yaml"}
    for path, secret in found:
        items = secret.get("items", [secret])
        assert {each.get("key") for each in items} <= {"ca.crt", "tls.crt", "tls.key"}, path
        # The manager creates the keys itself, so its pod must start without them.
        assert secret["optional"], path


def test_the_service_offers_the_ports_that_are_served() -> None:
    _, service = read("manager/manager.yaml")
    (configuration,) = read("manager/controller_manager_config.yaml")
    ports = {port["name"]: port["targetPort"] for port in service["spec"]["ports"]}
    assert ports["monitoring-port"] == int(configuration["metrics"]["bindAddress"].lstrip(":"))
    assert ports["webhook-server"] == configuration["webhook"]["port"]
    cfg = config.load(str(CONFIG / "manager" / "controller_manager_config.yaml"))
    assert ports["status-server"] == cfg.status_server.port


def test_every_user_may_read_the_release_and_nothing_else() -> None:
    (role,) = read("rbac/public_configmap_role.yaml")
    (binding,) = read("rbac/public_configmap_role_binding.yaml")
    theirs = reference("v2.3.0")
    assert role["kind"] == "Role"
    assert [role] == read("rbac/public_configmap_role.yaml", root=theirs)
    assert [binding] == read("rbac/public_configmap_role_binding.yaml", root=theirs)


@pytest.mark.parametrize(
    "path",
    [
        "data-cache/torch_distributed_with_cache.yaml",
        "deepspeed_distributed.yaml",
        "jax_distributed.yaml",
        "mlx_distributed.yaml",
        "torch_distributed.yaml",
        "torchtune/kustomization.yaml",
        "xgboost_distributed.yaml",
    ],
)
def test_the_runtimes_equal_the_reference(path: str) -> None:
    assert read(f"runtimes/{path}") == read(f"runtimes/{path}", root=reference("v2.3.0"))


def test_all_runtimes_of_the_reference_are_shipped() -> None:
    for folder in ("runtimes", "runtimes/torchtune", "runtimes/data-cache"):
        (ours,) = read(f"{folder}/kustomization.yaml")
        (theirs,) = read(f"{folder}/kustomization.yaml", root=reference("v2.3.0"))
        assert set(ours["resources"]) == set(theirs["resources"])


@pytest.mark.parametrize(
    "path",
    [
        "torchtune/llama3_2/llama3_2_1B.yaml",
        "torchtune/llama3_2/llama3_2_3B.yaml",
        "torchtune/qwen2_5/qwen2_5_1.5B.yaml",
    ],
)
def test_the_runtimes_of_torchtune_use_a_claim_of_the_namespace(path: str) -> None:
    """In the reference, JobSet creates the claims, which it supports since 0.11."""
    (ours,), (theirs,) = read(f"runtimes/{path}"), read(f"runtimes/{path}", root=reference("v2.3.0"))
    del theirs["spec"]["template"]["spec"]["volumeClaimPolicies"]
    for job in ours["spec"]["template"]["spec"]["replicatedJobs"]:
        (volume,) = job["template"]["spec"]["template"]["spec"].pop("volumes")
        assert volume["persistentVolumeClaim"]["claimName"] == ours["metadata"]["name"]
    assert ours == theirs


def test_every_kustomization_lists_what_lies_beside_it() -> None:
    for file in (*CONFIG.rglob("kustomization.yaml"), *CONFIG.rglob("Kustomization")):
        (kustomization,) = read(str(file.relative_to(CONFIG)))
        named = set(kustomization.get("resources", ())) | set(kustomization.get("configurations", ()))
        for generator in kustomization.get("configMapGenerator", ()):
            named |= {file.split("=")[-1] for file in generator.get("files", ())}
        for name in named:
            assert "://" in name or (file.parent / name).exists(), f"{file}: {name}"
        if file.parent.name != "crd":
            beside = {path.name for path in file.parent.glob("*.yaml")} - {"kustomization.yaml"}
            assert beside <= named, file
