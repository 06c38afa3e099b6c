"""What became of messages about incidents: receivers' answers."""

from __future__ import annotations

DELIVERIES = {
    "Taken by the mail server for {to}": "邮件服务器已接收，发往 {to}",
    "Every recipient was refused: {refused}": "所有收件人均被拒绝：{refused}",
    "The mail server answered {answer}": "邮件服务器回答 {answer}",
    "The mail server {address} did not take it: {why}": "邮件服务器 {address} 没有接收：{why}",
    "The receiver did not answer in time": "接收方未按时响应",
    "The receiver could not be reached: {why}": "无法连接接收方：{why}",
    "The receiver took longer than {time} s": "接收方用时超过 {time} 秒",
    "The receiver took longer than {time} s for all incidents of the message": (
        "接收方处理消息中全部告警的用时超过 {time} 秒"
    ),
    "{answer} (redirects are not followed)": "{answer}（不跟随重定向）",
    "{answer} (the service takes this for a refusal)": "{answer}（该服务视此为拒绝）",
    "There was nothing to tell": "没有需要通知的内容",
    "Apprise says that it was sent": "Apprise 称已发送",
    "Apprise could not send it, and does not say why": "Apprise 未能发送，且未说明原因",
    "The channel was switched off.": "渠道已关闭。",
    "at least one mail address is needed": "至少需要一个邮件地址",
    "a mail address like name@example.org is needed": "需要邮件地址，例如 name@example.org",
    "an address like https://example.org/hook is needed": "需要地址，例如 https://example.org/hook",
    "the parameter {name} is not allowed": "不允许参数 {name}",
    "this is no complete address of {service}": "这不是 {service} 的完整地址",
}
