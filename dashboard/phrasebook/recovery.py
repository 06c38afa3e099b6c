"""What reasons of recovery quote from parts of Waymark that still say it in sentences."""

# ruff: noqa: E501 - a sentence stands beside its own

from __future__ import annotations

ANSWERS_TO_RESTARTS = {
    "the cluster does not answer": "集群没有响应",
    "a restart is under way": "正在重启",
    "Stopping with a savepoint.": "正在以保存点停止。",
    "overtaken by another worker": "被另一个 worker 接手",
}
