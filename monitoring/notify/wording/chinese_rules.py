"""A rule in one Chinese sentence: what `Kind.explain` says in English, from the same numbers."""

from __future__ import annotations

from collections.abc import Callable

from monitoring.alerts.kinds.base import Terms, Unit
from monitoring.alerts.kinds.relative import ENOUGH, weeks_of
from monitoring.notify.wording.chinese import length_of, milliseconds


def explanation_of(kind: str, terms: Terms) -> str:
    """ "" for a kind that has no Chinese words."""
    explain = _EXPLANATIONS.get(kind)
    return explain(terms) if explain else ""


def _limit(terms: Terms) -> str:
    return length_of(terms.threshold or 0)


def _window(terms: Terms) -> str:
    return length_of(terms.window.total_seconds())


def _no_completed(terms: Terms) -> str:
    if terms.threshold is not None:
        said = f"运行中的作业 {_limit(terms)}没有完成任何检查点时触发"
    else:
        said = "运行中的作业超过应有时间没有完成任何检查点时触发：即间隔与超时时间中较长者，乘以可容忍失败次数加二"
    return f"{said}；若尚未完成过，则从运行开始时计算。"


def _in_total(terms: Terms) -> str:
    since = terms.parameters.get("since")
    began = f"自 {since} 起" if since else "自已知的第一个起"
    return f"所有运行{began}共有 {terms.threshold} 个检查点失败时触发。有人解决告警事件后重新计数。"


def _data_loss(terms: Terms) -> str:
    lead = length_of(terms.parameters["lead_s"] or 0)
    return (
        f"无论作业在运行还是已终止，在其最新的检查点或保存点达到数据源保留时间（{_limit(terms)}）之前 "
        f"{lead}触发：否则此后读取的数据将无法再次读取。"
    )


def _relative(what: str) -> Callable[[Terms], str]:
    def say(terms: Terms) -> str:
        least = terms.parameters.get("least_ms")
        floor = f"（p95 不足 {milliseconds(least)} 时按此计算）" if least else ""
        days, weeks = terms.parameters["days"], weeks_of(terms)
        over = f"此前 {days} 天"
        if weeks:
            over = f"此前 {weeks} 周同一时段（有数据的不足 {ENOUGH} 周时为{over}）"
        return f"最近完成的检查点的{what}达到作业自身{over} p95 的 {terms.threshold} % 时触发{floor}。"

    return say


_EXPLANATIONS: dict[str, Callable[[Terms], str]] = {
    "failed_in_window": lambda t: f"{_window(t)}内有 {t.threshold} 个检查点失败时触发，每个编号只计一次，跨所有运行。",
    "failed_in_total": _in_total,
    "consecutive_failures": lambda t: (
        f"连续 {t.threshold} 个检查点失败且其间没有完成的检查点时触发；下一个完成时恢复。"
    ),
    "alignment": lambda t: f"最近完成的检查点中有子任务等待 barrier 对齐达到 {milliseconds(t.threshold or 0)} 时触发。",
    "start_delay": lambda t: (
        f"最近完成的检查点的首个 barrier 到达子任务用时达到 {milliseconds(t.threshold or 0)} 时触发。"
    ),
    "end_to_end_duration": lambda t: f"最近完成的检查点端到端耗时达到 {milliseconds(t.threshold or 0)} 时触发。",
    "state_size": lambda t: f"最近完成的检查点的状态达到 {Unit.BYTES.text(t.threshold or 0)} 时触发。",
    "state_size_relative": _relative("状态"),
    "end_to_end_duration_relative": _relative("端到端耗时"),
    "alignment_relative": _relative("最长对齐时间"),
    "start_delay_relative": _relative("最长启动延迟"),
    "state_growth": lambda t: f"状态在 24 小时内增长 {Unit.BYTES.text(t.threshold or 0)} 或更多时触发，每整点检查。",
    "no_completed_checkpoint": _no_completed,
    "savepoint_failed": lambda t: f"连续 {t.threshold} 个保存点（按计划或手动）失败时触发；下一个完成时恢复。",
    "savepoint_too_old": lambda t: (
        f"运行中作业的最新保存点已有 {_limit(t)}时触发；没有保存点的作业，从首次见到它起计算。"
    ),
    "data_loss_risk": _data_loss,
    "job_failed": lambda t: "作业失败或被引擎丢失时触发；重新运行或被有意结束时恢复。",
    "restart_loop": lambda t: f"作业在 {_window(t)}内重启 {t.threshold} 次（自行重启或作为新的运行）时触发。",
    "run_missed": lambda t: (
        f"按计划运行的作业在应运行时间之后 {_limit(t)}仍未完成时触发：未启动、失败或耗时更长。之后的运行完成时恢复。"
    ),
    "cluster_unreachable": lambda t: (
        f"集群 {_limit(t)}没有响应时触发。期间其作业的规则冻结：没有响应不能说明作业的情况。"
    ),
    "another_cluster": lambda t: (
        f"集群的地址由另一个集群响应达 {_limit(t)}时触发。"
        "在有人确认其为重建的集群或修正地址之前，不对其作业下任何结论。"
    ),
    "waymark_blind": lambda t: (
        f"Waymark 逾期 {_limit(t)}未查询某个集群时触发。Waymark 整体停止期间的情况在恢复后告知。"
    ),
}
