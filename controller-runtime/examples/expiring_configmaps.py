# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""ConfigMaps that expire: a ConfigMap annotated ``example.com/ttl: "30"`` is deleted 30 seconds after its creation.

A validating webhook rejects a ttl that is not a number, so that the mistake is found when the ConfigMap is created.
"""

import argparse
import asyncio
from datetime import UTC, datetime, timedelta

import controller_runtime as ctrl
from controller_runtime import log, reconcile
from controller_runtime.apis.core.v1 import ConfigMap
from controller_runtime.machinery import field, meta

TTL = "example.com/ttl"


def seconds(config_map: ConfigMap) -> int | None:
    text = config_map.annotations.get(TTL, "")
    return int(text) if text.isdecimal() and len(text) < 10 else None


class Expirer:
    """Deletes expired ConfigMaps, and requeues the others until they expire."""

    def __init__(self, client: ctrl.Client, events: ctrl.EventRecorder) -> None:
        self.client = client
        self.events = events

    async def reconcile(self, obj: ConfigMap) -> ctrl.Result:
        ttl, made = seconds(obj), obj.metadata.creation_timestamp
        if ttl is None or made is None or obj.metadata.deletion_timestamp:
            return ctrl.Result()
        left = meta.parse_time(made) + timedelta(seconds=ttl) - datetime.now(UTC)
        if left > timedelta():
            return ctrl.Result(requeue_after=left)
        with ctrl.ignore_not_found(obj):
            await self.client.delete(obj, preconditions={"uid": obj.metadata.uid or ""})
            self.events.event(obj, ctrl.recorder.NORMAL, "Expired", f"its {ttl} seconds are over")
        return ctrl.Result()


class TTLValidator(ctrl.CustomValidator[ConfigMap]):
    """Rejects ConfigMaps whose ttl is not a number of seconds."""

    async def validate_create(self, obj: ConfigMap) -> list[str]:
        if TTL in obj.annotations and seconds(obj) is None:
            path = field.Path("metadata", "annotations").key(TTL)
            raise field.invalid(path, obj.annotations[TTL], "must be a number of seconds")
        return []

    async def validate_update(self, old: ConfigMap, new: ConfigMap) -> list[str]:
        return await self.validate_create(new)

    async def validate_delete(self, obj: ConfigMap) -> list[str]:
        return []


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, default=9443)
    parser.add_argument("--cert-dir", default="", help="folder with tls.crt and tls.key")
    flags = parser.parse_args()
    log.configure()
    options = ctrl.Options(webhook_port=flags.port, webhook_cert_dir=flags.cert_dir, metrics_bind_address="0")
    mgr = ctrl.Manager(await ctrl.load_config(), options)
    expirer = Expirer(mgr.client, mgr.event_recorder_for("expirer"))
    reconciler = reconcile.AsReconciler(mgr.client, ConfigMap, expirer)  # reads the object first
    ctrl.new_controller_managed_by(mgr).for_(ConfigMap).complete(reconciler)
    ctrl.new_webhook_managed_by(mgr, ConfigMap).with_validator(TTLValidator()).complete()
    async with ctrl.setup_signal_handler() as stop:
        await mgr.start(stop)


if __name__ == "__main__":
    asyncio.run(main())
