"""The words for events, severities and kinds in each language. For a kind without a word its title is used."""

from __future__ import annotations

from django.utils.translation import gettext, override

from monitoring.alerts.kinds import kinds
from monitoring.models import Language

_EVENTS = {
    Language.ENGLISH: {
        "opened": "opened",
        "resolved": "resolved",
        "repeat": "still open",
        "escalation": "escalated",
        "woken": "snooze over",
        "test": "test",
    },
    Language.CHINESE: {
        "opened": "告警触发",
        "resolved": "告警恢复",
        "repeat": "仍未恢复",
        "escalation": "告警升级",
        "woken": "静默结束",
        "test": "测试",
    },
}
_SEVERITIES = {
    Language.ENGLISH: {"warning": "warning", "critical": "critical"},
    Language.CHINESE: {"warning": "警告", "critical": "严重"},
}
_KINDS = {
    "alignment": "检查点对齐时间过长",
    "alignment_relative": "检查点对齐时间异常",
    "consecutive_failures": "检查点连续失败",
    "end_to_end_duration": "检查点端到端耗时过长",
    "end_to_end_duration_relative": "检查点端到端耗时异常",
    "failed_in_total": "检查点失败总数过多",
    "failed_in_window": "时间窗口内检查点失败过多",
    "no_completed_checkpoint": "长时间没有完成的检查点",
    "start_delay": "检查点启动延迟过长",
    "start_delay_relative": "检查点启动延迟异常",
    "data_loss_risk": "存在数据丢失风险",
    "state_growth": "状态增长过快",
    "state_size": "状态过大",
    "state_size_relative": "状态大小异常",
    "savepoint_failed": "保存点失败",
    "savepoint_too_old": "保存点缺失或过旧",
    "job_failed": "作业失败",
    "restart_loop": "作业反复重启",
    "run_missed": "计划运行缺失或延误",
    "not_restarted": "作业已停止且未能自动重启",
    "cluster_unreachable": "集群无法访问",
    "another_cluster": "地址指向了另一个集群",
    "waymark_blind": "Waymark 无法监控",
    "test": "测试",
}


def event_word(event: str, language: Language) -> str:
    return _EVENTS[language].get(event, event)


def severity_word(severity: str, language: Language) -> str:
    return _SEVERITIES[language].get(severity, severity)


def kind_word(kind: str, language: Language) -> str:
    if language == Language.CHINESE and kind in _KINDS:
        return _KINDS[kind]
    if kind not in kinds():
        return kind.replace("_", " ")
    with override(language.value):
        return gettext(kinds()[kind].title)
