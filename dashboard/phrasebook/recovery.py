"""What reasons of recovery quote from parts of Waymark that still say it in sentences."""

# ruff: noqa: E501 - a sentence stands beside its own

from __future__ import annotations

ANSWERS_TO_RESTARTS = {
    "the cluster does not answer": "集群没有响应",
    "a restart is under way": "正在重启",
    "Stopping with a savepoint.": "正在以保存点停止。",
    "overtaken by another worker": "被另一个 worker 接手",
    "ZooKeeper still holds {job} for the next leader to start.": "ZooKeeper 仍保存着 {job}，下一个 leader 会启动它。",
    "ZooKeeper at {hosts} does not answer.": "位于 {hosts} 的 ZooKeeper 没有响应。",
    "Another cluster answers at {url}: it was {was}, and now is {now}. Nothing is concluded of its jobs until somebody "
    "confirms that this is the same cluster, rebuilt.": (
        "在 {url} 响应的是另一个集群：原为 {was}，现为 {now}。在有人确认这是重建后的同一集群之前，不对其作业下任何结论。"
    ),
}
