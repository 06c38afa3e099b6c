"""What the engine room writes down, in English and Chinese: decisions, steps of restarts, refusals, schedules.

Between braces stands what another sentence fills in. It must say the same in both languages by itself, or be in here.
tests/dashboard/test_phrases.py finds sentences of the code that are missing.
"""

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
    "checkpoint {number} of run {run}, taken {at}": "运行 {run} 的检查点 {number}（生成于 {at}）",
    "savepoint {number} of run {run}, taken {at}": "运行 {run} 的保存点 {number}（生成于 {at}）",
    "checkpoint of run {run}, taken {at}": "运行 {run} 的检查点（生成于 {at}）",
    "savepoint of run {run}, taken {at}": "运行 {run} 的保存点（生成于 {at}）",
    "the savepoint that it is stopped with": "停止时生成的保存点",
    "{by} asked to restart from {state}.": "{by} 要求从 {state} 重启。",
    "{by} asked to clone {job}, from {state}.": "{by} 要求从 {state} 克隆 {job}。",
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
    "The engine was told {times} to start {id} and does not know it.": "已通知引擎（{times}）启动 {id}，但它不认识。",
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
    "The new run is {state}.": "新的运行为 {state}。",
    "The job is stopped with the savepoint to go on from.": "作业以将要继续的保存点停止。",
    "{path}: this cluster cannot check a state before it is used.": "{path}：此集群无法在使用之前检查状态。",
    "{path} has {size} bytes instead of {expected}": "{path} 有 {size} 字节，应为 {expected}",
    "{path} is missing": "缺少 {path}",
    "{path} is complete.": "{path} 完整。",
    "it is not valid": "无效",
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

REFUSALS = {
    "{job} is being restarted already: restart {epoch}, manual.": "{job} 已在重启：重启 {epoch}（手动）。",
    "{job} is being restarted already: restart {epoch}, automatic.": "{job} 已在重启：重启 {epoch}（自动）。",
    "{job} is being restarted already: another decision.": "{job} 已在重启：另一个决定。",
    "{job} is being restarted already: {which}.": "{job} 已在重启：{which}。",
    "launch.{field} is {value}: {allowed}.": "launch.{field} 为 {value}：{allowed}。",
    "path is {value}: {allowed}.": "路径为 {value}：{allowed}。",
    "name is {value}: {allowed}.": "名称为 {value}：{allowed}。",
    "state is {value}: {allowed}.": "状态为 {value}：{allowed}。",
    "cluster is {value}: {allowed}.": "集群为 {value}：{allowed}。",
    "savepoint is {value}: {allowed}.": "保存点为 {value}：{allowed}。",
    "managed_elsewhere is {value}: {allowed}.": "由他处管理（{value}）：{allowed}。",
    "not known": "未知",
    "the job does not run, so choose the savepoint to go on from": "作业未在运行，请选择继续所用的保存点",
    "a name of at most {most} characters is needed": "需要一个最多 {most} 个字符的名称",
    "a name that no job of {cluster} has is needed": "需要 {cluster} 上没有作业使用的名称",
    "that is who restarts this job": "该作业由它重启",
    "a cluster that answers is needed": "需要有响应的集群",
    "a savepoint of {job} is needed": "需要 {job} 的保存点",
    "a completed savepoint is needed": "需要已完成的保存点",
    "the path of a savepoint or retained checkpoint is needed": "需要保存点或保留的检查点的路径",
    "one of the states below is needed": "请选择下列状态之一",
    "a second job starts from a savepoint of this one": "第二个作业需从此作业的保存点启动",
    "Nothing was stopped. {why}": "没有停止任何东西。{why}",
    "The cluster did not take it: {answer}": "集群没有接收：{answer}",
    "a list of arguments is needed, the program first": "需要参数列表，程序在最前",
    "the program's absolute path is needed": "需要程序的绝对路径",
    "{savepoint} is needed in an argument: nothing is started empty": "某个参数中需要 {savepoint}：不会从空状态启动",
    "a command starts a job from a savepoint only, and there is none": "命令只能从保存点启动作业，而现在没有",
    "{program} is no program that this worker may run": "{program} 不是此 worker 可以运行的程序",
    "{program} could not be run: {error}": "无法运行 {program}：{error}",
    'The command ended well and printed no "JobID …": {said}': "命令正常结束，但没有输出“JobID …”：{said}",
    "{program} did not end within {time} s and was killed.": "{program} 在 {time} 秒内没有结束，已被终止。",
    "{program} ended with {code}: {said}": "{program} 以 {code} 结束：{said}",
    "an argument has at most {most} characters": "每个参数最多 {most} 个字符",
    "{found} means something to a shell, and there is none: give each argument by itself": (
        "{found} 对 shell 有特殊含义，而这里没有 shell：请逐个给出参数"
    ),
    "its braces do not match ({error}); write {{ and }} for braces": "花括号不匹配（{error}）；花括号请写作 {{ 和 }}",
    "there is no {name}; there are {known}": "没有 {name}；有 {known}",
    "it printed nothing": "没有输出",
    "the id of an uploaded program is needed": "需要已上传程序的标识",
    "a whole number from 1 is needed, or nothing": "需要从 1 起的整数，或留空",
    "a list of texts is needed": "需要文本列表",
    "keys and values are needed": "需要键和值",
    "one of {kinds} is needed": "需要 {kinds} 之一",
    "Waymark does not know how this job was started, so it cannot start it": "Waymark 不知道此作业如何启动，因此无法启动它",
    "The last such rule for everything stays; switch it off instead. Nothing was changed.": (
        "最后一条对全部生效的此类规则会保留；请改为关闭它。没有任何更改。"
    ),
    "Say why, for whoever finds it paused.": "请说明原因，以便他人看到暂停时了解。",
    "At most {most} characters; these are {count}.": "最多 {most} 个字符；现有 {count} 个。",
    "It has to end later than now; empty: until somebody ends it.": "结束时间必须晚于现在；留空则直到有人结束。",
    "The note has {count} characters: at most {most} are kept.": "备注有 {count} 个字符：最多保留 {most} 个。",
    "It is no completed savepoint (any more).": "它（已）不是完成的保存点。",
}

FLASHES = {
    "This incident is {state} already.": "此告警已是 {state}。",
    "open": "未处理",
    "acknowledged": "已确认",
    "snoozed": "已推迟",
    "resolved": "已解决",
    "Snapshot {id} is not one of this job.": "快照 {id} 不属于此作业。",
    "{count} questions wait already. Ask again when some are answered.": "已有 {count} 个问题在等待。请待部分得到回答后再问。",
    "The {window} is over already.": "{window} 已结束。",
    "maintenance of job {job}": "作业 {job} 的维护",
    "maintenance of cluster {cluster}": "集群 {cluster} 的维护",
    "maintenance of jobs with {labels}": "带 {labels} 的作业的维护",
    "job {job}": "作业 {job}",
    "cluster {cluster}": "集群 {cluster}",
    "jobs with {labels}": "带 {labels} 的作业",
    "tells the workers when to look": "告诉 worker 何时查看",
    "takes over when the other one dies": "另一个终止时接手",
    "{threads} threads, {taken} ticks since it started": "{threads} 个线程，启动以来 {taken} 次节拍",
    "WAYMARK_HISTORY_PIPELINE is off: long charts are made from the checkpoints themselves": (
        "WAYMARK_HISTORY_PIPELINE 已关闭：长时间图表直接由检查点生成"
    ),
    "the job {job} makes roll-ups of checkpoints": "作业 {job} 生成检查点的汇总",
    "in {time} ms": "耗时 {time} ms",
    "Start one: manage.py up, or celery beat.": "请启动一个：manage.py up，或 celery beat。",
    "Start one: manage.py up, or celery worker.": "请启动一个：manage.py up，或 celery worker。",
    "This message is {state}: there is nothing to try again.": "此消息为 {state}：没有可重试的。",
    "The account has a grant on exactly that. Take it away first.": "该账户对此已有授权。请先收回。",
    "{user} is the only administrator: nobody could manage Waymark any more.": "{user} 是唯一的管理员：否则将无人能管理 Waymark。",
    "{provider} does not answer. Try again later.": "{provider} 没有响应。请稍后再试。",
    "{provider} did not log you in: {error}.": "{provider} 未让您登录：{error}。",
    "What {provider} answered cannot be trusted. Try again.": "{provider} 的回答不可信。请重试。",
    "This account is not active. Ask an administrator.": "此账户未启用。请联系管理员。",
    "This token may read, not write. Make one that may write.": "此令牌只能读取，不能写入。请创建可写入的令牌。",
    "Only an administrator may do this. Ask one.": "只有管理员可以执行此操作。请联系管理员。",
    "Your account may look, not act. Ask an operator, or ask to become one.": "您的账户只能查看，不能操作。请联系操作员，或申请成为操作员。",
    "The answer is not of the provider that is configured here.": "该回答并非来自此处配置的提供方。",
    "You are in none of the groups that may use Waymark. Ask an administrator.": "您不在可使用 Waymark 的任何组中。请联系管理员。",
    "Choose at least one incident of the list.": "请至少选择列表中的一个告警。",
    "Acknowledged.": "已确认。",
    "Resolved.": "已解决。",
    "Snoozed until {until}.": "已推迟至 {until}。",
    "{name} is watched from now on. It did not answer yet.": "从现在起监控 {name}。它尚未响应。",
    "{name} is watched from now on: {found}.": "从现在起监控 {name}：{found}。",
    "Savepoint requested.": "已请求保存点。",
    "It has them already.": "它已有这些标签。",
    "It has none of them.": "它没有这些标签。",
    "No label any more.": "已没有标签。",
    "closed by hand.": "已手动关闭。",
}

SAVEPOINTS = {
    "No savepoint now: {reason}.": "现在不能创建保存点：{reason}。",
    "the job has never run": "作业从未运行",
    "a savepoint is already under way": "已有保存点正在创建",
    "the job is {state}, not RUNNING": "作业为 {state}，不是 RUNNING",
    "it waits for its turn: {cluster} takes {count} savepoint at once": "正在排队：{cluster} 同时只创建 {count} 个保存点",
    "it waits for its turn: {cluster} takes {count} savepoints at once": "正在排队：{cluster} 同时只创建 {count} 个保存点",
    "keeps the newest {count} and those of the last {age}": "保留最新的 {count} 个和最近 {age}内的",
    "keeps the newest {count}": "保留最新的 {count} 个",
    "keeps those of the last {age}": "保留最近 {age}内的",
    "keeps all": "全部保留",
    "the newest {count}": "最新的 {count} 个",
    "those of the last {age}": "最近 {age}内的",
    "number {place}, {age} old; the job {policy}": "第 {place} 个，已有 {age}；该作业{policy}",
    "the live run came from it": "当前运行由它恢复而来",
    "the newest good one": "最新的完好保存点",
    "taken by hand or by another tool: it goes only by hand": "由人工或其他工具创建：只能手动移除",
    "the job keeps all": "该作业全部保留",
    "it is still under way": "仍在进行",
    "the engine never heard of it": "引擎从未收到它",
    "to be sent again": "将重新发送",
    "The engine forgot the request, and no savepoint of it is in the job's history.": (
        "引擎已不记得该请求，作业历史中也没有对应的保存点。"
    ),
    "the engine forgot the request": "引擎已不记得该请求",
    "The engine answered with {path}, which is another savepoint's.": "引擎回答的是 {path}，那属于另一个保存点。",
    "The engine gave no reason.": "引擎未给出原因。",
    "Not completed in time: {why}.": "未按时完成：{why}。",
    "The cluster is gone, and in its storage: {error}": "集群已不存在，在其存储中：{error}",
    "The engine forgot the request; it is told again.": "引擎已不记得该请求；将重新通知。",
    "disposed of": "已移除",
    "There was nothing to remove: {why}": "没有可移除的内容：{why}",
    "could not be disposed of yet": "尚未能移除",
    "every {time}": "每 {time}",
    "no schedule": "没有计划",
    "a whole number of seconds from {least} to {most} is needed, or nothing for no schedule": (
        "需要 {least} 到 {most} 秒之间的整数，留空则没有计划"
    ),
    "the name of a time zone is needed, such as Europe/Berlin or UTC": "需要时区名称，例如 Europe/Berlin 或 UTC",
    "five fields are needed: {fields}": "需要五个字段：{fields}",
    "cron says: {error}": "cron 报告：{error}",
    "there is no such day within 50 years": "50 年内没有这样的日期",
}

INCIDENTS = {
    "Resolved after {time} by {by}: {why}": "由 {by} 解决，持续 {time}：{why}",
    "Resolved after {time}: {why}": "已解决，持续 {time}：{why}",
}

PHRASES = DECISIONS | STATES | STEPS | REFUSALS | FLASHES | SAVEPOINTS | INCIDENTS
