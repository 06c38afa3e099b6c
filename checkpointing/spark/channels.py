"""Detects, from the queries' options and before anything runs, where one query of a job feeds another.

A channel exists where a query's source reads the directory or the topic that another query's sink writes. The program
declares channels that options do not show (foreachBatch, foreach): `.option("waymark.feeds", "other query")` on the
writer.

A snapshot must not hold a consumer ahead of its producer. A restored producer writes the output after its cut again,
and a consumer that had already read it would count it twice. So the agent cuts consumers before their producers. This
needs an order, so channels must not form a circle.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from checkpointing.model.messages import Channel, ChannelKind
from checkpointing.spark.plan import Source
from checkpointing.spark.program import ProgramError

FEEDS_OPTION = "waymark.feeds"
_GLOB = re.compile(r"[*?\[{]")


@dataclass(frozen=True)
class QueryEnds:
    """The sources and the sink of a query. `sink_options` has the form of `writer_options`."""

    query: str
    sources: Sequence[Source]
    sink_format: str
    sink_options: Mapping[str, str]


def find_channels(queries: Sequence[QueryEnds]) -> tuple[Channel, ...]:
    """Return every channel of the job. Raise ProgramError if they form a circle or cannot be restored exactly."""
    channels = [
        channel
        for producer in queries
        for consumer in queries
        for channel in _between(producer, consumer, {query.query for query in queries})
    ]
    _refuse_circles(channels)
    return tuple(channels)


def _between(producer: QueryEnds, consumer: QueryEnds, known: set[str]) -> Iterator[Channel]:
    for index, source in enumerate(consumer.sources):
        if _same_directory(producer, consumer, source):
            location = _directory(producer.sink_options["path"])
            yield Channel(producer.query, consumer.query, ChannelKind.FILES, location, index)
        for topic in sorted(_shared_topics(producer, source)):
            yield Channel(producer.query, consumer.query, ChannelKind.TOPIC, topic, index)
    if consumer.query in _named(producer, known):
        yield Channel(producer.query, consumer.query, ChannelKind.NAMED, "")


def _named(producer: QueryEnds, known: set[str]) -> set[str]:
    text = producer.sink_options.get(FEEDS_OPTION, "")
    names = {name.strip() for name in text.split(",") if name.strip()}
    if not names <= known:
        raise ProgramError(
            f"option {FEEDS_OPTION} of query {producer.query!r}: {text!r} is not allowed; "
            f"use names of this job's queries, separated by commas: {', '.join(sorted(known))}"
        )
    return names


# --- directories -----------------------------------------------------------------------------------------------------


def _same_directory(producer: QueryEnds, consumer: QueryEnds, source: Source) -> bool:
    """Return whether the source reads the sink's directory.

    Raise ProgramError if the source reads the sink's files without the log that says which of them count.
    """
    written, read = producer.sink_options.get("path"), source.options.get("path")
    if written is None or read is None:
        return False
    written, read = _directory(written), _directory(read)
    if written == read:
        return True
    if _may_list(read, written):
        raise ProgramError(
            f"query {consumer.query!r} reads {read}, which takes in files of query {producer.query!r}'s sink past the "
            f"sink's own log, so a restart would count rows twice. Read {written} itself, or a separate directory."
        )
    return False


def _directory(path: str) -> str:
    """Return a local path as resolved, with links followed. Return a path of another file system unchanged."""
    scheme, separator, rest = path.partition(":")
    if separator and "/" not in scheme and scheme != "file":
        return path.rstrip("/")
    local = "/" + rest.lstrip("/") if separator and scheme == "file" else path
    return str(Path(local).absolute()) if _GLOB.search(local) else str(Path(local).resolve())


def _may_list(read: str, written: str) -> bool:
    """Return whether a listing of `read`, which may be a pattern, can contain files below `written`."""
    patterns, names = read.strip("/").split("/"), written.strip("/").split("/")
    try:
        return all(re.fullmatch(_expression(p), n) for p, n in zip(patterns, names, strict=False))
    except re.error:
        return False  # Hadoop does not accept this pattern either, so the query fails at its source


def _expression(pattern: str) -> str:
    """Return Hadoop's pattern for one part of a path as a regular expression."""
    if not _GLOB.search(pattern):
        return re.escape(pattern)
    parts = {"*": ".*", "?": ".", "{": "(?:", "}": ")", ",": "|", "[": "[", "]": "]", "-": "-", "^": "^"}
    return "".join(parts.get(each, re.escape(each)) for each in pattern)


# --- topics ----------------------------------------------------------------------------------------------------------


def _shared_topics(producer: QueryEnds, source: Source) -> set[str]:
    topic = producer.sink_options.get("topic")
    if topic is None or source.format.lower() != producer.sink_format.lower():
        return set()
    if not _may_be_one_cluster(producer.sink_options, source.options):
        return set()
    return {topic} if _subscribes(source.options, topic) else set()


def _may_be_one_cluster(one: Mapping[str, str], other: Mapping[str, str]) -> bool:
    servers = [_servers(options.get("kafka.bootstrap.servers", "")) for options in (one, other)]
    return not all(servers) or bool(servers[0] & servers[1])


def _servers(text: str) -> set[str]:
    return {server.strip().lower() for server in text.split(",") if server.strip()}


def _subscribes(options: Mapping[str, str], topic: str) -> bool:
    if (pattern := options.get("subscribepattern")) is not None:
        try:
            return re.fullmatch(pattern, topic) is not None
        except re.error:
            return True  # Python cannot read all of Java's expressions. Assume a match: it costs little time
    named = {name.strip() for key in ("subscribe", "topic") for name in options.get(key, "").split(",")}
    return topic in named | _assigned(options.get("assign", "{}"))


def _assigned(text: str) -> set[str]:
    try:
        return set(json.loads(text))
    except (ValueError, TypeError):
        return set()  # if the option is invalid JSON, Kafka's source refuses it when the query starts


# --- circles ---------------------------------------------------------------------------------------------------------


def _refuse_circles(channels: Sequence[Channel]) -> None:
    consumers: dict[str, set[str]] = {}
    for channel in channels:
        consumers.setdefault(channel.producer, set()).add(channel.consumer)
    for start in consumers:
        circle = _shortest_cycle(start, consumers)
        if circle:
            raise ProgramError(
                f"the queries feed each other in a circle: {' → '.join(circle)}. There is no consistent snapshot "
                "of such queries. Break the circle, or run its parts as separate jobs."
            )


def _shortest_cycle(start: str, consumers: Mapping[str, set[str]]) -> list[str]:
    """Return the shortest path from a query back to itself, with both ends, or an empty list if there is none."""
    ways = [[start]]
    seen: set[str] = set()
    while ways:
        way = ways.pop(0)
        for following in sorted(consumers.get(way[-1], ())):
            if following == start:
                return [*way, start]
            if following not in seen:
                seen.add(following)
                ways.append([*way, following])
    return []
