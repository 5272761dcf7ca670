# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The scripts of a Flux TrainJob, run by bash."""

from __future__ import annotations

import subprocess
import tomllib

import pytest

from pkg.runtime.framework.plugins.flux import scripts
from pkg.runtime.framework.plugins.flux.flux import new_certificate, z85

CLUSTER = scripts.Cluster(
    job="job",
    subdomain="job",
    namespace="team-a",
    nodes=2,
    tasks=4,
    gpus=0,
    device="eth0",
    queue_policy="fcfs",
)


def words(command: list[str], **environment: str) -> list[str]:
    """Return the words of ``command`` as the entry point starts it."""
    line = next(
        each for each in scripts.entrypoint(CLUSTER, command).splitlines() if each.startswith("set --")
    )
    script = f'{line}\nfor word in "$@"; do printf "%s\\0" "$word"; done'
    done = subprocess.run(
        ["bash", "-c", script],
        env={"PATH": "/bin:/usr/bin", **environment},
        capture_output=True,
        check=True,
        text=True,
    )
    return done.stdout.split("\0")[:-1]


@pytest.mark.parametrize(
    "command",
    [
        [],
        ["python", "train.py", "--lr", "1e-3"],
        ["a b", "", "it's", '"quoted"', "$HOME", "`ls`", "$(ls -l)", "*", "x;y", "\\"],
    ],
    ids=["nothing", "plain", "special characters"],
)
def test_the_words_of_the_command_stay_as_they_are(command: list[str]) -> None:
    assert words(command) == command


def test_references_to_variables_are_resolved_as_the_kubelet_does() -> None:
    command = ["$(RANK)/$(NONE)", "$$(RANK)", "--n=$(RANK)"]
    assert words(command, RANK="a b") == ["a b/$(NONE)", "$(RANK)", "--n=a b"]


@pytest.mark.parametrize("text", [scripts.entrypoint(CLUSTER, ["x"]), scripts.init_script(CLUSTER)])
def test_bash_can_parse_the_scripts(text: str) -> None:
    subprocess.run(["bash", "-n"], input=text, text=True, check=True)


def test_the_configuration_of_the_broker_is_toml_whatever_the_settings_contain() -> None:
    strange = scripts.Cluster(
        job="job",
        subdomain="mesh",
        namespace="team-a",
        nodes=1,
        tasks=1,
        gpus=0,
        device='e"th\n0',
        queue_policy="a\\b",
    )
    text = scripts.init_script(strange).partition("<<'END_OF_BROKER'\n")[2].partition("END_OF_BROKER\n")[0]
    found = tomllib.loads(text)
    assert found["bootstrap"]["default_bind"] == 'tcp://e"th\n0:%p'
    assert found["bootstrap"]["default_connect"] == "tcp://%h.mesh.team-a.svc.cluster.local:%p"
    assert found["bootstrap"]["hosts"] == [{"host": "job-node-0-[0]"}]
    assert found["sched-fluxion-qmanager"]["queue-policy"] == "a\\b"


def test_z85_is_that_of_zeromq() -> None:
    assert z85(bytes.fromhex("864fd26fb559f75b")) == "HelloWorld"


def test_each_certificate_has_its_own_keys() -> None:
    first, second = new_certificate("job"), new_certificate("job")
    assert first != second
    assert 'name = "job"' in first
