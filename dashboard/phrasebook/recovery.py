"""What is decided of dead jobs, from which state they go on, and the steps of restarts."""

# ruff: noqa: E501 - a sentence stands beside its own

from __future__ import annotations

DECISIONS = {
    "its run is not dead by the engine's word": "引擎并未确认其运行已终止",
    "automatic restart is off": "自动重启已关闭",
    "a restart is under way": "正在重启",
    "the cluster does not answer": "集群没有响应",
    "it was restarted, and its new run has not been polled yet": "它已重启，新的运行尚未被轮询到",
    "it has been dead for too short a time to be sure": "终止时间太短，还不能确定",
    "its last checkpoints are still being read": "仍在读取其最后的检查点",
    "Waymark does not know how it was started": "Waymark 不知道它是如何启动的",
    "a restore would write rows a second time, and execution.sinks.after-restore leaves that to you": (
        "恢复会使部分行被再次写入，而 execution.sinks.after-restore 将此留给您决定"
    ),
    "the engine, which answers, does not know it any more, and its automation leaves that to you": (
        "引擎有响应但已不认识它，按其自动化设置由您处理"
    ),
    "{jobs} jobs of its cluster died within {time} of each other, which is the cluster and not the jobs; it is held "
    "until {until}": "其集群的 {jobs} 个作业在 {time}内相继终止，问题在集群而不在作业；暂缓至 {until}",
    "its breaker is open since {since}, {reason}; close it to go on": "其熔断器自 {since} 起断开（{reason}）；闭合后才会继续",
    "its budget of {count} restarts an hour is used up": "每小时 {count} 次重启的额度已用尽",
    "its budget of {count} restarts a day is used up": "每天 {count} 次重启的额度已用尽",
    "restart {number} within an hour waits until {until}": "一小时内的第 {number} 次重启等到 {until}",
    "{job} is FAILED since {since}: {cause}.": "{job} 自 {since} 起为 FAILED：{cause}。",
    "{job} is FAILED since {since}.": "{job} 自 {since} 起为 FAILED。",
    "{job} is no longer known to the engine, which answers since {since}.": "{job} 自 {since} 起不再为引擎所知，而引擎有响应。",
    "no longer known to the engine, which answers": "不再为引擎所知，而引擎有响应",
    "the job is managed elsewhere ({who})": "该作业由他处管理（{who}）",
    "its automation is paused until {until}": "其自动化已暂停，至 {until}",
    "its automation is paused": "其自动化已暂停",
    "the automation of everything is paused until {until} by {who}: {reason}": "全部自动化已由 {who} 暂停，至 {until}：{reason}",
    "the automation of everything is paused by {who}: {reason}": "全部自动化已由 {who} 暂停：{reason}",
    "the automation of {cluster} is paused until {until} by {who}: {reason}": "{cluster} 的自动化已由 {who} 暂停，至 {until}：{reason}",
    "the automation of {cluster} is paused by {who}: {reason}": "{cluster} 的自动化已由 {who} 暂停：{reason}",
    "The pause of {name} is over.": "{name} 的暂停已结束。",
    "{jobs} back again.": "{jobs} 已恢复。",
    "No job is dead.": "没有终止的作业。",
    "No restart now:": "现在没有重启：",
    "No restart now: {left}": "现在没有重启：{left}",
    "The breaker of {job} opened: {reason}.": "{job} 的熔断器已断开：{reason}。",
    "{job} needs a person: {reason}.": "{job} 需要人工处理：{reason}。",
    "{job} is left: {reason}.": "{job} 暂不处理：{reason}。",
    " It died of {cause}.": "终止原因：{cause}。",
    "{job} is dead and is not restarted: {why}. It died of {cause}.": "{job} 已终止且未重启：{why}。终止原因：{cause}。",
    "{job} is dead and is not restarted: {why}.": "{job} 已终止且未重启：{why}。",
    "Restart {epoch} of {job} decided: {reason}": "已决定 {job} 的重启 {epoch}：{reason}",
    "Restart {epoch} of {job} failed: {why}": "{job} 的重启 {epoch} 失败：{why}",
    "the job is back.": "作业已恢复。",
    "the job is {state}.": "作业状态为 {state}。",
}

STATES = {
    "the engine calls it invalid, without a reason": "引擎判定其无效，但未给出原因",
    "checkpoint {number} of run {run}, taken {at}": "运行 {run} 的检查点 {number}（生成于 {at}）",
    "savepoint {number} of run {run}, taken {at}": "运行 {run} 的保存点 {number}（生成于 {at}）",
    "checkpoint of run {run}, taken {at}": "运行 {run} 的检查点（生成于 {at}）",
    "savepoint of run {run}, taken {at}": "运行 {run} 的保存点（生成于 {at}）",
    "checkpoint {number} of run {run}": "运行 {run} 的检查点 {number}",
    "savepoint {number} of run {run}": "运行 {run} 的保存点 {number}",
    "the savepoint that it is stopped with": "停止时生成的保存点",
    "{by} asked to restart from {state}.": "{by} 要求从 {state} 重启。",
    "{by} asked to clone {job}, from {state}.": "{by} 要求从 {state} 克隆 {job}。",
    "{by} asked to run {job} again, from {state}.": "{by} 要求从 {state} 再次运行 {job}。",
    "{by} submitted {job}, to start from {state}.": "{by} 提交了 {job}，从 {state} 启动。",
    "an empty state": "空状态",
    "The schedule asked, for {time},": "计划（{time}）",
    "an empty state, since no run of it has had a batch": "空状态（其运行从未有过批次）",
    "The job has no state: no run of it has had a batch.": "作业没有状态：其运行从未有过批次。",
    "The run that was due at {time} was not started: {why}": "应于 {time} 开始的运行未启动：{why}",
    "The run that was due at {time} waits: {why}": "应于 {time} 开始的运行正在等待：{why}",
    "{by} asked to rescale it from {was} to {now} ({note}), from {state}.": (
        "{by} 要求把并行度从 {was} 改为 {now}（{note}），自 {state} 继续。"
    ),
    "{by} asked to start it with another {what} ({note}), from {state}.": (
        "{by} 要求以不同的 {what} 启动（{note}），自 {state} 继续。"
    ),
    "{by} asked to start it anew ({note}), from {state}.": "{by} 要求重新启动（{note}），自 {state} 继续。",
    "{by} asked to rescale it from {was} to {now}, from {state}.": "{by} 要求把并行度从 {was} 改为 {now}，自 {state} 继续。",
    "{by} asked to start it with another {what}, from {state}.": "{by} 要求以不同的 {what} 启动，自 {state} 继续。",
    "{by} asked to start it anew, from {state}.": "{by} 要求重新启动，自 {state} 继续。",
    "{by} asked to {what}, from {state}.": "{by} 要求：{what}；自 {state} 继续。",
    "rescale it from {was} to {now}": "把并行度从 {was} 改为 {now}",
    "start it with another {what}": "以不同的 {what} 启动",
    "start it anew": "重新启动",
    "the default": "默认值",
    "What restart {epoch} changed does not start, so the job is started as it was, from the same state.": (
        "重启 {epoch} 所做的更改无法启动，因此作业按原样从同一状态启动。"
    ),
}

STEPS = {
    "The job starts without state.": "作业不带状态启动。",
    "The state is being copied. The checkpoint location stays as it is.": "正在复制状态。检查点目录保持原样。",
    "The cluster has lost the copy, so it is made again.": "集群丢失了副本，因此重新复制。",
    "Copied to savepoint {path}. The checkpoint location stays as it is.": "已复制到保存点 {path}。检查点目录保持原样。",
    "The checkpoint location cannot be imported: {why}": "无法导入检查点目录：{why}",
    "the cluster cannot import checkpoint locations. Only Waymark's job manager can.": (
        "该集群不能导入检查点目录，只有 Waymark 的作业管理器可以。"
    ),
    "Run {run} ended at {at}.": "运行 {run} 结束于 {at}。",
    "Given up after its time was over; last: {text}": "已超时而放弃；最后：{text}",
    "overtaken by another worker": "被另一个 worker 接手",
    "The job came back by itself and died again. Nothing was started; that is decided anew.": (
        "作业自行恢复后再次终止。没有启动任何东西；将重新决定。"
    ),
    "Nothing was started: {why}.": "没有启动任何东西：{why}。",
    "It is started by a command.": "它由命令启动。",
    "{program} is on the cluster.": "{program} 在集群上。",
    "The cluster takes no programs (Flink: web.submit.enable): {answer}": "集群不接收程序（Flink：web.submit.enable）：{answer}",
    "{program} is not on the cluster, and Waymark keeps no copy of it. Upload the program again.": (
        "{program} 不在集群上，Waymark 也没有副本。请重新上传程序。"
    ),
    "{program} is not on the cluster any more; Waymark has a copy.": "{program} 已不在集群上；Waymark 有副本。",
    "{damage} Upload the program again.": "{damage} 请重新上传程序。",
    "{program} is on the cluster again, as {id}.": "{program} 已重新放到集群上，标识为 {id}。",
    "The cluster does not take the program: {answer}": "集群不接收该程序：{answer}",
    "The job has just FAILED by itself, which may be taken back: that is waited for.": "作业刚刚自行 FAILED，可能会被撤回：正在等待。",
    "The job has ended, but may be taken up again: {why}": "作业已结束，但可能被重新接管：{why}",
    "The job has ended, but the next leader may take it up again: this Flink is highly available ({kind}), and its store "
    "of jobs cannot be looked into. That is waited for until {until}.": (
        "作业已结束，但下一个 leader 可能重新接管它：此 Flink 启用了高可用（{kind}），且无法查看其作业存储。等待至 {until}。"
    ),
    "ZooKeeper still holds {job} for the next leader to start.": "ZooKeeper 仍保存着 {job}，下一个 leader 会启动它。",
    "ZooKeeper at {hosts} does not answer.": "位于 {hosts} 的 ZooKeeper 没有响应。",
    "The job lives: {id} is {state}. Nothing was started.": "作业仍在：{id} 为 {state}。没有启动任何东西。",
    "Another life of this job, {id}, is {state}. It was not stopped, nothing was started.": (
        "此作业的另一次运行 {id} 为 {state}。没有停止它，也没有启动任何东西。"
    ),
    "Another life of this job, {id}, was started meanwhile and is {state}. Nothing was started.": (
        "此作业的另一次运行 {id} 在此期间已启动，现为 {state}。没有启动任何东西。"
    ),
    "The job is not running.": "作业未在运行。",
    "Stopped; what it had is saved at {path}.": "已停止；其状态保存在 {path}。",
    "Stopped.": "已停止。",
    "The job ended before it could be stopped with a savepoint. Nothing was started; choose a state.": (
        "作业在能够以保存点停止之前就已结束。没有启动任何东西；请选择一个状态。"
    ),
    "The job ended and its savepoint failed: {failure} Nothing was started; choose a state.": (
        "作业已结束，其保存点失败：{failure} 没有启动任何东西；请选择一个状态。"
    ),
    "The job has stopped; its savepoint is about to be known.": "作业已停止；其保存点即将得知。",
    "Stopped; it goes on from {path}.": "已停止；将从 {path} 继续。",
    "Cancelling; the job is {state}.": "正在取消；作业为 {state}。",
    "The savepoint on stop failed, so the job goes on: {failure}": "停止时的保存点失败，因此作业继续运行：{failure}",
    "Stopping with a savepoint; the job is {state}.": "正在以保存点停止；作业为 {state}。",
    "Its savepoint is complete; cancelling, which leaves its checkpoints. The job is {state}.": "其保存点已完成；正在取消，这样会保留其检查点。作业为 {state}。",
    "Taking a savepoint before the job is cancelled; it is {state}.": "取消作业之前先创建保存点；作业为 {state}。",
    "Taking a savepoint before the job is cancelled.": "取消作业之前先创建保存点。",
    "{path} is not there any more, so the job goes on: {why}": "{path} 已不存在，因此作业继续运行：{why}",
    "The job cannot be stopped with a savepoint yet: {reason}.": "还不能以保存点停止作业：{reason}。",
    "Stopping with a savepoint.": "正在以保存点停止。",
    "There is no state to restore, and a job is never started empty.": "没有可恢复的状态，而作业绝不会从空状态启动。",
    "Started as {id} {how}.": "已以 {id} 启动（{how}）。",
    "from {path}": "从 {path}",
    "without a state": "不带状态",
    "A life of this job, {id}, is {state} already. Nothing was started.": "此作业已有一次运行 {id} 为 {state}。没有启动任何东西。",
    "The program is not on the cluster any more: {answer}": "程序已不在集群上：{answer}",
    "The engine is looked at for {id}: {answer}": "正在引擎中查找 {id}：{answer}",
    "The engine does not start it {how}: {why}": "引擎没有启动它（{how}）：{why}",
    "The cluster lost the program {count} times before it could be started.": "在启动之前集群已 {count} 次丢失程序。",
    "{what} {times}, and the engine does not know {id}.": "{what}（{times}），但引擎不认识 {id}。",
    "The launch command was run": "启动命令已运行",
    "The start was requested": "已请求启动",
    "The launch command was not run: {why}.": "启动命令没有运行：{why}。",
    "once": "1 次",
    "{count} times": "{count} 次",
    "The engine does not know {id} yet.": "引擎还不认识 {id}。",
    "Another cluster answers at {url}: it was {was}, and now is {now}. Nothing is concluded of its jobs until somebody "
    "confirms that this is the same cluster, rebuilt.": (
        "在 {url} 响应的是另一个集群：原为 {was}，现为 {now}。在有人确认这是重建后的同一集群之前，不对其作业下任何结论。"
    ),
    "The engine does not name {id}.": "引擎没有列出 {id}。",
    "The new run is RUNNING, but {count} of its operators are not yet.": "新的运行为 RUNNING，但其 {count} 个算子尚未就绪。",
    "The new run is RUNNING, but {names} is not yet.": "新的运行为 RUNNING，但 {names} 尚未就绪。",
    "the engine gives no reason.": "引擎未给出原因。",
    "The new run is {state}; it is about to be read for the first time.": "新的运行为 {state}；即将首次读取。",
    "The new run is {state}: {failure}": "新的运行为 {state}：{failure}",
    "The new run is {state}, and its Python environment is being prepared.": (
        "新的运行为 {state}，正在准备其 Python 环境。"
    ),
    "The new run is {state} and waits for its turn to start.": "新的运行为 {state}，正在等待轮到其启动。",
    "The new run is {state}.": "新的运行为 {state}。",
    "The job is stopped with the savepoint to go on from.": "作业以将要继续的保存点停止。",
    "{path}: this cluster cannot check a state before it is used.": "{path}：此集群无法在使用之前检查状态。",
    "{place} could not be looked at within {seconds} s: its storage does not answer": "在 {seconds} 秒内无法查看 {place}：其存储没有响应",
    "{place} could not be looked at within {seconds} s: its storage does not answer.": "在 {seconds} 秒内无法查看 {place}：其存储没有响应。",
    "{why}; it is used unchecked.": "{why}；将不经检查直接使用。",
    "{path} has {size} bytes instead of {expected}": "{path} 有 {size} 字节，应为 {expected}",
    "{path} is missing": "缺少 {path}",
    "{path} is complete.": "{path} 完整。",
    "{path} cannot be restored: {why}.": "无法恢复 {path}：{why}。",
    "No state can be restored; the job allows to be started empty.": "没有状态可以恢复；该作业允许从空状态启动。",
    "it was {age} old when the job died, and the job allows {allowed}": "作业终止时它已有 {age}，而该作业允许 {allowed}",
    "There is no savepoint or retained checkpoint to restore from, and a job is never started empty.": (
        "没有可用于恢复的保存点或保留的检查点，而作业绝不会从空状态启动。"
    ),
    "The only state could not be restored, and a job is never started empty; the last: {why}": (
        "唯一的状态无法恢复，而作业绝不会从空状态启动；最后：{why}"
    ),
    "None of the {count} states could be restored, and a job is never started empty; the last: {why}": (
        "{count} 个状态均无法恢复，而作业绝不会从空状态启动；最后：{why}"
    ),
    "Canceled by {by}.": "已由 {by} 取消。",
}
