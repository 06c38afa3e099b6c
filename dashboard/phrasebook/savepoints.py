"""Schedules, retention and the ends of savepoints."""

# ruff: noqa: E501 - a sentence stands beside its own

from __future__ import annotations

SAVEPOINTS = {
    "No savepoint now: {reason}.": "现在不能创建保存点：{reason}。",
    "the job has never run": "作业从未运行",
    "the job has not been seen since {at}": "自 {at} 以来没有看到该作业",
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
    "run {number} came from it": "运行 {number} 由它恢复而来",
    "restart {epoch} starts from it": "重启 {epoch} 由它启动",
    "a run of another job came from it": "另一个作业的运行由它恢复而来",
    "another job is being started from it": "另一个作业正由它启动",
    "It is not removed now: {why}.": "现在不会移除它：{why}。",
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


IMPORTS = {
    "{location} does not exist, or is empty.": "{location} 不存在，或是空的。",
    "{location} is a checkpoint or savepoint. Start the job from it as from a savepoint.": (
        "{location} 是检查点或保存点。请把它当作保存点来启动作业。"
    ),
    "{location} belongs to a job of Waymark. Take a savepoint of that job, and start from the savepoint.": (
        "{location} 属于 Waymark 的作业。请为该作业创建保存点，并从保存点启动。"
    ),
    "{location} is no checkpoint location of Spark: it has no file 'metadata'.": (
        "{location} 不是 Spark 的检查点目录：其中没有文件 'metadata'。"
    ),
    "{location} has no committed batch. Start the job without it: there is no state yet.": (
        "{location} 没有已提交的批次。请不带它启动作业：还没有状态。"
    ),
    "{location} has offsets of batch {begun}, but the newest commit is of batch {batch}: commits are missing, and Spark "
    "could not go on from there either.": (
        "{location} 有批次 {begun} 的 offsets，但最新的提交是批次 {batch}：缺少提交，Spark 也无法从那里继续。"
    ),
    "{file} has the format {version}, which is not known here; {known} are. It is damaged, or of another version of "
    "Spark.": "{file} 的格式为 {version}，此处不认识；认识的是 {known}。它已损坏，或来自另一版本的 Spark。",
    "{location}/metadata is damaged: it does not name the query's id.": (
        "{location}/metadata 已损坏：其中没有查询的 ID。"
    ),
    "{location}: batch {batch}, the newest one, is not complete: {what}": "{location}：最新的批次 {batch} 不完整：{what}",
    "{location} changed while it was read: a query still runs there. Stop it, and import the location again.": (
        "{location} 在读取时发生了变化：仍有查询在那里运行。请停止它，然后重新导入该目录。"
    ),
    "{location} cannot be used: job {job} ({id}) continues its query and is {status}. Two jobs would damage each other's "
    "output. End that job first: {command}": (
        "{location} 无法使用：作业 {job}（{id}）正在延续其查询，状态为 {status}。两个作业会破坏彼此的输出。请先结束该作业：{command}"
    ),
    "Check what was found at the checkpoint location, then submit the job again.": (
        "请查看在检查点目录中找到的内容，然后再次提交作业。"
    ),
    "Check which queries write rows again, then submit the job again.": "请查看哪些查询会再次写入行，然后再次提交作业。",
    "Write NAME=LOCATION for each query.": "请为每个查询写 NAME=LOCATION。",
    "Query {query} has two locations.": "查询 {query} 有两个位置。",
    "{text} is not allowed; LOCATION or NAME=LOCATION is expected.": "不允许 {text}；应为 LOCATION 或 NAME=LOCATION。",
    "{text} is neither an absolute path nor an address (scheme://…).": "{text} 既不是绝对路径，也不是地址（scheme://…）。",
    "{location}: a password has no place in an address; put it into fsspec's configuration.": (
        "{location}：地址中不能有密码；请放入 fsspec 的配置。"
    ),
    "{location}: a file: address of another machine.": "{location}：另一台机器的 file: 地址。",
    "{location}: write scheme://…, with two slashes.": "{location}：请写 scheme://…，带两个斜杠。",
    "{location}: an address of storage has no '?', no '#' and no control character.": (
        "{location}：存储地址中不能有 '?'、'#' 和控制字符。"
    ),
    "{location}: empty, '.' and '..' are no names in a path of remote storage.": (
        "{location}：远程存储的路径中不能有空名称、'.' 和 '..'。"
    ),
}
