# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The commands of the first pages run in a copy of the checkout, with a separate folder for clusters."""

import json
import os
import re
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pytest
from ctrl_testkit.small import output_of

from testkit import programs

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(600)]
ROOT = Path(__file__).parents[2]
PAGES: Final = (
    "README.md",
    "docs/index.md",
    "docs/local-cluster.md",
    "docs/own-cluster.md",
    "docs/rendering.md",
)
TUTORIALS: Final = {
    "docs/tutorials/sdk.md": ("Complete", "PET_NNODES"),
    "docs/tutorials/local.md": ("rank 2 of 3", "Complete"),
    "docs/tutorials/resume.md": (
        "attempt 1: rank 2 of 3 continues at step",
        "'step': 300",
        "started 2 times",
    ),
    "docs/tutorials/plugin.md": ("env[NCCL_IB_HCA]", "name: NCCL_IB_HCA"),
}
"""The tutorials, and texts that their commands print."""
COPIED: Final = (
    "Makefile",
    "README.md",
    "cmd",
    "controller-runtime",
    "config",
    "docs",
    "examples",
    "pkg",
    "pyproject.toml",
    "requirements",
    "trainerctl",
)

ELSEWHERE: Final = {
    "make test": "it takes ten minutes, and .ci/run calls it",
    "trainerctl crds --apply": "for a cluster of the reader's",
    "trainerctl run --kubeconfig ~/.kube/config --config=config.yaml": "for a cluster of the reader's",
}
"""Lines that are not run here, and the reasons."""
INSTALLED: Final = {
    "python -m venv sdk": "the fixture installs it",
    'sdk/bin/pip install "kubeflow==0.5.0" "kubeflow-trainer-api==2.3.0"': "the fixture installs it",
}

WAIT: Final = "kubectl wait --for=condition=Complete --timeout=60s"


OWNER: Final = {
    "apiVersion": "batch/v1",
    "kind": "Job",
    "metadata": {"name": "train", "namespace": "default", "uid": "1"},
}
POD: Final = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {
        "name": "train-0",
        "namespace": "default",
        "uid": "2",
        "ownerReferences": [{"apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": "1"}],
    },
    "spec": {"schedulerName": "kai-scheduler", "containers": [{"name": "main", "image": "busybox"}]},
}


def blocks(page: str) -> list[list[str]]:
    """Return the commands of each shell block of a page, without comments."""
    found = re.findall(r"^```sh\n(.*?)^```", (ROOT / page).read_text(), re.DOTALL | re.MULTILINE)
    return [
        [line for raw in block.splitlines() if (line := re.sub(r"\s{2,}#.*$", "", raw).strip())]
        for block in found
    ]


def commands() -> dict[str, list[list[str]]]:
    """Return the commands of each page that are run."""
    return {
        page: [kept for block in blocks(page) if (kept := [line for line in block if line not in ELSEWHERE])]
        for page in PAGES
    }


@pytest.fixture
def shell(kubectl: Path, tmp_path: Path) -> Iterator[Callable[..., str]]:
    """Yield a function that runs lines in one shell up to the first that fails, and returns their output.

    The copy uses the environment of this run, so that nothing is downloaded again.
    """
    copy = tmp_path / "checkout"
    copy.mkdir()
    for name in COPIED:
        source = ROOT / name
        if source.is_dir():
            ignored = shutil.ignore_patterns("__pycache__")
            shutil.copytree(source, copy / name, ignore=ignored)
        else:
            shutil.copy2(source, copy / name)
    state, venv = tmp_path / "state", copy / ".venv"
    (venv / "bin").mkdir(parents=True)
    package = f"PYTHONPATH='{copy}/trainerctl:{copy}:{copy}/controller-runtime:{copy}/packages' exec '{sys.executable}' -P"
    for name, module in {
        "python": "",
        "trainerctl": "-m trainerctl",
        "trainer-controller-manager": "-m pkg.app",
    }.items():
        program = venv / "bin" / name
        program.write_text(f'#!/bin/sh\n{package} {module} "$@"\n')
        program.chmod(0o755)
    pip = venv / "bin" / "pip"
    options = f"--quiet --no-deps --no-index --no-build-isolation --target '{copy}/packages'"
    pip.write_text(f"#!/bin/sh\nexec '{sys.executable}' -m pip \"$@\" {options}\n")
    pip.chmod(0o755)
    (venv / "bin" / "activate").write_text(f'PATH="{venv}/bin:$PATH"\n')
    (venv / ".runtime").touch()
    environment = {
        **{key: value for key, value in os.environ.items() if key not in {"PYTHONPATH", "KUBECONFIG"}},
        "XDG_STATE_HOME": str(state),
        "PATH": f"{kubectl.parent}:{os.environ['PATH']}",
    }

    def run(*lines: str) -> str:
        return output_of(["bash", "-e", "-x", "-c", "\n".join(lines)], cwd=copy, env=environment, timeout=300)

    yield run
    run(". .venv/bin/activate", "trainerctl cluster down")


def test_every_line_is_run_or_has_a_reason() -> None:
    every = {line for page in PAGES for block in blocks(page) for line in block}
    assert every >= set(ELSEWHERE), "there is a reason for a line that no page contains"
    assert {"make demo", "make install", "trainerctl cluster down"} <= every - set(ELSEWHERE)


@pytest.mark.parametrize("page", PAGES)
def test_what_a_page_tells_to_type_works(page: str, shell: Callable[..., str]) -> None:
    job = ROOT / "config" / "samples" / "trainjob.yaml"
    shell(f"cp {job} job.yaml", "cp config/runtimes/torch_distributed.yaml runtime.yaml")
    for name, manifest in {"pods.yaml": POD, "owners.yaml": OWNER}.items():
        shell(f"echo '{json.dumps(manifest)}' > {name}")
    for block in commands()[page]:
        lines = []
        for line in block:
            lines.append(line)
            if line.startswith("kubectl apply") and "samples" in line:
                lines.append(f"{WAIT} -f {line.split()[-1]}")
        needs = not lines[0].startswith(("make", ".")) and any(
            line.startswith("trainerctl") for line in lines
        )
        said = shell(*([". .venv/bin/activate"] if needs else []), *lines)
        if "make demo" in lines:
            assert re.search(r"TrainJob \S+ is Complete", said)


@pytest.mark.parametrize("page", TUTORIALS)
def test_the_commands_of_a_tutorial_work(page: str, shell: Callable[..., str]) -> None:
    text = (ROOT / page).read_text()
    for name, content in re.findall(r'^```\w+ title="([^"]+)"\n(.*?)^```', text, re.DOTALL | re.MULTILINE):
        shell(f"mkdir -p $(dirname {name})", f"cat > {name} <<'END'\n{content}END")
    lines = [line for block in blocks(page) for line in block]
    if "sdk/bin/python train.py" in lines:
        assert set(INSTALLED) <= set(lines)
        python = programs.sdk_python("0.5.0")
        shell(
            "mkdir -p sdk/bin",
            f"printf '#!/bin/sh\nexec {python} \"$@\"' > sdk/bin/python",
            "chmod +x sdk/bin/python",
        )
    printed = shell(*(line for line in lines if line not in INSTALLED))
    assert [expected for expected in TUTORIALS[page] if expected not in printed] == []


def test_the_manifests_of_the_manager_are_taken_by_the_local_cluster(shell: Callable[..., str]) -> None:
    said = shell(
        ". .venv/bin/activate",
        'eval "$(trainerctl cluster up --without-manager)"',
        # Its webhooks are called through a Service, and no pod of this cluster serves one.
        "kubectl apply --server-side --force-conflicts -k config/default",
        "kubectl -n kubeflow-system get deployment,service,configmap,secret,serviceaccount -o name",
        "kubectl get clusterrole,clusterrolebinding,crd,validatingwebhookconfiguration -o name",
    )
    assert "deployment.apps/kubeflow-trainer-controller-manager" in said
    assert (
        "validatingwebhookconfiguration.admissionregistration.k8s.io/validator.trainer.kubeflow.org" in said
    )
