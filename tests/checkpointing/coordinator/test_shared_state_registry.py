"""Reference counts of shared files."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from checkpointing.coordinator.cleaning import ReferenceCountingRegistry
from tests.checkpointing.doubles import private_file, shared_file


def test_the_last_user_frees_a_file() -> None:
    registry = ReferenceCountingRegistry()
    registry.register(1, [shared_file("a"), shared_file("b")])
    registry.register(2, [shared_file("b")])
    assert registry.users_of("shared/b") == {1, 2}
    assert registry.release(1) == [shared_file("a")]
    assert registry.release(2) == [shared_file("b")]
    assert registry.users_of("shared/b") == frozenset()


def test_registering_twice_counts_once() -> None:
    registry = ReferenceCountingRegistry()
    registry.register(1, [shared_file("a")])
    registry.register(1, [shared_file("a"), shared_file("a")])
    assert registry.release(1) == [shared_file("a")]


def test_conformance_j02_releasing_an_unknown_file_frees_nothing() -> None:
    registry = ReferenceCountingRegistry()
    registry.register(1, [shared_file("a")])
    assert registry.release(2) == []
    registry.release(1)
    assert registry.release(1) == []


def test_private_files_are_not_counted() -> None:
    registry = ReferenceCountingRegistry()
    registry.register(1, [private_file(1, "x")])
    assert registry.release(1) == []


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("register"), st.integers(1, 4), st.sets(st.sampled_from("abcd"))),
            st.tuples(st.just("release"), st.integers(1, 4), st.just(frozenset())),
        )
    )
)
def test_a_file_is_freed_exactly_when_its_last_user_releases_it(steps: list[tuple[str, int, set[str]]]) -> None:
    registry = ReferenceCountingRegistry()
    users: dict[int, set[str]] = {}
    for action, checkpoint_id, names in steps:
        if action == "register":
            registry.register(checkpoint_id, [shared_file(name) for name in names])
            users.setdefault(checkpoint_id, set()).update(names)
        else:
            gone = users.pop(checkpoint_id, set())
            still_used = set().union(*users.values())
            freed = {file.checksum for file in registry.release(checkpoint_id)}
            assert freed == gone - still_used
