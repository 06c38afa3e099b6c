"""Why a channel's address or secret cannot be used, and names of clusters that the audit log has."""

# ruff: noqa: E501 - a sentence stands beside its own

from __future__ import annotations

ADDRESSES = {
    "An address has at most {most} characters; this one has {count}.": "地址最多 {most} 个字符；此地址有 {count} 个。",
    "An address has no spaces, control characters or backslashes.": "地址不能含有空格、控制字符或反斜杠。",
    "An address begins with http:// or https://.": "地址以 http:// 或 https:// 开头。",
    "This is no address: {error}.": "这不是地址：{error}。",
    "The host is missing: {scheme}://host:port is needed.": "缺少主机：需要 {scheme}://主机:端口。",
    "Name and password do not belong into an address: it is shown and stored.": "地址中不能含用户名和密码：地址会被显示和保存。",
    "{host} is no name of a host.": "{host} 不是主机名。",
    "The name {host} does not resolve: {error}.": "无法解析名称 {host}：{error}。",
    "{host} has no address.": "{host} 没有地址。",
    "{named} is {kind}. {what} may not lead there unless an administrator allows it ({where}).": (
        "{named} 是{kind}。除非管理员允许（{where}），{what}不能指向那里。"
    ),
    "{host} is {address}, {kind}. {what} may not lead there unless an administrator allows it ({where}).": (
        "{host} 指向 {address}，是{kind}。除非管理员允许（{where}），{what}不能指向那里。"
    ),
    "“May lead to a private address”, or WAYMARK_OUTBOUND_ALLOW": "“允许指向私有地址”，或 WAYMARK_OUTBOUND_ALLOW",
    "A channel": "渠道",
    "where clouds hand out credentials": "云平台发放凭据的地址",
    "a link-local address": "链路本地地址",
    "a multicast address": "组播地址",
    "no address of a server": "非服务器地址",
    "this machine itself": "本机",
    "a reserved address": "保留地址",
    "a private address": "私有地址",
}

SECRETS = {
    "The stored secret is not sealed: somebody wrote it past Waymark. Enter it again.": (
        "保存的密文未加密：有人绕过 Waymark 写入。请重新输入。"
    ),
    "The stored secret cannot be opened with the keys that are set: set the old key in WAYMARK_SECRET_KEYS (or "
    "WAYMARK_SECRET_KEY) again, or enter the secret anew.": (
        "无法用当前设置的密钥解开保存的密文：请在 WAYMARK_SECRET_KEYS（或 WAYMARK_SECRET_KEY）中恢复旧密钥，或重新输入密文。"
    ),
    "A secret is to be stored or read: set WAYMARK_SECRET_KEYS or WAYMARK_SECRET_KEY.": (
        "需要保存或读取密文：请设置 WAYMARK_SECRET_KEYS 或 WAYMARK_SECRET_KEY。"
    ),
}

IDENTITIES = {
    "path {path}, cluster-id {id} at {servers}": "路径 {path}，cluster-id {id}，位于 {servers}",
    "no name of its own": "没有自己的名称",
}
