"""A path from a request must be inside the configured directories."""

from __future__ import annotations

from pathlib import Path

import pytest

from checkpointing.daemon_threads import in_daemon_thread
from checkpointing.storage import OutsideSavepointRoots, SavepointRoots, StorageError
from tests.checkpointing.jobs.hard_mount import hard_mount


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "sp" / "team").mkdir(parents=True)
    return tmp_path / "sp"


def test_the_root_and_paths_below_it_are_allowed_in_every_spelling(root: Path) -> None:
    roots = SavepointRoots([f"file:{root}/"])
    team = str(root / "team")
    for spelling in (team, f"{team}/", f"file:{team}", f"file://{team}", f"{root}/x/../team", f"file:///{team}"):
        assert roots.resolve(spelling) == team
    assert roots.resolve(str(root)) == str(root)
    assert roots.resolve(f"{root}/new") == f"{root}/new"


@pytest.mark.parametrize("path", ["{root}/../x", "/etc", "{root}2/x", "file:{root}/%2e%2e/x", "{root}/link/x"])
def test_every_way_out_is_refused_and_the_roots_are_named(root: Path, path: str) -> None:
    (root / "link").symlink_to("/")
    with pytest.raises(OutsideSavepointRoots) as caught:
        SavepointRoots([str(root)]).resolve(path.format(root=root))
    assert str(root) in str(caught.value)
    assert caught.value.roots == (str(root),)


def test_a_root_may_be_a_symbolic_link_itself(root: Path, tmp_path: Path) -> None:
    (tmp_path / "alias").symlink_to(root)
    assert SavepointRoots([str(tmp_path / "alias")]).resolve(f"{tmp_path}/alias/team") == str(root / "team")


def test_a_hanging_root_delays_no_other_root(root: Path, tmp_path: Path) -> None:
    with hard_mount(tmp_path / "mount") as mount:
        roots = SavepointRoots([str(mount.path), str(root)])
        mount.hang()
        assert in_daemon_thread(lambda: roots.resolve(f"{root}/team"), "it").result(10) == f"{root}/team"
        assert roots.root_of(f"file:{root}/team/") == str(root)
        assert roots.root_of(f"{root}2") is None
        assert roots.root_of("no location") is None


def test_without_roots_nothing_is_allowed(root: Path) -> None:
    with pytest.raises(OutsideSavepointRoots, match="none is configured"):
        SavepointRoots([]).resolve(str(root))


@pytest.mark.parametrize("path", ["relative/x", "", "s3://bucket/x", "hdfs://h/x", "file://other-host/x", "/x\x00y"])
def test_path_that_is_not_absolute_and_local_is_refused(root: Path, path: str) -> None:
    with pytest.raises(StorageError):
        SavepointRoots([str(root)]).resolve(path)


def test_links_in_circles_are_refused(root: Path) -> None:
    (root / "a").symlink_to(root / "b")
    (root / "b").symlink_to(root / "a")
    with pytest.raises(StorageError):
        SavepointRoots([str(root)]).resolve(f"{root}/a/x")


@pytest.mark.parametrize(
    "outside", ["s3://bucket/waymark2", "s3://bucket", "s3://other/waymark", "ftp://bucket/waymark"]
)
def test_remote_roots_confine_too(outside: str) -> None:
    roots = SavepointRoots(["s3://bucket/waymark/", "/local"])
    assert roots.resolve("s3://bucket/waymark/team/sp-1/") == "s3://bucket/waymark/team/sp-1"
    assert roots.resolve("s3://bucket/waymark") == "s3://bucket/waymark"
    with pytest.raises(OutsideSavepointRoots, match="allowed: s3://bucket/waymark, /local"):
        roots.resolve(outside)
