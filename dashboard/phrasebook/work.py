"""What Waymark's own parts say of their work: periodic tasks, readers of state, the history's pipeline and its archive."""

# ruff: noqa: E501 - a sentence stands beside its own

from __future__ import annotations

WORK = {
    "{cluster} does not answer: {why}": "{cluster} 没有响应：{why}",
    "{cluster}: another poll took over; this one's answer was dropped.": "{cluster}：另一次轮询已接手，本次响应已丢弃。",
    "{count} checkpoints not seen: the engine had dropped them": "{count} 个检查点未见到：引擎已将其丢弃",
    "{count} checkpoint not seen: the engine had dropped them": "{count} 个检查点未见到：引擎已将其丢弃",
    "{count} savepoints found that others took": "发现他人创建的 {count} 个保存点",
    "{count} savepoint found that others took": "发现他人创建的 {count} 个保存点",
    "No rule was due.": "没有到期的规则。",
    "No incident changed; {looked}.": "没有告警变化；{looked}。",
    "Incidents: {changes}; no rule was due.": "告警：{changes}；没有到期的规则。",
    "{looked}; incidents: {changes}.": "{looked}；告警：{changes}。",
    "{count} rules evaluated": "评估了 {count} 条规则",
    "{count} rule evaluated": "评估了 {count} 条规则",
    "{looked}; {count} frozen, their cluster does not answer": "{looked}；{count} 条已冻结，其集群没有响应",
    "{count} opened": "新增 {count} 个",
    "{count} changed": "变化 {count} 个",
    "{count} resolved": "解决 {count} 个",
    "No notification was due.": "没有到期的通知。",
    "Notifications: {done}.": "通知：{done}。",
    "{count} sent": "{count} 条已发送",
    "{count} again": "{count} 条将重试",
    "{count} given up": "{count} 条已放弃",
    "No savepoint was due.": "没有到期的保存点。",
    "Savepoints: {done}.": "保存点：{done}。",
    "{count} found in the history": "{count} 个已在历史中找到",
    "{count} completed": "{count} 个已完成",
    "{count} requested": "{count} 个已请求",
    "{count} failed": "{count} 个失败",
    "Restarts: {done}.": "重启：{done}。",
    "{count} succeeded": "{count} 个成功",
    "{count} checkpoints failed": "{count} 个检查点失败",
    "{count} checkpoint failed": "{count} 个检查点失败",
    "Retention: {gone} let go.": "保留策略：已移除 {gone}。",
    "{count} savepoints": "{count} 个保存点",
    "{count} savepoint": "{count} 个保存点",
    "{count} messages": "{count} 条消息",
    "{count} message": "{count} 条消息",
    "{count} programs": "{count} 个程序",
    "{count} program": "{count} 个程序",
    "{count} programs copied.": "已复制 {count} 个程序。",
    "{count} program copied.": "已复制 {count} 个程序。",
    "Partitions made ahead: {names}.": "已预先创建分区：{names}。",
    "Partitions made: {names}.": "已创建分区：{names}。",
    "The dead man's switch is not pinged. {why}": "没有向外部看门狗报活。{why}",
}

# Names of the rules that every installation starts with, as they are stored.
RULES = {
    "Failed checkpoints": "检查点失败",
    "No completed checkpoint": "没有完成的检查点",
    "Cluster unreachable": "集群没有响应",
    "Another cluster answers": "由另一个集群响应",
    "Waymark itself blind": "Waymark 自身无法观察",
}

# How "checkpoint 41 …" goes on: monitoring/alerts/failure_reason.py.
FAILURES = {
    "expired before completing": "在完成前超时",
    "was declined": "被拒绝",
    "failed in a task's asynchronous part": "在任务的异步阶段失败",
    "could not be finalized": "无法最终确认",
    "could not be triggered: I/O problem": "无法触发：I/O 问题",
    "could not be triggered": "无法触发",
    "was overtaken by a newer one": "被更新的检查点取代",
    "found tasks that were not running": "有任务未在运行",
    "was aborted because a task failed": "因任务失败而中止",
    "failed in a task": "在任务中失败",
    "was aborted by a restart of the job": "因作业重启而中止",
    "was aborted because the job stopped or restarted": "因作业停止或重启而中止",
    "was aborted because the job ended": "因作业结束而中止",
    "failed for a reason the engine did not give": "失败，引擎未给出原因",
    "failed: {why}": "失败：{why}",
}

STATE_READS = {
    "State of {snapshot} of {job}: answered.": "{job} 的 {snapshot} 的状态：已回答。",
    "State of {snapshot} of {job}: {problem}.": "{job} 的 {snapshot} 的状态：{problem}。",
    "The worker that read it is gone. Ask again.": "读取它的 worker 已不在。请重新询问。",
    "It took longer than {time} s and was given up. Ask for less of it.": "用时超过 {time} 秒，已放弃。请缩小范围。",
    "The answer has {size} bytes, {most} at most are shown. Ask for fewer rows.": (
        "结果有 {size} 字节，最多显示 {most} 字节。请减少行数。"
    ),
    "The answer cannot be read: it is no JSON.": "无法读取结果：不是 JSON。",
    "The reader ended without a word.": "读取程序没有任何输出就结束了。",
}

PIPELINE = {
    "No change of the history's pipeline: {why}": "历史流水线没有变化：{why}",
    "No change of the history's pipeline: {why}.": "历史流水线没有变化：{why}。",
    "the job manager does not answer": "作业管理器没有响应",
    "it is switched off": "已关闭",
    "bringing it back is recovery's": "由自动恢复负责重启",
    "it is being stopped": "正在停止",
    "it is as it should be": "一切正常",
    "its restart {epoch} came to nothing: {why}": "其重启 {epoch} 没有成功：{why}",
    "it was never started": "从未启动",
    "it is {state} and {pause}": "状态为 {state}，且{pause}",
    "it is {state}: {why}": "状态为 {state}：{why}",
    "{name} was submitted.": "{name} 已提交。",
    "No start of {name}: it runs already and is seen with the next poll.": "未启动 {name}：它已在运行，下次轮询时可见。",
    "No start of {name} yet: {others} is starting.": "暂未启动 {name}：{others} 正在启动。",
    "{name} is {state}, and WAYMARK_HISTORY_PIPELINE wants it to run.": "{name} 为 {state}，而 WAYMARK_HISTORY_PIPELINE 要求其运行。",
    "{name} is stopped with a savepoint and goes on from it with the program of this version.": (
        "{name} 以保存点停止，并将用此版本的程序从该保存点继续。"
    ),
    "{name} is cancelled: WAYMARK_HISTORY_PIPELINE is off.": "{name} 已取消：WAYMARK_HISTORY_PIPELINE 已关闭。",
    "start the history's new program": "启动历史流水线的新程序",
}

ARCHIVE = {
    "No archiving: another process does it.": "未归档：另一个进程正在归档。",
    "{what} cannot be archived yet. {why}": "{what} 尚不能归档。{why}",
    "{what} is being archived: {step} is next.": "{what} 正在归档：下一步 {step}。",
    "{what} is archived anew where it changed: {why}.": "{what} 有变化之处将重新归档：{why}。",
    "{what} waits for whoever reads its tables.": "{what} 正在等待读取其表的进程。",
    "Archived {what}. There was no partition of {missing}.": "已归档 {what}。没有 {missing} 的分区。",
    "Archived {what}.": "已归档 {what}。",
    "it ended without a word": "进程没有任何输出就结束了",
    "it is missing": "文件不存在",
    "{path}: it is missing": "{path}：文件不存在",
    "it has {size} bytes, not {expected}": "大小为 {size} 字节，应为 {expected} 字节",
    "{path}: it has {size} bytes, not {expected}": "{path}：大小为 {size} 字节，应为 {expected} 字节",
    "it has another content than was written": "内容与写入时不同",
    "{path}: it has another content than was written": "{path}：内容与写入时不同",
    "Removed {count} files of the archive that are older than {days} days.": "已移除 {count} 个超过 {days} 天的归档文件。",
    "Merged small files of the archive, {count} times.": "已合并归档的小文件 {count} 次。",
    "{count} of its checkpoints may still change, of job {job} for one.": "其中 {count} 个检查点仍可能变化，例如作业 {job} 的。",
    "The history pipeline, which makes roll-ups of it first, has not run yet.": "须先生成汇总的历史流水线尚未运行。",
    "The history pipeline has not run since PostgreSQL was restored on another server.": (
        "自 PostgreSQL 在另一台服务器上恢复以来，历史流水线尚未运行。"
    ),
    "The history pipeline has not come to all of its changes; it is behind, or not running.": (
        "历史流水线尚未处理其全部变化：它落后了，或没有运行。"
    ),
    "The roll-ups of {count} days of jobs do not tell as many checkpoints as there are; start the history pipeline without "
    "state, so that they are made anew.": (
        "{count} 个作业日的汇总与实际检查点数不符；请不带状态启动历史流水线，以便重新生成。"
    ),
}
