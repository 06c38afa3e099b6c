"""Strict parsing of the leader nodes that job managers write into ZooKeeper."""

from __future__ import annotations

import pytest

from checkpointing.ha.leadership import LeaderInformation
from monitoring.engine.zookeeper import NotAnAddress, Quorum, parse_leader

# The node of a leading Flink 2.3.0, taken from its ZooKeeper.
FLINK_2_3 = bytes.fromhex(
    "aced000577180016687474703a2f2f3132372e302e302e313a31383331307372000e6a6176612e7574696c2e55554944"
    "bc9903f7986d852f0200024a000c6c65617374536967426974734a000b6d6f7374536967426974737870"
    "ada31b63f0195d92309c402aa1824c19"
)
# The nodes of a Flink 1.20.5 and of its dispatcher, which is a leader without a REST address.
FLINK_1_20 = bytes.fromhex(
    "aced000577180016687474703a2f2f3132372e302e302e313a31383332307372000e6a6176612e7574696c2e55554944"
    "bc9903f7986d852f0200024a000c6c65617374536967426974734a000b6d6f7374536967426974737870"
    "9f3c527c75e4d59a7e25a26adddf4a98"
)
DISPATCHER = bytes.fromhex(
    "aced00057739003770656b6b6f2e7463703a2f2f666c696e6b403132372e302e302e313a31393332302f757365722f7270632f"
    "646973706174636865725f317372000e6a6176612e7574696c2e55554944bc9903f7986d852f0200024a000c6c65617374"
    "536967426974734a000b6d6f73745369674269747378709f3c527c75e4d59a7e25a26adddf4a98"
)


def java(address: str) -> bytes:
    text = address.encode()
    return b"\xac\xed\x00\x05" + b"w" + bytes([len(text) + 2]) + len(text).to_bytes(2, "big") + text + FLINK_2_3[30:]


def test_flinks_node() -> None:
    assert parse_leader(FLINK_2_3) == "http://127.0.0.1:18310"
    assert parse_leader(FLINK_1_20) == "http://127.0.0.1:18320"
    assert parse_leader(java("https://flink.internal/")) == "https://flink.internal"


def test_a_long_address_is_read_from_a_long_block() -> None:
    text = b"http://" + b"a" * 60 + b"." + b"b" * 60 + b"." + b"c" * 60 + b"." + b"d" * 60 + b".example/" + b"p" * 40
    block = len(text).to_bytes(2, "big") + text
    assert parse_leader(b"\xac\xed\x00\x05z" + len(block).to_bytes(4, "big") + block + FLINK_2_3[30:]) == text.decode()


def test_the_node_of_waymarks_job_manager() -> None:
    assert parse_leader(LeaderInformation("http://127.0.0.1:8081", "x").encode()) == "http://127.0.0.1:8081"


def test_a_leader_without_a_term_is_accepted() -> None:
    assert parse_leader(FLINK_2_3[:30] + b"p") == "http://127.0.0.1:18310"


@pytest.mark.parametrize("cut", range(len(FLINK_2_3)))
def test_a_truncated_node_has_no_leader(cut: int) -> None:
    with pytest.raises(NotAnAddress):
        parse_leader(FLINK_2_3[:cut])


@pytest.mark.parametrize(
    "data",
    [
        b"127.0.0.1",
        b"{}",
        b'{"address": 3}',
        b"{",
        FLINK_2_3 + b"x",
        FLINK_2_3.replace(b"java.util.UUID", b"java.util.Date"),
        FLINK_2_3.replace(b"\x00\x16http", b"\x00\x15http"),
        DISPATCHER,
        LeaderInformation("http://a/" + "x" * 500, "y").encode(),
        java("file:///etc/passwd"),
        java("http://user:pw@host"),
        b"\xac\xed\x00\x05" + b"s" + FLINK_2_3[31:],
    ],
)
def test_invalid_content_has_no_leader(data: bytes) -> None:
    with pytest.raises(NotAnAddress):
        parse_leader(data)


def test_the_paths_of_the_leader_nodes() -> None:
    quorum = Quorum("zk:2181", "/flink", "/demo")
    assert quorum.paths == ("/flink/demo/leader/rest_server/connection_info", "/flink/demo/leader/rest_server_lock")
    assert Quorum("zk:2181", "flink/", "demo").paths == quorum.paths
