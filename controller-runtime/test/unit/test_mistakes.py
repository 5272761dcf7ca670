# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Mistakes in the functions and classes of an operator: each is an error where it is made, not in every later call."""

import asyncio
import functools
import gc
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import timedelta
from typing import Any
from unittest.mock import AsyncMock

import pytest

import controller_runtime as ctrl
from controller_runtime import cache, controller, handler, log, predicate, reconcile, rest, source, workqueue
from controller_runtime.apis.core.v1 import ConfigMap, Secret
from controller_runtime.builder import Builder
from controller_runtime.client import LiveClient
from controller_runtime.fake import FakeClient
from controller_runtime.machinery import PartialObjectMetadata


class Good:
    async def reconcile(self, request: ctrl.Request) -> ctrl.Result:
        return ctrl.Result()


class NoArgument:
    async def reconcile(self) -> ctrl.Result:
        return ctrl.Result()


class TwoArguments:
    async def reconcile(self, namespace: str, name: str) -> ctrl.Result:
        return ctrl.Result()


class NotAsync:
    def reconcile(self, request: ctrl.Request) -> ctrl.Result:
        return ctrl.Result()


class ReturnsNothing:
    async def reconcile(self, request):  # type: ignore[no-untyped-def]  # as in a first attempt
        def helper() -> int:
            return 1

        helper()


async def no_result(request):  # type: ignore[no-untyped-def]  # as in a first attempt
    str(request)


class ReturnsBool:
    async def reconcile(self, request: ctrl.Request) -> bool:
        return True


def plain(*_: object) -> list[ctrl.Request]:
    return []


async def no_arguments() -> list[ctrl.Request]:
    return []


async def coroutine(_: object) -> bool:
    return True


class AsyncPredicate(predicate.Predicate[ConfigMap]):
    async def create(self, evt: object) -> bool:  # type: ignore[override]  # the mistake
        return True


class PlainDefaulter(ctrl.CustomDefaulter[ConfigMap]):
    def default(self, obj: ConfigMap) -> None:  # type: ignore[override]  # the mistake
        """Forget the async."""


class PlainValidator(ctrl.CustomValidator[ConfigMap]):
    async def validate_create(self, obj: ConfigMap) -> list[str]:
        return []

    async def validate_update(self, old: ConfigMap, new: ConfigMap) -> list[str]:
        return []

    def validate_delete(self, obj: ConfigMap) -> list[str]:  # type: ignore[override]  # the mistake
        return []


def manager() -> ctrl.Manager:
    defaults = ctrl.ControllerDefaults(skip_name_validation=True)
    options = ctrl.Options(metrics_bind_address="0", controller=defaults)
    return ctrl.Manager(rest.Config(host="http://127.0.0.1:1"), options)


def empty() -> Builder:
    return ctrl.new_controller_managed_by(manager())


def webhooks() -> Any:
    return ctrl.new_webhook_managed_by(manager(), ConfigMap)


class GoodValidator(ctrl.CustomValidator[ConfigMap]):
    async def validate_create(self, obj: ConfigMap) -> list[str]:
        return []

    async def validate_update(self, old: ConfigMap, new: ConfigMap) -> list[str]:
        return []

    async def validate_delete(self, obj: ConfigMap) -> list[str]:
        return []


class Yields:
    async def reconcile(self, request: ctrl.Request) -> AsyncIterator[ctrl.Result]:
        yield ctrl.Result()


class ReturnsDelay:
    async def reconcile(self, request: ctrl.Request) -> timedelta:
        return timedelta(1)


class ReturnsAsInGo:
    async def reconcile(self, request: ctrl.Request) -> tuple[ctrl.Result, Exception | None]:
        return ctrl.Result(), None


class ReturnsAsInGoAsText:
    async def reconcile(self, request: "ctrl.Request") -> "tuple[ctrl.Result, Exception | None]":
        return ctrl.Result(), None


class MayReturnNothing:
    async def reconcile(self, request: ctrl.Request) -> ctrl.Result | None:
        return None


class MayReturnNothingAsText:
    async def reconcile(self, request: "ctrl.Request") -> "ctrl.Result | None":
        return None


MISTAKES: dict[str, tuple[Callable[[], Any], str]] = {
    "not async": (NotAsync, r"NotAsync\.reconcile must be declared with async def"),
    "not async, as a function": (
        lambda: reconcile.Func(NotAsync().reconcile),  # type: ignore[arg-type]
        r"NotAsync\.reconcile must be declared with async def",
    ),
    "not async, behind the object": (
        lambda: reconcile.AsReconciler(FakeClient(), ConfigMap, NotAsync()),  # type: ignore[arg-type]
        r"NotAsync\.reconcile must be declared with async",
    ),
    "nothing": (ReturnsNothing, r"ReturnsNothing\.reconcile returns nothing; it must return a Result"),
    "nothing, as a function": (
        lambda: reconcile.Func(no_result),
        "no_result returns nothing; it must return",
    ),
    "a class": (lambda: Good, "Good is a class: pass an instance"),
    "an object": (object, "object has no method reconcile"),
    "async generator": (Yields, r"Yields\.reconcile yields; it must return a Result"),
    "method": (lambda: Good().reconcile, r"method has no method reconcile; use reconcile\.Func"),
    "no argument": (NoArgument, r"NoArgument\.reconcile must take one argument"),
    "two arguments": (TwoArguments, r"TwoArguments\.reconcile must take one argument"),
    "a delay": (ReturnsDelay, r"ReturnsDelay\.reconcile returns timedelta; it must return a Result"),
    "as in Go": (ReturnsAsInGo, r"ReturnsAsInGo\.reconcile returns tuple\[.*; it must return a Result"),
    "as in Go, as a text": (ReturnsAsInGoAsText, r"returns tuple\[.*; it must return a Result"),
    "or nothing": (MayReturnNothing, r"MayReturnNothing\.reconcile returns .* it must return a Result"),
    "or nothing, as a text": (MayReturnNothingAsText, r"returns ctrl.Result \| None; it must return a"),
    "bool": (ReturnsBool, r"ReturnsBool\.reconcile returns bool; it must return a Result"),
}
CALLS: dict[str, tuple[Callable[[], Any], type[Exception], str]] = {
    "plain map function": (
        lambda: handler.enqueue_requests_from_map_func(plain),  # type: ignore[arg-type]
        TypeError,
        "plain must be declared with async def",
    ),
    "async predicate": (
        lambda: predicate.from_object(coroutine),  # type: ignore[arg-type]
        TypeError,
        "coroutine must not be async",
    ),
    "async function of a predicate": (
        lambda: predicate.Funcs(delete=coroutine),  # type: ignore[arg-type]
        TypeError,
        "coroutine must not be async",
    ),
    "plain source": (lambda: source.Func(plain), TypeError, "plain must be declared with async def"),  # type: ignore[arg-type]
    "plain defaulter": (
        lambda: webhooks().with_defaulter(PlainDefaulter()),
        TypeError,
        r"PlainDefaulter\.default must be declared with async def",
    ),
    "plain validator": (
        lambda: webhooks().with_validator(PlainValidator()),
        TypeError,
        r"PlainValidator\.validate_delete must be declared with async def",
    ),
    "class of a validator": (
        lambda: webhooks().with_validator(PlainValidator),
        TypeError,
        "PlainValidator is a class: pass an instance",
    ),
    "validator as defaulter": (
        lambda: webhooks().with_defaulter(PlainValidator()),
        TypeError,
        "PlainValidator has no method default",
    ),
    "function as finalizer": (
        lambda: controller.Finalizers[ConfigMap]().register("a.b/c", plain),  # type: ignore[arg-type]
        TypeError,
        "plain has no method finalize",
    ),
    "function as runnable": (lambda: manager().add(plain), TypeError, "plain has no method start"),  # type: ignore[arg-type]
    "second validator": (
        lambda: webhooks().with_validator(GoodValidator()).with_validator(GoodValidator()),
        ValueError,
        "a second handler to validate would replace the first",
    ),
    "webhooks of a name": (
        lambda: ctrl.new_webhook_managed_by(manager(), "ConfigMap"),  # type: ignore[arg-type]
        TypeError,
        "webhooks are for a kind, which is a class, not 'ConfigMap'",
    ),
    "text of namespaces": (
        lambda: cache.Options(default_namespaces="team"),
        TypeError,
        r"cache.Options: default_namespaces must be a list, such as \['team'\], not a text",
    ),
    "text of a kind's namespaces": (
        lambda: cache.Options(by_object={ConfigMap: cache.ByObject(namespaces="team")}),
        TypeError,
        r"cache.ByObject: namespaces must be a list",
    ),
    "text of an address": (
        lambda: ctrl.Manager(rest.Config("http://a"), ctrl.Options(health_probe_bind_address=8081)),  # type: ignore[arg-type]
        ctrl.ManagerError,
        "Options: health_probe_bind_address must be str, not int",
    ),
    "text of a duration": (
        lambda: ctrl.Manager(rest.Config("http://a"), ctrl.Options(graceful_shutdown_timeout="30s")),  # type: ignore[arg-type]
        ctrl.ManagerError,
        "Options: graceful_shutdown_timeout must be float, not str",
    ),
    "map of a cache": (
        lambda: ctrl.Manager(rest.Config("http://a"), ctrl.Options(cache={"namespaces": ["a"]})),  # type: ignore[arg-type]
        ctrl.ManagerError,
        r"Options\(cache=…\) takes cache.Options, not dict",
    ),
    "type of a column": (
        lambda: ctrl.crd.PrinterColumn("Ready", "int", ".status.ready"),
        TypeError,
        "the type of a column must be one of boolean, date, integer, number, string, not int",
    ),
    "name of a column": (
        lambda: ctrl.crd.PrinterColumn("", "integer", ".status.ready"),
        TypeError,
        "a column needs a name",
    ),
    "path of a column": (
        lambda: ctrl.crd.PrinterColumn("Ready", "integer", "status.ready"),
        TypeError,
        "json_path must begin with a dot, as in .status.phase, not 'status.ready'",
    ),
    "selectable field": (
        lambda: ctrl.crd.KindMarkers(selectable_fields=("spec.a",)),
        TypeError,
        "selectable_fields must begin with a dot",
    ),
    "scale": (
        lambda: ctrl.crd.KindMarkers(scale=True),  # type: ignore[arg-type]
        TypeError,
        r"scale must be a Scale, such as ctrl.crd.Scale\(\), not bool",
    ),
    "empty rule": (lambda: ctrl.crd.Rule(" "), TypeError, "a rule needs an expression"),
    "conditions that are None": (
        lambda: ctrl.set_status_condition(None, ctrl.Condition(type="A", status="True")),  # type: ignore[arg-type]
        TypeError,
        "set status.conditions to a list first",
    ),
    "handler of one argument": (
        lambda: cache.EventHandlerFuncs(on_delete=lambda obj: None),  # type: ignore[arg-type, misc]
        TypeError,
        "must take obj, unknown",
    ),
    "async handler": (
        lambda: cache.EventHandlerFuncs(on_add=coroutine),  # type: ignore[arg-type]
        TypeError,
        "coroutine must not be async",
    ),
    "predicate of two arguments": (
        lambda: predicate.Funcs(update=lambda old, new: True),  # type: ignore[arg-type, misc]
        TypeError,
        "must take evt",
    ),
    "object predicate of two arguments": (
        lambda: predicate.from_object(lambda old, new: True),  # type: ignore[arg-type, misc]
        TypeError,
        "must take obj",
    ),
    "source without a queue": (
        lambda: source.Func(no_arguments),  # type: ignore[arg-type]
        TypeError,
        "no_arguments must take queue",
    ),
    "map function without an object": (
        lambda: handler.enqueue_requests_from_map_func(no_arguments),  # type: ignore[arg-type]
        TypeError,
        "no_arguments must take obj",
    ),
    "config that was not awaited": (
        lambda: ctrl.Manager(asyncio.get_event_loop_policy),  # type: ignore[arg-type]
        ctrl.ManagerError,
        "a manager needs a Config, not function",
    ),
}
CONFIG_MAP: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "ConfigMap",
    "metadata": {"namespace": "n", "name": "a"},
}


class Draft(ctrl.Object):
    """A kind that was not given its names yet."""


BARE: dict[str, Callable[[], Any]] = {
    "get": lambda: FakeClient().get(ctrl.Unstructured, ("n", "a")),
    "live list": lambda: LiveClient(FakeClient().transport).list(ctrl.Unstructured),
    "create": lambda: FakeClient().create(ctrl.Unstructured.from_dict(CONFIG_MAP)),
    "apply": lambda: FakeClient().apply(ctrl.Unstructured.from_dict(CONFIG_MAP), field_owner="o"),
    "status": lambda: FakeClient().status.update(ctrl.Unstructured.from_dict(CONFIG_MAP)),
    "cache": lambda: cache.Cache(FakeClient().transport).list(ctrl.Unstructured),
    "index": lambda: manager().field_indexer.index_field(ctrl.Unstructured, "x", lambda _: []),
    "owner": lambda: handler.enqueue_request_for_owner(ctrl.Unstructured),
    "webhook": lambda: ctrl.new_webhook_managed_by(manager(), ctrl.Unstructured).complete(),
    "metadata": lambda: ctrl.metadata_only(ctrl.Unstructured),
    "event": lambda: ctrl.reference(ctrl.Unstructured.from_dict(CONFIG_MAP)),
}


@pytest.mark.parametrize("case", BARE)
async def test_a_class_without_a_kind_is_refused_and_the_error_says_what_to_use(case: str) -> None:
    async def use() -> None:
        if inspect.isawaitable(result := BARE[case]()):
            await result

    problem = r"^Unstructured has no group, version and kind; use ctrl\.unstructured"
    with pytest.raises(TypeError, match=problem):
        await use()


async def test_the_error_for_a_class_without_a_kind_depends_on_the_class() -> None:
    with pytest.raises(
        TypeError, match=r"^Draft has no group, version and kind; declare them, as in class Draft\("
    ):
        await FakeClient().list(Draft)
    with pytest.raises(TypeError, match=r"^PartialObjectMetadata has .*; use ctrl\.metadata_only"):
        await FakeClient().list(PartialObjectMetadata)
    made = await FakeClient().create(ctrl.Unstructured.wrap(CONFIG_MAP))
    assert made.name == "a"


A_CLASS: Any = workqueue.BucketRateLimiter
LIMITED_BY_A_CLASS = ctrl.ControllerOptions(rate_limiter=A_CLASS)
DECLARED: dict[str, tuple[Callable[[], Any], str]] = {
    "instance": (lambda: empty().for_(ConfigMap()), "a kind is a class, not an instance of ConfigMap"),  # type: ignore[arg-type]
    "struct": (lambda: empty().for_(ctrl.ObjectMeta), "ObjectMeta is not a kind"),  # type: ignore[type-var]
    "base class": (
        lambda: empty().for_(ctrl.Unstructured),
        r"Unstructured has no group, version and kind; use ctrl\.unstructured",
    ),
    "owned instance": (lambda: empty().for_(ConfigMap).owns(Secret()), "not an instance of Secret"),  # type: ignore[arg-type]
    "function as handler": (
        lambda: empty().for_(ConfigMap).watches(Secret, plain),  # type: ignore[arg-type]
        r"takes an EventHandler, not function; use handler\.enqueue_requests_from_map_func",
    ),
    "two mistakes": (
        lambda: empty().for_(ConfigMap()).watches(Secret, plain),  # type: ignore[arg-type]
        "a kind is a class, not an instance of ConfigMap",
    ),
    "class of a handler": (
        lambda: empty().for_(ConfigMap).watches(Secret, handler.EnqueueRequestForObject),  # type: ignore[arg-type]
        "the handler EnqueueRequestForObject is a class: pass an instance",
    ),
    "function as source": (
        lambda: empty().for_(ConfigMap).watches_raw_source(coroutine),  # type: ignore[arg-type]
        r"takes a Source, not function; use source\.Func",
    ),
    "class of a predicate": (
        lambda: empty().for_(ConfigMap).with_event_filter(predicate.GenerationChanged),  # type: ignore[arg-type]
        "the predicate GenerationChanged is a class: pass an instance",
    ),
    "function as predicate": (
        lambda: empty().for_(ConfigMap).with_event_filter(plain),  # type: ignore[arg-type]
        r"function is not a predicate; use predicate\.from_object",
    ),
    "text as predicate": (
        lambda: empty().for_(ConfigMap).with_event_filter("a=b"),  # type: ignore[arg-type]
        r"str is not a predicate$",
    ),
    "one predicate": (
        lambda: empty().for_(ConfigMap, predicates=predicate.GenerationChanged()),  # type: ignore[arg-type]
        "takes a list of predicates, not GenerationChanged",
    ),
    "class of a rate limiter": (
        lambda: (
            empty()
            .for_(ConfigMap)
            .with_options(
                ctrl.ControllerOptions(rate_limiter=workqueue.BucketRateLimiter)  # type: ignore[arg-type]
            )
        ),
        "rate_limiter must be a RateLimiter, not the class BucketRateLimiter",
    ),
    "delay as a rate limiter": (
        lambda: empty().for_(ConfigMap).with_options(ctrl.ControllerOptions(rate_limiter=5.0)),  # type: ignore[arg-type]
        "rate_limiter must be a RateLimiter, not float",
    ),
    "predicate with an async method": (
        lambda: empty().for_(ConfigMap, predicates=[AsyncPredicate()]),
        r"AsyncPredicate\.create must not be async",
    ),
}


@pytest.mark.parametrize("case", MISTAKES)
def test_a_reconciler_that_would_fail_in_each_call_is_refused(case: str) -> None:
    made, problem = MISTAKES[case]
    with pytest.raises(reconcile.ControllerError, match=problem):
        empty().for_(ConfigMap).complete(made())


@pytest.mark.parametrize("case", CALLS)
def test_a_wrong_function_or_object_is_refused_where_it_is_passed(case: str) -> None:
    call, kind, problem = CALLS[case]
    with pytest.raises(kind, match=problem):
        call()


@pytest.mark.parametrize("case", DECLARED)
def test_a_wrong_part_of_a_declaration_is_refused_by_complete(case: str) -> None:
    declare, problem = DECLARED[case]
    with pytest.raises(reconcile.ControllerError, match=problem):
        declare().complete(Good())


async def test_a_config_that_was_not_awaited_is_named() -> None:
    forgotten = asyncio.sleep(0)
    with pytest.raises(ctrl.ManagerError, match=r"not coroutine: await ctrl\.load_config\(\)"):
        ctrl.Manager(forgotten)  # type: ignore[arg-type]
    await forgotten


def decorated(function: Any) -> Any:
    @functools.wraps(function)
    def around(*arguments: Any) -> Any:
        return function(*arguments)

    return around


def offloaded(function: Any) -> Any:
    @functools.wraps(function)
    async def around(*arguments: Any) -> Any:
        return function(*arguments)

    return around


def test_functions_of_which_nothing_is_certain_are_accepted() -> None:
    class Wrapped:
        @offloaded
        def reconcile(self, request: ctrl.Request) -> ctrl.Result:
            return ctrl.Result()

    class Decorated:
        @decorated
        async def reconcile(self, request: ctrl.Request) -> ctrl.Result:
            return ctrl.Result()

    class Delegates:
        def reconcile(self, request: ctrl.Request) -> Awaitable[ctrl.Result]:
            return Good().reconcile(request)

    class OnlyRaises:
        async def reconcile(self, request):  # type: ignore[no-untyped-def]  # as in a first attempt
            raise NotImplementedError

    delegates = reconcile.Func(lambda request: Good().reconcile(request))
    mock: Any = AsyncMock()
    reconcilers: list[Any] = [Wrapped(), Decorated(), Delegates(), OnlyRaises(), delegates, mock]
    for reconciler in reconcilers:
        empty().for_(ConfigMap, predicates=iter([predicate.GenerationChanged()])).complete(reconciler)
    handler.enqueue_requests_from_map_func(lambda obj: asyncio.sleep(0, []))
    handler.enqueue_requests_from_map_func(functools.partial(coroutine))  # type: ignore[arg-type]


async def test_an_index_function_must_return_a_list_at_once() -> None:
    client = FakeClient(ConfigMap(metadata=ctrl.ObjectMeta(namespace="n", name="a")))
    with pytest.raises(TypeError, match="coroutine must not be async"):
        await client.index_field(ConfigMap, "x", coroutine)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="coroutine must not be async"):
        await manager().field_indexer.index_field(ConfigMap, "x", coroutine)  # type: ignore[arg-type]
    await client.index_field(ConfigMap, "x", lambda obj: obj.name)
    with pytest.raises(TypeError, match="index 'x': the function returns a text, not a list of texts"):
        await client.list(ConfigMap, fields={"x": "a"})


async def test_a_change_that_is_repeated_must_be_async() -> None:
    with pytest.raises(TypeError, match="plain must be declared with async def"):
        await ctrl.retry_on_conflict(plain)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("declare", "event"),
    [
        (lambda: empty().for_(ConfigMap), "Declared controller does not run: complete() was never called"),
        (
            lambda: webhooks().with_validator(GoodValidator()),
            "Declared webhooks are not served: complete() was never called",
        ),
    ],
)
def test_a_declaration_that_is_never_completed_is_logged(declare: Callable[[], Any], event: str) -> None:
    with log.captured() as lines:
        declared = declare()
        assert lines == []
        del declared
        gc.collect()
    assert [line["event"] for line in lines] == [event]


@pytest.mark.parametrize("number", ["4", 2.5, True])
def test_a_number_of_workers_is_an_integer(number: Any) -> None:
    options = ctrl.ControllerOptions(max_concurrent_reconciles=number)
    with pytest.raises(reconcile.ControllerError, match="max_concurrent_reconciles must be int or None"):
        empty().for_(ConfigMap).with_options(options).complete(Good())


def no_fields() -> dict[str, object]:
    return {}


@pytest.mark.parametrize(
    ("constructor", "problem"),
    [
        ("text", "str must take request"),
        (coroutine, "coroutine must not be async"),
        (no_fields, "no_fields must take request"),
    ],
)
def test_a_log_constructor_is_a_plain_function_of_the_request(constructor: Any, problem: str) -> None:
    for options in (ctrl.ControllerOptions(log_constructor=constructor), ctrl.ControllerOptions()):
        builder = empty().for_(ConfigMap).with_options(options)
        if options.log_constructor is None:
            builder = builder.with_log_constructor(constructor)
        with pytest.raises(TypeError, match=problem):
            builder.complete(Good())


def test_a_number_of_workers_for_a_kind_is_an_integer() -> None:
    numbers: Any = {"ConfigMap": "3"}
    defaults = ctrl.ControllerDefaults(group_kind_concurrency=numbers)
    mgr = ctrl.Manager(rest.Config("http://127.0.0.1:1"), ctrl.Options(controller=defaults))
    with pytest.raises(reconcile.ControllerError, match="the number of workers must be int, not str"):
        ctrl.new_controller_managed_by(mgr).for_(ConfigMap).complete(Good())


@pytest.mark.parametrize("limit", [0, -1.0, timedelta(seconds=-5), timedelta(0), float("nan")], ids=repr)
def test_a_time_limit_of_a_reconcile_that_is_not_positive_is_no_limit(limit: Any) -> None:
    options = ctrl.ControllerOptions(reconciliation_timeout=limit)
    assert empty().for_(ConfigMap).with_options(options).build(Good()).settings.reconciliation_timeout is None
