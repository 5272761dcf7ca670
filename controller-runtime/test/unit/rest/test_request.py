# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The request line, headers and body of each call."""

from collections.abc import Callable

import pytest

from controller_runtime import rest
from controller_runtime.machinery import Resource
from controller_runtime.rest import request

PODS = Resource("", "v1", "pods", True)
NODES = Resource("", "v1", "nodes", False)
JOBS = Resource("batch", "v1", "jobs", True)


@pytest.mark.parametrize(
    ("resource", "namespace", "path"),
    [
        pytest.param(PODS, "a", "/api/v1/namespaces/a/pods/x", id="core group"),
        pytest.param(JOBS, "a", "/apis/batch/v1/namespaces/a/jobs/x", id="named group"),
        pytest.param(NODES, "", "/api/v1/nodes/x", id="cluster-scoped"),
        pytest.param(
            NODES, "a", "/api/v1/nodes/x", id="a namespace that a cluster-scoped kind has no use for"
        ),
    ],
)
def test_get_names_the_object_by_its_path(resource: Resource, namespace: str, path: str) -> None:
    assert request.get(resource, namespace, "x").path == path


@pytest.mark.parametrize(
    "write",
    [
        request.create(PODS, "a", b""),
        request.update(PODS, "a", "x", b""),
        request.patch(PODS, "a", "x", b"", content_type=request.APPLY),
        request.delete(PODS, "a", "x"),
        request.delete_collection(PODS, namespace="a"),
        request.post(request.get(PODS, "a", "x"), b""),
    ],
    ids=lambda write: f"{write.method} {write.path}",
)
def test_a_write_waits_until_the_server_gives_up(write: rest.Request) -> None:
    """An API server answers a write after at most 34 s (``requestTimeoutUpperBound``), with the name of a slow webhook."""
    assert write.timeout is not None
    assert write.timeout > 34


def test_names_are_percent_encoded() -> None:
    roles = Resource("rbac.authorization.k8s.io", "v1", "clusterroles", False)
    assert request.get(roles, "", "system:a b?c#d").path.endswith("/clusterroles/system%3Aa%20b%3Fc%23d")


BAD = ["a/b", "..", ".", "a%2Fb", "%2e%2e", "/", "x" * 70_000 + "/", "\ud800"]


@pytest.mark.parametrize("bad", BAD, ids=lambda bad: bad[:8].encode("ascii", "backslashreplace").decode())
def test_what_would_leave_its_segment_of_the_path_is_refused(bad: str) -> None:
    odd = Resource("batch", "v1", bad, True)
    calls: list[Callable[[], rest.Request]] = [
        lambda: request.get(PODS, bad, "x"),
        lambda: request.get(PODS, "a", bad),
        lambda: request.list_(PODS, namespace=bad),
        lambda: request.watch(PODS, namespace=bad),
        lambda: request.create(PODS, bad, b""),
        lambda: request.update(PODS, "a", bad, b""),
        lambda: request.patch(PODS, "a", bad, b"", content_type=request.APPLY),
        lambda: request.delete(PODS, "a", bad),
        lambda: request.delete_collection(PODS, namespace=bad),
        lambda: request.subresource(request.get(PODS, "a", "x"), bad),
        lambda: request.list_(odd),
    ]
    for make in calls:
        with pytest.raises(rest.InvalidRequestError, match="is not valid in the path") as caught:
            make()
        assert len(str(caught.value)) < 200


@pytest.mark.parametrize(
    ("group", "version"),
    [
        ("", "v1/secrets"),
        ("", "v1%2Fsecrets"),
        ("", "v1?watch=true"),
        ("", ".."),
        ("", ""),
        ("..", "v1"),
        ("a/b", "v1"),
        ("example.com", "v1#"),
        ("example.com\n", "v1"),
        ("x" * 300, "v1"),
        ("example.com", "v" * 100),
    ],
)
def test_no_url_is_made_of_what_is_no_group_and_version(group: str, version: str) -> None:
    with pytest.raises(rest.InvalidRequestError, match="is not the group and version of an API"):
        request.group_version_path(group, version)
    with pytest.raises(rest.InvalidRequestError):
        request.list_(Resource(group, version, "things", True))


@pytest.mark.parametrize(("namespace", "name"), [("a", ""), ("", "x")])
def test_an_object_without_name_or_namespace_is_refused(namespace: str, name: str) -> None:
    with pytest.raises(ValueError, match="may not be empty"):
        request.get(PODS, namespace, name)


def test_list_carries_selectors_and_paging_and_nothing_unset() -> None:
    made = request.list_(
        PODS,
        labels={"b": ["y", "x"], "a": "1"},
        fields={"spec.nodeName": "n", "metadata.name": "p,q"},
        limit=5,
        continue_token="next",
    )
    assert made.query == (
        ("labelSelector", "a=1,b in (x,y)"),
        ("fieldSelector", "metadata.name=p\\,q,spec.nodeName=n"),
        ("limit", "5"),
        ("continue", "next"),
    )
    assert request.list_(PODS).query == ()


def test_a_field_selector_may_be_given_as_its_text() -> None:
    text = "spec.schedulerName=mine,status.phase!=Failed"
    for made in (request.list_(PODS, fields=text), request.watch(PODS, fields=text, resource_version="7")):
        assert dict(made.query)["fieldSelector"] == text


def test_a_watch_is_a_stream_with_bookmarks() -> None:
    made = request.watch(PODS, namespace="a", resource_version="7", timeout_seconds=300)
    assert made.stream
    assert made.target == (
        "/api/v1/namespaces/a/pods?watch=true&allowWatchBookmarks=true&resourceVersion=7&timeoutSeconds=300"
    )


def test_a_streaming_list_says_how_old_it_may_be() -> None:
    query = dict(request.watch(PODS, send_initial_events=True).query)
    assert query["sendInitialEvents"] == "true"
    assert query["resourceVersionMatch"] == "NotOlderThan"


def test_metadata_is_asked_for_by_the_accept_header_alone() -> None:
    plain, partial = (request.get(PODS, "a", "x", metadata_only=only) for only in (False, True))
    assert "as=PartialObjectMetadata;" in partial.headers["Accept"]
    assert "as=PartialObjectMetadataList;" in request.list_(PODS, metadata_only=True).headers["Accept"]
    assert plain.target == partial.target


def test_apply_names_its_owner_and_forces() -> None:
    made = request.patch(
        PODS, "a", "x", b"{}", content_type=request.APPLY, field_owner="trainer", force=True, dry_run=True
    )
    assert made.method == "PATCH"
    assert made.query == (("fieldManager", "trainer"), ("force", "true"), ("dryRun", "All"))
    assert made.headers["Content-Type"] == "application/apply-patch+yaml"


def test_a_subresource_is_below_its_object() -> None:
    made = request.subresource(request.update(PODS, "a", "x", b"{}"), "status")
    assert (made.method, made.path) == ("PUT", "/api/v1/namespaces/a/pods/x/status")


def test_a_post_to_a_subresource_is_as_dry_as_was_asked() -> None:
    target = request.subresource(request.get(PODS, "a", "x"), "eviction")
    made = request.post(target, b"{}", field_owner="trainer", dry_run=True)
    assert (made.method, made.path, made.body) == ("POST", "/api/v1/namespaces/a/pods/x/eviction", b"{}")
    assert made.query == (("fieldManager", "trainer"), ("dryRun", "All"))
    assert made.headers["Content-Type"] == request.JSON


def test_create_and_delete_collection_need_the_namespace() -> None:
    with pytest.raises(ValueError, match="namespace may not be empty"):
        request.create(PODS, "", b"{}")
    with pytest.raises(ValueError, match="namespace may not be empty"):
        request.delete_collection(PODS)
    assert request.create(NODES, "", b"{}").path == "/api/v1/nodes"
