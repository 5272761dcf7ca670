# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Lease."""

from pydantic import Field

from controller_runtime.machinery import Object, Struct


class LeaseSpec(Struct):
    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    acquire_time: str | None = None
    renew_time: str | None = None
    lease_transitions: int | None = None
    strategy: str | None = None
    preferred_holder: str | None = None


class Lease(Object, group="coordination.k8s.io", version="v1", plural="leases"):
    spec: LeaseSpec = Field(default_factory=LeaseSpec)
