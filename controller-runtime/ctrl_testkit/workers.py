# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""A kind with two versions that uses all properties that a CustomResourceDefinition can have."""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import Field

import controller_runtime as ctrl


class WorkerSpec(ctrl.Struct):
    """The desired state of a worker."""

    crd: ClassVar = ctrl.crd.Markers(
        rules=(
            ctrl.crd.Rule(
                "self.replicas <= self.limit",
                message_expression="self.limit < 5 ? 'few' : 'many'",
                reason="FieldValueForbidden",
                field_path=".replicas",
            ),
            ctrl.crd.Rule(
                "!oldSelf.hasValue() || self.zone == oldSelf.value().zone",
                "zone is immutable",
                optional_old_self=True,
            ),
        )
    )

    replicas: ctrl.Int32
    limit: Annotated[
        ctrl.Int32, ctrl.crd.Markers(minimum=0, maximum=10, exclusive_maximum=True, multiple_of=1)
    ]
    zone: str
    pause: ctrl.Duration | None = None


class WorkerStatus(ctrl.Struct):
    """The observed state of a worker."""

    replicas: ctrl.Int32 | None = None
    selector: str | None = None


class WorkerV1(ctrl.Object, group="example.com", version="v1", kind="Worker", plural="workers"):
    """A worker."""

    crd_kind: ClassVar = ctrl.crd.KindMarkers(
        status_subresource=True,
        storage=True,
        scale=ctrl.crd.Scale(label_selector=".status.selector"),
        selectable_fields=(".spec.zone",),
        printer_columns=(
            ctrl.crd.PrinterColumn("Age", "string", ".metadata.creationTimestamp", format="date"),
        ),
        short_names=("wk",),
        categories=("all", "workers"),
        singular="wrk",
        list_kind="Workers",
        conversion=ctrl.crd.ConversionWebhook(namespace="system", name="hooks", port=8443),
    )

    spec: WorkerSpec
    status: WorkerStatus = Field(default_factory=WorkerStatus)


class WorkerV1Beta1(ctrl.Object, group="example.com", version="v1beta1", kind="Worker", plural="workers"):
    """A worker of an older version."""

    crd_kind: ClassVar = ctrl.crd.KindMarkers(deprecated="use v1", short_names=("wk",))

    spec: WorkerSpec
