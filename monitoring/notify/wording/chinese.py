"""What an incident found, in Chinese: from its kind and its evidence, the same numbers that the English sentence has.

What an engine said (an exception, a reason of failure) stays in its own words. Evidence that is of an older or newer
Waymark may lack something: then the English sentence is used.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

from monitoring.alerts.kinds.base import Unit
from monitoring.durations import in_chinese


def sentence_of(kind: str, subject: str, evidence: Mapping[str, Any], lasted_s: float | None = None) -> str:
    """Of one that is over also how long it lasted. "" where it cannot be said."""
    over = "" if lasted_s is None else f"已恢复，持续 {length_of(lasted_s)}。"
    if kind == "test":
        return "这是渠道测试消息：没有发生任何事情。"
    if lasted_s is not None and (ended := _ended_otherwise(evidence)):
        return f"{subject} 的告警{ended}，持续 {length_of(lasted_s)}。"
    say = _SENTENCES.get(kind)
    if say is None:
        return ""
    try:
        found = say(subject, evidence)
    except (KeyError, TypeError, ValueError):
        return ""
    return f"{over}{subject} 状态反复波动。{found}" if evidence.get("flapping") else over + found


def length_of(seconds: float) -> str:
    return in_chinese(Unit.SECONDS.text(seconds))


def _ended_otherwise(evidence: Mapping[str, Any]) -> str:
    """By a person, or because its rule or cluster was removed; "" where the trouble itself went away."""
    if "resolved_by" in evidence:
        note = f"（{evidence['note']}）" if evidence.get("note") else ""
        return f"已由 {evidence['resolved_by']} 手动解决{note}"
    if evidence.get("cluster") == "removed":
        return "因集群已被移除而解除"
    return _RULES_GONE.get(str(evidence.get("rule", "")), "")


_RULES_GONE = {
    "off": "因规则已关闭而解除",
    "removed": "因规则已移除而解除",
    "elsewhere": "因规则不再适用于此作业而解除",
}


def milliseconds(value: float) -> str:
    return in_chinese(Unit.MILLISECONDS.text(value))


def _moment(text: str) -> str:
    return f"{datetime.fromisoformat(text):%Y-%m-%d %H:%M:%S} UTC"


def _ids(evidence: Mapping[str, Any]) -> str:
    ids = evidence.get("checkpoint_ids") or []
    return f"，最近一次为检查点 {ids[0]}" if ids else ""


def _failed_in_window(job: str, e: Mapping[str, Any]) -> str:
    return f"{job} 在 {length_of(e['window_s'])}内有 {e['count']} 个检查点失败（阈值 {e['threshold']}）{_ids(e)}。"


def _failed_in_total(job: str, e: Mapping[str, Any]) -> str:
    since = f"自 {e['since']} 起" if e["since"] else ""
    return f"{job} {since}共有 {e['count']} 个检查点失败（阈值 {e['threshold']}）。"


def _consecutive(job: str, e: Mapping[str, Any]) -> str:
    return f"{job} 连续 {e['count']} 个检查点失败（阈值 {e['threshold']}）{_ids(e)}。"


def _figure(phrase: str, text: Callable[[float], str]) -> Callable[[str, Mapping[str, Any]], str]:
    def say(job: str, e: Mapping[str, Any]) -> str:
        return f"{job} 的检查点 {e['checkpoint_id']} {phrase} {text(e['value'])}（阈值 {text(e['threshold'])}）。"

    return say


def _no_completed(job: str, e: Mapping[str, Any]) -> str:
    if e["run_started_at"] is None:
        return f"{job} 未在运行。"
    last, began = e["last_completed_at"], e["run_started_at"]
    limit = f"（上限 {length_of(e['limit_s'])}）"
    if last is None or last < began:
        return f"{job} 自 {_moment(began)} 启动以来没有完成任何检查点{limit}。"
    return f"{job} 自 {_moment(last)} 的检查点 {e['last_checkpoint_id']} 之后没有完成任何检查点{limit}。"


def _relative(phrase: str, column: str, text: Callable[[float], str]) -> Callable[[str, Mapping[str, Any]], str]:
    def say(job: str, e: Mapping[str, Any]) -> str:
        if column not in e:
            return f"{job} 还没有可比较的 p95。"
        floor = f"，不足 {text(e['least_ms'])} 时按此计算" if e.get("least_ms") else ""
        over = f"此前 {e['weeks']} 周同一时段 p95" if e.get("weeks") else f"{e['days']} 天 p95"
        return (
            f"{job} 的检查点 {e['checkpoint_id']} {phrase} {text(e[column])}，是 {over}"
            f"（{text(e['p95'])}{floor}）的 {e['value_percent']:.0f} %（阈值 {e['threshold_percent']} %）。"
        )

    return say


def _growth(job: str, e: Mapping[str, Any]) -> str:
    older, newer = e["checkpoint_ids"]
    grown, limit = Unit.BYTES.text(e["growth"]), Unit.BYTES.text(e["threshold"])
    return f"{job} 的状态在一天内增长了 {grown}（检查点 {older} 到 {newer}，阈值 {limit}）。"


def _savepoint_failed(job: str, e: Mapping[str, Any]) -> str:
    return f"{job} 连续 {e['count']} 个保存点失败（阈值 {e['threshold']}）。"


def _savepoint_too_old(job: str, e: Mapping[str, Any]) -> str:
    limit = f"（上限 {length_of(e['threshold_s'])}）"
    if e["completed_at"] is None:
        return f"{job} 没有保存点{limit}。"
    return f"{job} 最新的保存点完成于 {_moment(e['completed_at'])}{limit}。"


def _run_missed(job: str, e: Mapping[str, Any]) -> str:
    if e["due_at"] is None:
        return f"{job} 已按计划运行。"
    due = f"{job} 应于 {_moment(e['due_at'])} 运行"
    limit = f"（上限 {length_of(e['threshold_s'])}）"
    if e["run"] is None:
        return f"{due}，但没有运行{limit}。"
    if e["failed"]:
        return f"{due}，但第 {e['run']} 次运行失败{limit}。"
    return f"{due}，但尚未完成：第 {e['run']} 次运行仍在进行{limit}。"


def _data_loss(job: str, e: Mapping[str, Any]) -> str:
    if e["last_completed_at"] is None:
        return f"{job} 没有任何状态。"
    return (
        f"{job} 最新的状态完成于 {_moment(e['last_completed_at'])}，而数据源只保留 "
        f"{length_of(e['source_keeps_s'])}：此后的数据可能无法再次读取。"
    )


def _job_failed(job: str, e: Mapping[str, Any]) -> str:
    if "ended_at" not in e and "run" in e:
        return f"{job} 已不处于失败状态。"
    if e.get("lost"):
        return f"{job} 已丢失：自 {_moment(e['ended_at'])} 起引擎不再认识第 {e['run']} 次运行。"
    cause = str(e["cause"]).strip().partition("\n")[0][:200]
    return f"{job} 失败：第 {e['run']} 次运行于 {_moment(e['ended_at'])} 结束{f'，原因：{cause}' if cause else ''}。"


def _not_restarted(job: str, e: Mapping[str, Any]) -> str:
    if "state" in e:
        return f"{job} 的状态为 {e['state']}。" if e["state"] else f"{job} 已恢复。"
    if "attempt" in e:
        return f"{job} 已终止，且重启未能成功。"
    cause = str(e.get("cause") or "").strip().partition("\n")[0][:200].rstrip(".")
    return f"{job} 已终止且未自动重启：{_WHYS_NOT[e['why']](e)}。{f'终止原因：{cause}。' if cause else ''}"


_WHYS_NOT: dict[str, Callable[[Mapping[str, Any]], str]] = {
    "start_unknown": lambda e: "Waymark 不知道它是如何启动的",
    "written_again": lambda e: "恢复会使部分行被再次写入，而 execution.sinks.after-restore 将此留给您决定",
    "lost": lambda e: "引擎有响应但已不认识它，其自动化设置将此留给您处理",
    "breaker": lambda e: f"其熔断器自 {_moment(e['since'])} 起断开；闭合后才会继续",
    "cluster": lambda e: f"同一集群有 {e['jobs']} 个作业同时终止，问题在集群而不在作业；保持到 {_moment(e['until'])}",
    "budget": lambda e: f"{length_of(e['within_s'])}内的 {e['restarts']} 次重启已用完，熔断器已断开；闭合后才会继续",
}


def _restart_loop(job: str, e: Mapping[str, Any]) -> str:
    return f"{job} 在 {length_of(e['window_s'])}内重启了 {e['count']} 次（阈值 {e['threshold']}）。"


def _unreachable(cluster: str, e: Mapping[str, Any]) -> str:
    if "since" not in e and "threshold_s" in e:
        return f"集群 {cluster} 已恢复响应。"
    return f"集群 {cluster} 自 {_moment(e['since'])} 起没有响应（上限 {length_of(e['threshold_s'])}）。"


def _stranger(cluster: str, e: Mapping[str, Any]) -> str:
    if "since" not in e and "threshold_s" in e:
        return f"集群 {cluster} 的地址重新指向它自己。"
    since, limit = _moment(e["since"]), length_of(e["threshold_s"])
    return f"自 {since} 起，集群 {cluster} 的地址由另一个集群响应；确认之前，其作业状态未知（上限 {limit}）。"


def _blind(_: str, e: Mapping[str, Any]) -> str:
    if "since" not in e and "threshold_s" in e:
        return "Waymark 正在按时查询所有集群。"
    return f"Waymark 自 {_moment(e['since'])} 起未能按时查询某个集群（上限 {length_of(e['threshold_s'])}）。"


_SENTENCES: dict[str, Callable[[str, Mapping[str, Any]], str]] = {
    "failed_in_window": _failed_in_window,
    "failed_in_total": _failed_in_total,
    "consecutive_failures": _consecutive,
    "alignment": _figure("有子任务的对齐时间为", milliseconds),
    "start_delay": _figure("有子任务的启动延迟为", milliseconds),
    "end_to_end_duration": _figure("端到端耗时为", milliseconds),
    "state_size": _figure("状态大小为", Unit.BYTES.text),
    "state_size_relative": _relative("状态大小为", "state_size", Unit.BYTES.text),
    "end_to_end_duration_relative": _relative("端到端耗时为", "end_to_end_duration", milliseconds),
    "alignment_relative": _relative("有子任务的对齐时间为", "alignment_max", milliseconds),
    "start_delay_relative": _relative("有子任务的启动延迟为", "start_delay_max", milliseconds),
    "state_growth": _growth,
    "no_completed_checkpoint": _no_completed,
    "savepoint_failed": _savepoint_failed,
    "savepoint_too_old": _savepoint_too_old,
    "data_loss_risk": _data_loss,
    "job_failed": _job_failed,
    "restart_loop": _restart_loop,
    "run_missed": _run_missed,
    "not_restarted": _not_restarted,
    "cluster_unreachable": _unreachable,
    "another_cluster": _stranger,
    "waymark_blind": _blind,
}
