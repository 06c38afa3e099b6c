"""Whether Waymark itself sees: its verdict (monitoring/selfwatch/verdict.py), and what its periodic tasks are called."""

# ruff: noqa: E501 - a sentence stands beside its own

from __future__ import annotations

VERDICT = {
    "Waymark is blind: {problem}": "Waymark 无法监控：{problem}",
    "Waymark sees.": "Waymark 正常监控。",
    "Waymark sees: every part answers and every cluster is asked in time.": "Waymark 正常监控：各部分都有响应，每个集群都按时查询。",
    "The database does not answer: {why}.": "数据库没有响应：{why}。",
    "Redis does not answer: {why}.": "Redis 没有响应：{why}。",
    "No beat ticks, so nobody is told to look.": "没有 beat 在运行，因此没有触发任何查询。",
    "No worker takes ticks.": "没有 worker 处理任务。",
    "No worker takes ticks; {count} ticks wait.": "没有 worker 处理任务；{count} 个任务在等待。",
    "The task “{task}” has never come to its end.": "任务“{task}”从未执行完毕。",
    "The task “{task}” has never come to its end; it fails: {failure}.": "任务“{task}”从未执行完毕；执行失败：{failure}。",
    "The task “{task}” last came to its end {time} ago.": "任务“{task}”上次执行完毕是在 {time}前。",
    "The task “{task}” last came to its end {time} ago; it fails: {failure}.": "任务“{task}”上次执行完毕是在 {time}前；执行失败：{failure}。",
    "No cluster has been asked for {time}.": "已有 {time}没有查询任何集群。",
    "None of the {count} clusters answers; is this machine cut off from its network?": "{count} 个集群均没有响应；本机是否与网络断开？",
    "{count} of {all} clusters": "{all} 个集群中的 {count} 个",
    "{count} of {all} cluster": "{all} 个集群中的 {count} 个",
    "At the address of {clusters} another one answers.": "{clusters}的地址由其他集群响应。",
    "{clusters} has not been asked in time: the workers do not keep up.": "{clusters}未按时查询：worker 处理不过来。",
    "{clusters} have not been asked in time: the workers do not keep up.": "{clusters}未按时查询：worker 处理不过来。",
    "{clusters} gives no answer.": "{clusters}没有响应。",
    "{clusters} give no answer.": "{clusters}没有响应。",
    "This machine's clock is {time} ahead of the database's.": "本机时钟比数据库快 {time}。",
    "This machine's clock is {time} behind the database's.": "本机时钟比数据库慢 {time}。",
    "A notification has waited for {time} to be delivered.": "有通知已等待发送 {time}。",
    "{count} notification of the last day could not be delivered.": "最近一天有 {count} 条通知未能送达。",
    "{count} notifications of the last day could not be delivered.": "最近一天有 {count} 条通知未能送达。",
    "The history's roll-ups are not being made, so long charts take longer: {why}.": "没有生成历史汇总，因此长时间范围的图表会变慢：{why}。",
    "{count} file of the history's archive cannot be read: {problem}.": "历史归档中有 {count} 个文件无法读取：{problem}。",
    "{count} files of the history's archive cannot be read, one of them: {problem}.": "历史归档中有 {count} 个文件无法读取，其中之一：{problem}。",
}

TASKS = {
    "keep history pipeline": "维持历史汇总作业",
    "poll clusters": "轮询集群",
    "evaluate rules": "评估规则",
    "deliver notifications": "发送通知",
    "advance savepoints": "推进保存点",
    "advance recovery": "推进恢复",
    "answer state reads": "回答状态读取",
    "archive history": "归档历史",
    "ping dead man": "发送存活信号",
    "keep programs": "保留程序",
    "apply retention": "执行保留策略",
    "keep partitions": "维护分区",
}
