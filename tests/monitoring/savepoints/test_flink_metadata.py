"""The metadata of snapshots of real Flink 1.20.5 and 2.3.0, with every state backend."""

import contextlib
import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from monitoring.savepoints.flink_metadata import MAGIC, CutShort, NeededFile, NotFlinkMetadata, parse
from tests.monitoring.savepoints import snapshots

NAMES = snapshots.names()


@pytest.mark.parametrize("name", NAMES)
def test_the_metadata_lists_every_file_with_its_size(name):
    lay_there = snapshots.sizes(name)
    needed = {file.location.rpartition("/")[2]: file for file in parse(snapshots.metadata(name)).files}
    assert set(needed) == set(lay_there)
    assert [file for file_name, file in needed.items() if not file.fits(lay_there[file_name])] == []


@pytest.mark.parametrize("name", NAMES)
def test_the_metadata_distinguishes_savepoints_from_checkpoints(name):
    assert parse(snapshots.metadata(name)).is_savepoint == ("savepoint" in name)


@pytest.mark.parametrize("name", NAMES)
def test_the_metadata_names_the_operators(name):
    metadata = parse(snapshots.metadata(name))
    # The REST API has this ID for the job's sink. It is a hash of the user's name for the sink.
    assert "30526b369bc9f4583e22fa19af0d8bf4" in [operator.id for operator in metadata.operators]
    named = {operator.name for operator in metadata.operators}
    assert named == {""} if metadata.version < 5 else {"Source: numbers", "count", "nowhere: Writer"} <= named
    assert {operator.parallelism for operator in metadata.operators} == {2}


@settings(deadline=None)
@given(st.sampled_from(NAMES), st.data())
def test_truncated_metadata_is_refused(name, data):
    content = snapshots.metadata(name)
    with pytest.raises(CutShort):
        parse(content[: data.draw(st.integers(4, len(content) // 2))])


@settings(deadline=None)
@given(st.sampled_from(NAMES), st.data())
def test_garbage_in_it_is_refused_or_read_but_never_ends_in_another_error(name, data):
    content = bytearray(snapshots.metadata(name))
    for _ in range(data.draw(st.integers(1, 8))):
        content[data.draw(st.integers(4, len(content) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(NotFlinkMetadata):
        parse(bytes(content))


def test_foreign_formats_and_other_versions_are_named():
    with pytest.raises(NotFlinkMetadata, match="it was not written by Flink"):
        parse(b"PK\x03\x04")
    with pytest.raises(
        NotFlinkMetadata, match=r"it has version 9 of Flink's format, but only versions 3 to 6 can be read"
    ):
        parse(MAGIC + struct.pack(">i", 9))


def test_a_file_of_many_states_may_be_longer_than_one_of_them_needs():
    whole, part = NeededFile("a", 10, relative=True), NeededFile("a", 10, relative=True, shared=True)
    assert [whole.fits(10), whole.fits(11), part.fits(11), part.fits(9)] == [True, False, True, False]
