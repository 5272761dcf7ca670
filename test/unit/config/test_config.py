# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
import re
from pathlib import Path

import pytest
import yaml
from controller_runtime.machinery.goduration import seconds

from pkg import config
from pkg.apis.config.v1alpha1 import Configuration

ROOT = Path(__file__).parents[3]
HEAD = "apiVersion: config.trainer.kubeflow.org/v1alpha1\nkind: Configuration\n"
SHIPPED = ROOT / "config" / "manager" / "controller_manager_config.yaml"


def write(tmp_path: Path, text: str) -> str:
    path = tmp_path / "config.yaml"
    path.write_text(text)
    return str(path)


def test_a_file_that_says_nothing_means_the_defaults(tmp_path: Path) -> None:
    said = config.load(write(tmp_path, HEAD + "webhook:\nmetrics: {}\n"))
    assert said.to_dict() == config.load().to_dict()


def test_a_setting_that_was_taken_out_is_ignored_with_a_warning(tmp_path: Path) -> None:
    text = (
        "mirror: always\npodGrouper: {grouperFiles: [a.yaml], queueLabelKey: q}\nstatusServer:\n  host: a\n"
    )
    path, said = write(tmp_path, HEAD + text), list[str]()
    cfg = config.load(path, said.append)
    assert cfg.pod_grouper.queue_label_key == "q"
    text = "no longer has an effect, and will be an error in the next release: remove it"
    assert said == [
        f"{path}: line {line}: {setting}: {text}"
        for line, setting in ((3, "mirror"), (4, "podGrouper.grouperFiles"), (6, "statusServer.host"))
    ]


def test_the_shipped_file_is_valid() -> None:
    cfg = config.load(str(SHIPPED))
    assert cfg.leader_election.leader_elect
    assert cfg.controller.group_kind_concurrency == {
        "TrainJob.trainer.kubeflow.org": 5,
        "TrainingRuntime.trainer.kubeflow.org": 1,
        "ClusterTrainingRuntime.trainer.kubeflow.org": 1,
    }


def test_a_negative_qps_is_allowed_and_durations_are_read_as_go_does(tmp_path: Path) -> None:
    text = (
        HEAD + "clientConnection: {qps: -1}\nleaderElection: {leaseDuration: 1m30s, renewDeadline: 500ms}\n"
    )
    cfg = config.load(write(tmp_path, text))
    assert cfg.client_connection.qps == -1
    assert seconds(cfg.leader_election.lease_duration) == 90
    assert seconds(cfg.leader_election.renew_deadline) == 0.5


def test_the_status_server_has_defaults_and_bounds(tmp_path: Path) -> None:
    server = config.load(write(tmp_path, HEAD + "statusServer: {qps: 0.5, burst: 0}\n")).status_server

    assert (server.port, server.qps, server.burst) == (10443, 0.5, 0)
    with pytest.raises(config.ConfigurationError) as raised:
        config.load(write(tmp_path, HEAD + "statusServer: {port: 0, qps: -1, burst: -2}\n"))
    assert str(raised.value).endswith(
        "statusServer.port: Invalid value: 0: must be between 1 and 65535; "
        "statusServer.qps: Invalid value: -1: must be greater than or equal to 0; "
        "statusServer.burst: Invalid value: -2: must be greater than or equal to 0"
    )


def test_feature_gates_of_the_command_line_take_precedence(tmp_path: Path) -> None:
    cfg = config.load(write(tmp_path, HEAD + "featureGates: {TrainJobStatus: true, AllBeta: true}\n"))

    merged = config.with_feature_gates(cfg, {"TrainJobStatus": False})

    assert merged.feature_gates == {"TrainJobStatus": False, "AllBeta": True}
    assert cfg.feature_gates == {"TrainJobStatus": True, "AllBeta": True}


@pytest.mark.parametrize(
    ("text", "required"),
    [
        ("metrics: {auth: {enabled: true}}", True),
        ("metrics: {auth: {enabled: true}, requireAuthorization: true}", True),
        ("metrics: {auth: {enabled: false}}", False),
        ("metrics: {auth: {}}", None),
        ("metrics: {auth: null}", None),
        ("metrics:", None),
    ],
)
def test_newer_releases_of_trainer_have_another_name_for_authorized_metrics(
    text: str, required: bool | None, tmp_path: Path
) -> None:
    assert config.load(write(tmp_path, f"{HEAD}{text}\n")).metrics.require_authorization is required


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (HEAD + "webhook:\n  prot: 1\n", "line 4: webhook.prot: unknown key"),
        (HEAD + "webhok: {}\n", "line 3: webhok: unknown key"),
        (HEAD + "webhok:\n", "line 3: webhok: unknown key"),
        (HEAD + "Webhook: {}\n", "line 3: Webhook: unknown key"),
        (HEAD + "webhook:\n  port: '9443'\n", "line 4: webhook.port: a whole number is expected"),
        (HEAD + "webhook:\n  port: 1.5\n", "line 4: webhook.port: a whole number is expected"),
        (HEAD + "metrics:\n  bindAddress: 0\n", "line 4: metrics.bindAddress: a string is expected; put it in quotes"),
        (HEAD + "metrics: {secureServing: 'true'}\n", "line 3: metrics.secureServing: true or false is expected"),
        (HEAD + "metrics: [1]\n", "line 3: metrics: a map is expected"),
        (HEAD + "webhook: {port: 1}\nwebhook: {port: 2}\n", "line 4: webhook: key is given twice, first at line 3"),
        (HEAD + "webhook: {port: 0}\n", "invalid configuration: webhook.port: Invalid value: 0: must be between 1 and 65535"),
        (
            HEAD + "podGrouper: {schedulerName: ''}\n",
            "invalid configuration: podGrouper.schedulerName: Required value: pods of this scheduler are grouped",
        ),
        (HEAD + "podGrouper: {rules: v0.14}\n", 'invalid configuration: podGrouper.rules: Unsupported value: "v0.14"'),
        (HEAD + "podGrouper: {maxConcurrentReconciles: 0}\n", "invalid configuration: podGrouper.maxConcurrentReconciles: Invalid value: 0"),
        (
            HEAD + "metrics: {secureServing: false, requireAuthorization: true}\n",
            "invalid configuration: metrics.requireAuthorization: Invalid value: true: needs secureServing: a token must not travel in plain text",
        ),
        (
            HEAD + "metrics: {secureServing: false, auth: {enabled: true}}\n",
            "invalid configuration: metrics.auth.enabled: Invalid value: true: needs secureServing: a token must not travel in plain text",
        ),
        (
            HEAD + "metrics: {requireAuthorization: true, auth: {enabled: false}}\n",
            "invalid configuration: metrics.auth.enabled: Invalid value: false: must be equal to metrics.requireAuthorization, which has the same meaning",
        ),
        (HEAD + "metrics: {auth: {enable: true}}\n", "line 3: metrics.auth.enable: unknown key"),
        (
            HEAD + "ttlSecondsAfterFinished: -1\n",
            "invalid configuration: ttlSecondsAfterFinished: Invalid value: -1: must be between 0 and 2147483647",
        ),
        (
            HEAD + "notStartedAfter: -1s\n",
            'invalid configuration: notStartedAfter: Invalid value: "-1s": must be greater than or equal to 0',
        ),
        (
            HEAD + "notStartedAfter: soon\n",
            'invalid configuration: notStartedAfter: Invalid value: "soon": must be a duration such as 60s or 5m, or 0s',
        ),
        (HEAD + "webhook: {port: 70000}\n", "invalid configuration: webhook.port: Invalid value: 70000: must be between 1 and 65535"),
        (
            HEAD + "controller: {groupKindConcurrency: {A.b: 0}}\n",
            "invalid configuration: controller.groupKindConcurrency[A.b]: Invalid value: 0: must be greater than 0",
        ),
        (
            HEAD + "controller: {groupKindConcurrency: {A.b: x}}\n",
            'line 3: controller.groupKindConcurrency["A.b"]: a whole number is expected',
        ),
        (
            HEAD + "metrics: {bindAddress: foo}\n",
            'invalid configuration: metrics.bindAddress: Invalid value: "foo": must be host:port, :port, or 0 for none',
        ),
        (
            HEAD + "health: {healthProbeBindAddress: ':99999'}\n",
            'invalid configuration: health.healthProbeBindAddress: Invalid value: ":99999": must be host:port, :port, or 0 for none',
        ),
        (
            HEAD + "health: {readinessEndpointName: /healthz}\n",
            'invalid configuration: health.readinessEndpointName: Invalid value: "/healthz": must differ from livenessEndpointName',
        ),
        ("kind: Configuration\n", "apiVersion is missing; config.trainer.kubeflow.org/v1alpha1 is expected"),
        ("", "apiVersion is missing; config.trainer.kubeflow.org/v1alpha1 is expected"),
        (HEAD.replace("kind: Configuration", "kind: Pod"), "line 2: kind: 'Pod' is not supported; Configuration is expected"),
        (
            HEAD.replace("v1alpha1", "v9"),
            "line 1: apiVersion: 'config.trainer.kubeflow.org/v9' is not supported; config.trainer.kubeflow.org/v1alpha1 is expected",
        ),
        (HEAD + "health: [\n", "line "),
        (HEAD + "---\n" + HEAD, "line 3: another document begins; one is expected"),
    ],
)  # fmt: skip
def test_a_bad_file_is_one_line_that_names_file_line_and_key(tmp_path: Path, text: str, message: str) -> None:
    path = write(tmp_path, text)
    with pytest.raises(config.ConfigurationError) as caught:
        config.load(path)
    shown = str(caught.value)
    assert shown.startswith(f"{path}: {message}")
    assert "\n" not in shown


@pytest.mark.parametrize(
    "duration", ["15", "fifteen", "", "15 s", "1d", "15ss", "99999999h", "9" * 400 + "s"]
)
def test_a_duration_that_go_would_not_read_is_refused(tmp_path: Path, duration: str) -> None:
    path = write(tmp_path, HEAD + f"leaderElection:\n  leaseDuration: '{duration}'\n")
    with pytest.raises(config.ConfigurationError, match=r"leaderElection\.leaseDuration"):
        config.load(path)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("leaseDuration: 10s, renewDeadline: 10s", "leaderElection.leaseDuration"),
        ("renewDeadline: 6s, retryPeriod: 5s", "leaderElection.renewDeadline"),
        ("retryPeriod: 0s", "leaderElection.retryPeriod"),
    ],
)
def test_a_lease_that_cannot_be_held_is_refused_if_it_is_asked_for(
    tmp_path: Path, text: str, complaint: str
) -> None:
    with pytest.raises(config.ConfigurationError, match=complaint):
        config.load(write(tmp_path, HEAD + f"leaderElection: {{leaderElect: true, {text}}}\n"))
    config.load(write(tmp_path, HEAD + f"leaderElection: {{leaderElect: false, {text}}}\n"))


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(config.ConfigurationError, match=r"missing.yaml: cannot be read: No such file"):
        config.load(str(tmp_path / "missing.yaml"))
    with pytest.raises(config.ConfigurationError, match="cannot be read: Is a directory"):
        config.load(str(tmp_path))


GO_KEYS = {
    "webhook": {"port", "host"},
    "leaderElection": {
        "leaderElect",
        "leaseDuration",
        "renewDeadline",
        "retryPeriod",
        "resourceLock",
        "resourceName",
        "resourceNamespace",
    },
    "metrics": {"bindAddress", "secureServing"},
    "health": {"healthProbeBindAddress", "readinessEndpointName", "livenessEndpointName"},
    "controller": {"groupKindConcurrency"},
    "certManagement": {"enable", "webhookServiceName", "webhookSecretName"},
    "clientConnection": {"qps", "burst"},
}
"""The keys that the Go manager of Kubeflow Trainer v2.1.0 decodes; it does not start with any other key."""


@pytest.mark.parametrize(
    ("text", "second"), [("", False), ("'2.1'", False), ("''", False), ('"2.3"', True), ('"2.4"', True)]
)
def test_the_compatibility_version_selects_the_behaviour(tmp_path: Path, text: str, second: bool) -> None:
    loaded = config.load(write(tmp_path, f"{HEAD}compatibilityVersion: {text}\n"))
    assert loaded.second_generation is second


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("2.3", "line 3: compatibilityVersion: a string is expected; put it in quotes"),
        ("[2.4]", "line 3: compatibilityVersion: a string is expected"),
        *(
            (
                f"'{version}'",
                f'compatibilityVersion: Unsupported value: "{version}": supported values: "2.1",',
            )
            for version in ("2.5", "v2.4", " 2.4", "2.4.0")
        ),
        ("'2.2'", 'compatibilityVersion: Unsupported value: "2.2": supported values: "2.1", "2.3", "2.4"'),
    ],
)
def test_another_compatibility_version_is_refused(tmp_path: Path, text: str, problem: str) -> None:
    with pytest.raises(config.ConfigurationError) as raised:
        config.load(write(tmp_path, f"{HEAD}compatibilityVersion: {text}\n"))
    assert problem in str(raised.value)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (
            "ttlSecondsAfterFinished: 2147483648",
            "Invalid value: 2147483648: must be between 0 and 2147483647",
        ),
        ("ttlSecondsAfterFinished: true", "line 3: ttlSecondsAfterFinished: a whole number is expected"),
        (
            "featureGates: {TTLAfterFinished: 'true'}",
            "featureGates.TTLAfterFinished: true or false is expected",
        ),
        ("featureGates: [ExecutionAttempts]", "line 3: featureGates: a map is expected"),
        (
            "featureGates: {ttlAfterFinished: true}",
            "unrecognized feature gate: ttlAfterFinished; the gates are",
        ),
    ],
)
def test_an_odd_setting_of_the_life_of_train_jobs_has_one_clear_message(
    tmp_path: Path, text: str, problem: str
) -> None:
    with pytest.raises(config.ConfigurationError) as raised:
        config.with_feature_gates(config.load(write(tmp_path, f"{HEAD}{text}\n")), {})
    assert problem in str(raised.value)
    assert "; featureGates" not in str(raised.value)


def ours_alone() -> set[str]:
    found = set()
    for name, info in Configuration.model_fields.items():
        key = info.alias or name
        if key in {"apiVersion", "kind"}:
            continue
        if key not in GO_KEYS:
            found.add(key)
            continue
        part = getattr(Configuration(), name)
        below = {each.alias or field for field, each in type(part).model_fields.items()}
        found |= {f"{key}.{each}" for each in below - GO_KEYS[key]}
    return found


def test_the_way_back_to_the_go_manager_names_every_key_that_it_does_not_know() -> None:
    assert {"podGrouper", "webhook.certDir"} <= ours_alone()
    page = (ROOT / "docs" / "migration.md").read_text()
    rows = re.findall(r"^\| `(\w+): ([^`]*)`", page, re.MULTILINE)
    named = {key for key, _ in rows} | {
        f"{key}.{each}" for key, value in rows for each in re.findall(r"(\w+):", value)
    }
    assert ours_alone() - named == set()


def test_the_shipped_configuration_has_no_key_that_the_go_manager_does_not_know() -> None:
    shipped = yaml.safe_load(SHIPPED.read_text())
    parts = {key: part for key, part in shipped.items() if key not in {"apiVersion", "kind"}}
    assert {key: set(part) for key, part in parts.items()} == GO_KEYS | {
        "leaderElection": GO_KEYS["leaderElection"] - {"resourceLock"}
    }
