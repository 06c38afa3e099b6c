"""What Waymark's own parts say of their work: periodic tasks, readers of state, the history's pipeline and its archive."""

# ruff: noqa: E501 - a sentence stands beside its own

from __future__ import annotations

WORK = {
    "Restarts: {done}.": "重启：{done}。",
    "{count} succeeded": "{count} 个成功",
}

# Names of the rules that every installation starts with, as they are stored.
RULES = {
    "Failed checkpoints": "检查点失败",
    "No completed checkpoint": "没有完成的检查点",
    "Cluster unreachable": "集群没有响应",
    "Another cluster answers": "由另一个集群响应",
    "Waymark itself blind": "Waymark 自身无法观察",
}
