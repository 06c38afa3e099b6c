"""Schedules, retention and the ends of savepoints."""

# ruff: noqa: E501 - a sentence stands beside its own

from __future__ import annotations

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
