# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""``trainerctl validate`` against a real API server: both give exactly the same verdict on the same object."""

import copy
import json
import re
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest
import yaml
from controller_runtime.client import LiveClient
from controller_runtime.envtest import Environment
from controller_runtime.rest import Request, Transport
from pkg.apis.trainer.v1alpha1 import TrainJob

from trainerctl.offline.inputfiles import InputObject
from trainerctl.offline.stored import schemas
from trainerctl.offline.verdict import Validator

pytestmark = [pytest.mark.integration, pytest.mark.slow]
PLURALS = {
    "TrainJob": "trainjobs",
    "TrainingRuntime": "trainingruntimes",
    "ClusterTrainingRuntime": "clustertrainingruntimes",
}
GONE = "<gone>"
LONG, LONGER = "a" * 64, "a" * 254

# Changes of a valid TrainJob: values by path.
# fmt: off
TRAIN_JOBS: list[str] = [
    "{}",
    "{spec.nope: 1, spec.trainer: {x: 1, args: [a]}, metadata.foo: 1, top: 1}",
    "{spec.podTemplateOverrides: [{targetJobs: [{name: n, z: 1}], spec: {containers: [{name: x, imagee: y}]}}]}",
    "{status: {nope: 1}}",
    "{status: {conditions: x}}",
    f"{{spec.runtimeRef: {GONE}}}",
    "{spec.runtimeRef: null}",
    "{spec.runtimeRef: {}}",
    "{spec.runtimeRef: {name: ''}}",
    "{spec.runtimeRef: {name: null}}",
    "{spec.runtimeRef: {name: a, kind: null, apiGroup: null}}",
    f"{{spec: {GONE}}}",
    "{spec: null}",
    "{spec: []}",
    "{spec: text}",
    "{spec.trainer: {numNodes: two}}",
    "{spec.trainer: {numNodes: 1.5}}",
    "{spec.trainer: {numNodes: 1.0}}",
    "{spec.trainer: {numNodes: 1099511627776}}",
    "{spec.trainer: {numNodes: true}}",
    "{spec.trainer: {numNodes: null}}",
    "{spec.trainer: null}",
    "{spec.trainer: []}",
    "{spec.suspend: 'yes'}",
    "{spec.trainer: {args: a}}",
    "{spec.trainer: {args: [1, null, a, [], {}]}}",
    "{spec.labels: {a: 1}}",
    "{spec.labels: {a: null}}",
    "{spec.labels: {'a.b/c': 1, 'x y': z}}",
    "{spec.managedBy: me}",
    "{spec.managedBy: kueue.x-k8s.io/multikueue}",
    "{spec.trainer: {numProcPerNode: some}}",
    "{spec.trainer: {numProcPerNode: []}}",
    "{spec.trainer: {numProcPerNode: 1.5}}",
    "{spec.trainer: {env: [{name: A, value: '1'}, {name: A, value: '2'}, {name: A}, {name: B}, {name: B}]}}",
    "{spec.trainer: {env: [{value: '1'}, null, 3]}}",
    "{spec.trainer: {env: [{value: '1'}, {name: null}]}}",
    "{spec.trainer: {env: [{name: A}, {name: A}, 3]}}",
    "{spec.trainer: {env: [{name: 1}, {name: 1}]}}",
    "{spec.trainer: {env: [{name: A, value: 1}]}}",
    "{spec.trainer: {env: [{name: A, valueFrom: {configMapKeyRef: {}}}]}}",
    "{spec.trainer: {resourcesPerNode: {limits: {cpu: lots, memory: ''}}}}",
    "{spec.trainer: {resourcesPerNode: {limits: {cpu: 1, x: 1.5}}}}",
    "{spec.trainer: {resourcesPerNode: {limits: {x: []}, requests: {y: true}}}}",
    "{spec.trainer: {numNodes: x, args: 1}, spec.runtimeRef: {kind: 1}}",
    "{spec.managedBy: me, spec.trainer: {numNodes: x}}",
    "{spec.podTemplateOverrides: [{}]}",
    "{spec.podTemplateOverrides: [{targetJobs: []}]}",
    "{spec.podTemplateOverrides: [{targetJobs: [{}]}]}",
    "{spec.podTemplateOverrides: [{targetJobs: [{name: n}], spec: {tolerations: [{tolerationSeconds: '1'}]}}]}",
    "{spec.podTemplateOverrides: [{targetJobs: [{name: n}], spec: {volumes: [{name: a}, {name: a}]}}]}",
    "{spec.podTemplateOverrides: [{targetJobs: [{name: n}], spec: {schedulingGates: [{name: x}, {name: x}]}}]}",
    "{spec.podTemplateOverrides: [{targetJobs: [{name: n}], spec: {containers: [{name: ''}]}}]}",
    "{spec.initializer: {dataset: {storageUri: 1, secretRef: {}}, model: text}}",
    f"{{metadata.name: {GONE}}}",
    "{metadata.name: ''}",
    "{metadata.name: Foo}",
    "{metadata.name: foo.bar}",
    "{metadata.name: 1foo}",
    "{metadata.name: 'foo bar'}",
    f"{{metadata.name: {LONG}}}",
    f"{{metadata.name: {LONGER}}}",
    f"{{metadata.name: {GONE}, metadata.generateName: foo-}}",
    f"{{metadata.name: {GONE}, spec.managedBy: me}}",
    "{metadata.labels: {'a b': c, x: 'y z'}}",
    "{metadata.labels: {'Example.com/x': c, '/y': c, 'a/b/c': d, '': e}}",
    "{metadata.labels: {x: null}}",
    "{metadata.labels: {a: 1}}",
    "{metadata.labels: [1]}",
    "{metadata.annotations: {'a b': c}}",
    "{metadata.annotations: {a: true}}",
    "{metadata.annotations: {a/b/c: d}}",
    "{metadata.finalizers: [a/b/c]}",
    "{metadata.finalizers: ['bad finalizer', ok.io/x]}",
    "{metadata.name: 5}",
]

JOB = "{name: node, template: {spec: {template: {spec: {containers: [{name: node, image: x}]}}}}}"
# Specs of runtimes.
RUNTIMES: list[str] = [
    f"{{template: {{spec: {{replicatedJobs: [{JOB}]}}}}}}",
    "{}",
    "{template: {}}",
    "{template: null}",
    "{template: {spec: {}}, mlPolicy: {torch: {numProcPerNode: 2}, mpi: {}}}",
    "{template: {spec: {}}, mlPolicy: {numNodes: 2, torch: {elasticPolicy: {minNodes: 1}}}}",
    "{template: {spec: {}}, mlPolicy: {torch: {numProcPerNode: x}}}",
    "{template: {spec: {}}, mlPolicy: {torch: {numProcPerNode: 0}}}",
    "{template: {spec: {}}, mlPolicy: {torch: {numProcPerNode: auto}}}",
    "{template: {spec: {}}, mlPolicy: {torch: 1}}",
    "{template: {spec: {}}, mlPolicy: {mpi: {mpiImplementation: Foo, numProcPerNode: x}}}",
    "{template: {spec: {replicatedJobs: [{name: a, template: {}}, {name: a, template: {}}]}}}",
    "{template: {spec: {replicatedJobs: [{name: a, template: {}, dependsOn: [{name: b, status: Never}]}]}}}",
    ("{template: {spec: {replicatedJobs: [{name: a, template: {}, dependsOn: [{name: b, status: Ready},"
    " {name: c, status: Ready}, {name: d, status: Ready}, {name: e, status: Ready}, {name: f, status: Ready},"
    " {name: g, status: Ready}, {name: h, status: Ready}, {name: i, status: Ready}, {name: j, status: Ready},"
    " {name: k, status: Ready}, {name: l, status: Ready}, {name: m, status: Ready}]}]}}}"),
    ("{template: {spec: {startupPolicy: {startupPolicyOrder: InOrder},"
    " replicatedJobs: [{name: a, template: {}, dependsOn: [{name: b, status: Ready}]}]}}}"),
    ("{template: {spec: {failurePolicy: {maxRestarts: -1, restartStrategy: x, rules: [{name: '!', action: Nope,"
    " targetReplicatedJobs: [a, a]}]}, successPolicy: {operator: Some}}}}"),
    "{template: {spec: {coordinator: {}, ttlSecondsAfterFinished: -1, network: {subdomain: 5}}}}",
    ("{template: {spec: {replicatedJobs: [{name: a, template: {spec: {template: {spec: {containers: [{name: n,"
    " ports: [{containerPort: 80}, {containerPort: 80}, {containerPort: 80, protocol: UDP}],"
    " livenessProbe: {httpGet: {path: /}}, volumeMounts: [{mountPath: /a, name: x}, {mountPath: /a, name: y}]"
    "}]}}}}}]}}}"),
    "{template: {spec: {}}, podGroupPolicy: {coscheduling: {scheduleTimeoutSeconds: '1'}}}",
    "{template: {spec: {}}, podGroupPolicy: {volcano: {networkTopology: {mode: x}}}}",
]
# fmt: on


def train_job(changes: str) -> dict[str, Any]:
    made: dict[str, Any] = {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainJob",
        "metadata": {"name": "job"},
        "spec": {"runtimeRef": {"name": "torch-distributed"}},
    }
    for path, value in yaml.safe_load(changes).items():
        *parents, last = path.split(".")
        where = made
        for parent in parents:
            where = where[parent]
        if value == GONE:
            del where[last]
        else:
            where[last] = value
    return made


def runtime(kind: str, spec: str) -> dict[str, Any]:
    return {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": kind,
        "metadata": {"name": "runtime"},
        "spec": yaml.safe_load(spec),
    }


@pytest.fixture
async def judge(trainer_control_plane: Environment, live_client: LiveClient, namespace: str) -> Any:
    """Return a function that returns code and message for a create: the server's, which has no webhooks, and ours.

    A denial by our webhook counts as success.
    """
    del live_client
    validator = Validator(schemas(), namespace)
    await validator.start([])

    async def both(data: dict[str, Any]) -> tuple[tuple[int, str], tuple[int, str]]:
        within = "" if data["kind"] == "ClusterTrainingRuntime" else f"/namespaces/{namespace}"
        path = f"/apis/trainer.kubeflow.org/v1alpha1{within}/{PLURALS[data['kind']]}"
        request = Request(
            "POST",
            path,
            query=(("fieldValidation", "Strict"), ("dryRun", "All")),
            headers={"Content-Type": "application/json"},
            body=json.dumps(data).encode(),
        )
        async with Transport(trainer_control_plane.config) as transport:
            response = await transport.send(request)
            answer = json.loads(await response.read())
        theirs = (response.status, answer.get("message", "")) if response.status >= 400 else (0, "")
        verdict = await validator.judge(InputObject(copy.deepcopy(data), "table", 1))
        ours = (0, "") if "denied the request" in verdict.message else (verdict.code, verdict.message)
        return theirs, ours

    return both


def in_order(message: str) -> list[str]:
    """Return the sorted parts of an aggregated error, which the server writes in the random order of Go's maps."""
    head, is_list, rest = message.partition(" is invalid: [")
    if not is_list:
        return [message]
    return [head, *sorted(re.split(r", (?=(?:spec|metadata|<nil>)[^ ]*: )", rest.removesuffix("]")))]


@pytest.mark.parametrize("changes", TRAIN_JOBS)
async def test_train_jobs_are_judged_as_the_server_does(judge: Any, changes: str) -> None:
    (code, text), (our_code, our_text) = await judge(train_job(changes))
    assert (our_code, in_order(our_text)) == (code, in_order(text))


@pytest.mark.parametrize(
    ("kind", "spec"),
    [
        *(("TrainingRuntime", spec) for spec in RUNTIMES),
        *(("ClusterTrainingRuntime", spec) for spec in RUNTIMES[:2]),  # its spec has the same type
    ],
)
async def test_runtimes_are_judged_as_the_server_does(judge: Any, kind: str, spec: str) -> None:
    (code, text), (our_code, our_text) = await judge(runtime(kind, spec))
    assert (our_code, in_order(our_text)) == (code, in_order(text))


@pytest.fixture
def asked(trainer_control_plane: Environment, namespace: str, tmp_path: Path) -> Any:
    """Return a function that returns the exit code and the verdicts of the command that asks the server."""
    kubeconfig, file = tmp_path / "kubeconfig", tmp_path / "in.yaml"
    config: Any = trainer_control_plane.kubeconfig_for("admin", ["system:masters"])
    config["contexts"][0]["context"]["namespace"] = namespace
    kubeconfig.write_text(yaml.safe_dump(config))

    async def ask(*objects: dict[str, Any]) -> tuple[int, list[dict[str, Any]]]:
        file.write_text(yaml.safe_dump_all(objects))
        words = ["validate", "-f", str(file), "--server", "-o", "json", "--kubeconfig", str(kubeconfig)]
        argv = [sys.executable, "-m", "trainerctl", *words]
        done = await anyio.run_process(argv, check=False, cwd=Path(__file__).parents[3])
        assert done.stderr.decode() == ""
        return done.returncode, json.loads(done.stdout)

    return ask


async def test_the_server_is_asked_with_the_flag_and_stores_nothing(
    asked: Any, live_client: LiveClient, namespace: str
) -> None:
    await live_client.create(TrainJob.from_dict({**train_job("{metadata.namespace: " + namespace + "}")}))
    changed = train_job("{metadata.namespace: " + namespace + ", spec.labels: {a: b}}")
    new = [
        train_job(f"{{metadata.name: new, {each}}}")
        for each in ("", "spec.podSpecOverrides: []", "spec.managedBy: me")
    ]
    immutable = train_job("{spec.runtimeRef.name: other}")  # refused only in the namespace of the context
    unknown = {**new[0], "apiVersion": "trainer.kubeflow.org/v9"}
    code, verdicts = await asked(changed, *new, unknown, immutable)
    assert code == 1
    assert [(each["code"], each["reason"]) for each in verdicts] == [
        (200, ""), (200, ""), (400, "BadRequest"), (422, "Invalid"), (404, "NotFound"),
        (422, "Invalid"),
    ]  # fmt: skip
    assert 'unknown field "spec.podSpecOverrides"' in verdicts[2]["message"]
    (cause,) = verdicts[2]["causes"]
    assert cause["field"] == "spec.podSpecOverrides"
    assert "since Trainer v2.1, it is podTemplateOverrides" in cause["message"]
    assert [each["field"] for each in verdicts[3]["causes"]] == ["spec.managedBy"]
    (stored,) = await live_client.list(TrainJob, namespace=namespace)
    assert stored.spec.labels is None


@pytest.mark.usefixtures("live_client")
async def test_the_server_is_asked_for_the_jobs_of_a_train_job_too(asked: Any) -> None:
    mine = runtime("TrainingRuntime", RUNTIMES[0])
    bad = copy.deepcopy(mine)
    bad["metadata"]["name"] = "bad"
    pod = bad["spec"]["template"]["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
    pod["containers"][0]["securityContext"] = {"privileged": True}  # only the API server knows its policy
    jobs = [
        train_job(f"{{metadata.name: {name}, spec.runtimeRef: {{name: {name}, kind: TrainingRuntime}}}}")
        for name in ("runtime", "bad")
    ]
    job = mine["spec"]["template"]["spec"]["replicatedJobs"][0]["template"]
    job["metadata"] = {"labels": {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}}
    trainer = "runtimeRef: {name: runtime, kind: TrainingRuntime}, trainer: {numNodes: -1}"
    jobs.append(train_job(f"{{metadata.name: fewer, spec: {{{trainer}}}}}"))
    code, verdicts = await asked(mine, bad, *jobs)
    assert (code, [each["valid"] for each in verdicts]) == (1, [True, True, True, False, False])
    ((name, text),) = verdicts[3]["refusedJobs"].items()
    assert name == "bad-node-0"
    assert "spec.template.spec.containers[0].securityContext.privileged: Forbidden" in text
    assert [each["warnings"] for each in verdicts[2:4]] == [[], []]
    (obstacle,) = verdicts[4]["obstacles"]
    assert obstacle["field"] == "spec.trainer.numNodes"
    assert obstacle["message"].startswith("-1 must be at least 1")
