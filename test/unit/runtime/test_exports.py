# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The names that the package exports for authors of plugins and for our other packages."""

from __future__ import annotations

import types

import pytest

from pkg import apply, runtime
from pkg.runtime import core, framework


def exported(package: types.ModuleType) -> set[str]:
    return {
        name
        for name, value in vars(package).items()
        if not name.startswith("_") and not isinstance(value, types.ModuleType)
    }


@pytest.mark.parametrize(
    ("package", "names"),
    [
        (
            apply,
            "as_typed env_var env_vars upsert_env_vars upsert_port upsert_volume_mounts upsert_volumes",
        ),
        (
            runtime,
            (
                "Container Info PodSet GeneratedSecret ReconcilerBuilder Runtime RuntimePolicy Scheduler TemplateSpec "
                "UnsupportedRuntimeError ancestor_of containers_of extract_resource_per_node_from_runtime "
                "get_num_gpu_per_node new_info new_pod_set resources_per_node runtime_for runtime_ref_to_runtime_registry_key template_spec_apply"
            ),
        ),
        (
            framework,
            (
                "ComponentBuilderPlugin CustomValidationPlugin EnforceMLPolicyPlugin EnforcePodGroupPolicyPlugin "
                "Observer Plugin PluginError PluginFactory PodNetworkPlugin "
                "TrainJobStatusPlugin UnavailableError WatchExtensionPlugin"
            ),
        ),
        (
            core,
            (
                "CLUSTER_TRAINING_RUNTIME_GROUP_KIND ClusterTrainingRuntime RuntimeNotFoundError "
                "TRAINING_RUNTIME_GROUP_KIND TrainingRuntime new snapshot_name"
            ),
        ),
    ],
    ids=["apply", "runtime", "framework", "core"],
)
def test_a_package_exports_what_it_says(package: types.ModuleType, names: str) -> None:
    assert exported(package) == set(names.split())
