# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
import pytest

from controller_runtime.apis.core.v1 import ConfigMap
from controller_runtime.controller import FinalizeError, Finalizer, FinalizeResult, Finalizers

NOTHING = FinalizeResult()
FIRST, SECOND = "example.com/first", "example.com/second"


class Cleaner(Finalizer[ConfigMap]):
    """A finalizer that counts its runs, and returns the given result or raises the given error."""

    def __init__(self, result: FinalizeResult | Exception = NOTHING) -> None:
        self.result = result
        self.ran = 0

    async def finalize(self, obj: ConfigMap) -> FinalizeResult:
        self.ran += 1
        if isinstance(self.result, Exception):
            raise self.result
        return self.result


def config_map(*finalizers: str, deleted: bool = False) -> ConfigMap:
    metadata = {"namespace": "a", "name": "b", "finalizers": list(finalizers)}
    if deleted:
        metadata["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    return ConfigMap.from_dict({"metadata": metadata})


def registered(**cleaners: Cleaner) -> Finalizers[ConfigMap]:
    made = Finalizers[ConfigMap]()
    for name, cleaner in cleaners.items():
        made.register(f"example.com/{name}", cleaner)
    return made


async def test_finalizers_are_added_once_and_do_not_run_while_the_object_lives() -> None:
    first = Cleaner()
    finalizers, obj = registered(first=first, second=Cleaner()), config_map("other.org/x")
    assert await finalizers.finalize(obj) == FinalizeResult(updated=True)
    assert obj.metadata.finalizers == ["other.org/x", FIRST, SECOND]
    assert await finalizers.finalize(obj) == FinalizeResult()
    assert first.ran == 0


async def test_only_finalizers_that_the_object_has_run_and_are_removed() -> None:
    first, second = Cleaner(FinalizeResult(status_updated=True)), Cleaner()
    obj = config_map(FIRST, "other.org/x", deleted=True)
    result = await registered(first=first, second=second).finalize(obj)
    assert result == FinalizeResult(updated=True, status_updated=True)
    assert (obj.metadata.finalizers, first.ran, second.ran) == (["other.org/x"], 1, 0)


async def test_a_finalizer_that_failed_stays_and_does_not_stop_the_others() -> None:
    broken, well = Cleaner(OSError("bucket is not empty")), Cleaner()
    obj = config_map(FIRST, SECOND, deleted=True)
    with pytest.raises(FinalizeError, match="finalize ConfigMap a/b") as raised:
        await registered(first=broken, second=well).finalize(obj)
    assert raised.value.result == FinalizeResult(updated=True)
    assert [(str(each), each.__notes__) for each in raised.value.exceptions] == [
        ("bucket is not empty", [f"finalizer {FIRST}"])
    ]
    assert (obj.metadata.finalizers, well.ran) == ([FIRST], 1)
    part, _ = raised.value.split(OSError)
    assert isinstance(part, FinalizeError)
    assert part.result == raised.value.result


@pytest.mark.parametrize("name", ["first", "example.com/", "example.com/a b", FIRST])
def test_a_name_that_cannot_be_used_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="finalizer"):
        registered(first=Cleaner()).register(name, Cleaner())
