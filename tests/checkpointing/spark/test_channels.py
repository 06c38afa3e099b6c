"""Which queries of a job read another query's output, derived from their options."""

from __future__ import annotations

from pathlib import Path

import pytest

from checkpointing.model.messages import Channel, ChannelKind
from checkpointing.spark.channels import QueryEnds, find_channels
from checkpointing.spark.plan import Source
from checkpointing.spark.program import ProgramError


def query(name: str, *sources: Source, sink: str = "noop", **options: str) -> QueryEnds:
    named = {"subscribe_pattern": "subscribepattern", "feeds": "waymark.feeds", "servers": "kafka.bootstrap.servers"}
    return QueryEnds(name, sources, sink, {named.get(key, key): value for key, value in options.items()})


def files(path: str | Path) -> Source:
    return Source("parquet", {"path": str(path)})


def kafka(**options: str) -> Source:
    return Source("kafka", {"kafka.bootstrap.servers": "b:9092, c:9092", **options})


def pairs(*queries: QueryEnds) -> list[tuple[str, str]]:
    return [(channel.producer, channel.consumer) for channel in find_channels(queries)]


def test_a_directory_that_one_writes_and_another_reads_is_a_channel() -> None:
    clean = query("clean", files("/in"), sink="parquet", path="/data/clean")
    count = query("count", files("/dim"), files("file:///data/clean/"))
    assert find_channels([count, clean]) == (Channel("clean", "count", ChannelKind.FILES, "/data/clean", 1),)


def test_a_link_to_the_directory_is_the_directory(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    clean = query("clean", files("/in"), sink="parquet", path=str(tmp_path / "link"))
    assert pairs(clean, query("count", files(tmp_path / "real"))) == [("clean", "count")]


def test_directories_of_another_file_system_are_compared_by_name() -> None:
    clean = query("clean", files("/in"), sink="parquet", path="s3a://bucket/clean/")
    assert pairs(clean, query("count", files("s3a://bucket/clean"))) == [("clean", "count")]
    assert pairs(clean, query("count", files("/bucket/clean"))) == []


def test_queries_that_only_have_a_source_in_common_are_independent() -> None:
    assert pairs(query("a", files("/in"), path="/a"), query("b", files("/in"), path="/b")) == []


@pytest.mark.parametrize(
    "path", ["/data", "/data/*", "/data/cl?an", "/data/{clean,raw}", "/*/[a-c]*/x", "/data/clean/x=1"]
)
def test_reading_a_sinks_files_past_its_log_is_refused(path: str) -> None:
    clean = query("clean", files("/in"), sink="parquet", path="/data/clean")
    with pytest.raises(ProgramError, match=r"query 'count' reads /.*query 'clean'.*Read /data/clean itself"):
        find_channels([clean, query("count", files(path))])


@pytest.mark.parametrize("path", ["/data/raw", "/data/r*", "/data/{raw,dim}", "/data/clean-2", "/dat"])
def test_another_directory_next_to_that_of_the_sink_is_ignored(path: str) -> None:
    assert pairs(query("clean", files("/in"), path="/data/clean"), query("count", files(path))) == []


@pytest.mark.parametrize(
    "options",
    [
        {"subscribe": "raw,clean"},
        {"subscribepattern": "cl.*"},
        {"assign": '{"clean":[0,1]}'},
        {"topic": "clean"},
        {"subscribepattern": "(?<java>clean)"},
    ],
)
def test_a_topic_that_one_writes_and_another_reads_is_a_channel(options: dict[str, str]) -> None:
    clean = query("clean", files("/in"), sink="kafka", topic="clean", servers="a:9092,B:9092")
    assert find_channels([clean, query("count", kafka(**options))]) == (
        Channel("clean", "count", ChannelKind.TOPIC, "clean", 0),
    )


def test_the_same_topic_of_another_cluster_or_another_system_is_another_topic() -> None:
    clean = query("clean", files("/in"), sink="kafka", topic="clean", servers="x:9092")
    assert pairs(clean, query("count", kafka(subscribe="clean"))) == []
    assert pairs(clean, query("count", Source("pulsar", {"topic": "clean"}))) == []


def test_a_program_declares_channels_that_cannot_be_detected() -> None:
    clean = query("clean", files("/in"), sink="foreachBatch", feeds="count, keep")
    found = find_channels([clean, query("count", files("/x")), query("keep", files("/x")), query("other", files("/x"))])
    assert found == (
        Channel("clean", "count", ChannelKind.NAMED, ""),
        Channel("clean", "keep", ChannelKind.NAMED, ""),
    )


def test_a_name_that_no_query_has_is_refused_with_those_there_are() -> None:
    with pytest.raises(ProgramError, match=r"waymark\.feeds of query 'a': 'c' is not allowed; .*: a, b"):
        find_channels([query("a", feeds="c"), query("b")])


def test_queries_that_feed_each_other_in_a_circle_are_refused() -> None:
    a = query("a", files("/c"), files("/in"), path="/a")
    b, c = query("b", files("/a"), path="/b"), query("c", files("/b"), path="/c")
    with pytest.raises(ProgramError, match="in a circle: a → b → c → a"):
        find_channels([a, b, c])


def test_a_query_that_reads_its_output_is_refused() -> None:
    with pytest.raises(ProgramError, match="in a circle: a → a"):
        find_channels([query("a", files("/a"), path="/a")])


def test_a_chain_that_splits_and_joins_again_is_not_a_circle() -> None:
    a = query("a", files("/in"), path="/a")
    b, c = query("b", files("/a"), path="/b"), query("c", files("/a"), path="/c")
    d = query("d", files("/b"), files("/c"))
    assert sorted(pairs(a, b, c, d)) == [("a", "b"), ("a", "c"), ("b", "d"), ("c", "d")]
