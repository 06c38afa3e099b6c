"""What asking an engine, or ZooKeeper for its leader, came to: kept as a cluster's last error, and told when tested."""

# ruff: noqa: E501 - a sentence stands beside its own

from __future__ import annotations

SILENCE = {
    "WAYMARK_STATE_ROOTS names no place that {where} lies in: states are not checked before a restart, and checkpoints that no poll saw are guessed by number. With it Waymark looks.": (
        "WAYMARK_STATE_ROOTS 没有指出 {where} 所在的位置：重启前不会检查状态，未被轮询到的检查点只能按编号猜测。设置后 Waymark 会直接查看。"
    ),
    "its state": "其状态",
    "{url} cannot be reached: nothing listens there.": "无法连接 {url}：该处没有服务在监听。",
    "{url} cannot be reached: no connection came about in time.": "无法连接 {url}：未能按时建立连接。",
    "{url} cannot be reached: {error}": "无法连接 {url}：{error}",
    "{url} took the connection and hung up without an answer.": "{url} 接受了连接，但没有响应就断开了。",
    "{url} took the connection and hung up without an answer. Is it meant to be https://?": (
        "{url} 接受了连接，但没有响应就断开了。是否应为 https://？"
    ),
    "{url} broke off in the middle of its answer.": "{url} 的响应中途中断。",
    "{url} did not answer {path} within {time} s.": "{url} 在 {time} 秒内没有响应 {path}。",
    "{name} did not answer within {time} s.": "{name} 在 {time} 秒内没有响应。",
    "{url} answers with something that is not HTTP.": "{url} 的响应不是 HTTP。",
    "{url} answers with something that is not HTTP; is it meant to be https://?": "{url} 的响应不是 HTTP；是否应为 https://？",
    "{url} does not speak TLS; is it meant to be http://?": "{url} 不使用 TLS；是否应为 http://？",
    "{url} asks for a client's certificate that it trusts ({words}).": "{url} 要求它所信任的客户端证书（{words}）。",
    "The certificate of {url} {about}.": "{url} 的证书{about}。",
    "is not valid yet; are the clocks right?": "尚未生效；时钟是否准确？",
    "has expired": "已过期",
    "is self-signed; give it as the CA bundle to trust it": "是自签名的；如要信任，请将其填为信任的 CA 证书",
    "comes from an authority that is not trusted; give its certificate as the CA bundle": (
        "由不受信任的机构签发；请将该机构的证书填为信任的 CA 证书"
    ),
    "has been revoked": "已被吊销",
    "is for another host": "属于另一主机",
    "is for another host ({detail})": "属于另一主机（{detail}）",
    "is not trusted: {detail}": "不受信任：{detail}",
    "The name {host} does not resolve: {error}.": "无法解析名称 {host}：{error}。",
    "The engine answers and does not know the job: {polls} polls in {time} s.": "引擎有响应但不认识该作业：{time} 秒内轮询 {polls} 次。",
    "The engine answers and knows no job at all: {polls} polls in {time} s.": "引擎有响应但不认识任何作业：{time} 秒内轮询 {polls} 次。",
}

ANSWERS = {
    "The cluster keeps the logs of the executors: open the application on the page of Spark's master, or look into the directory work/ of each worker.": (
        "执行器的日志由集群保存：请在 Spark master 的页面上打开该应用，或查看各 worker 的 work/ 目录。"
    ),
    "The cluster keeps the logs of the executors: run yarn logs -applicationId with the application's id, which the log of the driver has.": (
        "执行器的日志由集群保存：请使用驱动程序日志中的应用 ID 运行 yarn logs -applicationId。"
    ),
    "The cluster keeps the logs of the executors: run kubectl logs with the name of the pod.": (
        "执行器的日志由集群保存：请使用 pod 名称运行 kubectl logs。"
    ),
    "The cluster keeps the logs of the driver and the executors: run yarn logs -applicationId with the application's id, which the log of the driver has.": (
        "驱动程序和执行器的日志由集群保存：请使用驱动程序日志中的应用 ID 运行 yarn logs -applicationId。"
    ),
    "The cluster keeps the logs of the driver and the executors: run kubectl logs with the name of the pod.": (
        "驱动程序和执行器的日志由集群保存：请使用 pod 名称运行 kubectl logs。"
    ),
    "It answers {path} with HTTP {status}.": "对 {path} 的响应为 HTTP {status}。",
    "HTTP {status}: the address redirects to {where}; enter the one it leads to.": (
        "HTTP {status}：该地址重定向到 {where}；请填写它所指向的地址。"
    ),
    "HTTP {status}: the address redirects elsewhere; enter the one it leads to.": (
        "HTTP {status}：该地址重定向到别处；请填写它所指向的地址。"
    ),
    "The answer to {path} has the Content-Range {text}.": "{path} 的响应带有 Content-Range {text}。",
    "The answer to {path} is a web page, not JSON.": "{path} 的响应是网页，不是 JSON。",
    "The answer to {path} is larger than {size} bytes.": "{path} 的响应大于 {size} 字节。",
    "The answer is not JSON: {error}": "响应不是 JSON：{error}",
    "{where} has no field {name}.": "{where} 没有字段 {name}。",
    "{where} is null, not {expected}.": "{where} 为 null，应为{expected}。",
    "{where} is true or false, not {expected}.": "{where} 为真假值，应为{expected}。",
    "{where} is a number, not {expected}.": "{where} 为数值，应为{expected}。",
    "{where} is a text, not {expected}.": "{where} 为文本，应为{expected}。",
    "{where} is a list, not {expected}.": "{where} 为列表，应为{expected}。",
    "{where} is an object, not {expected}.": "{where} 为对象，应为{expected}。",
    "{where} is out of range.": "{where} 超出范围。",
    "{where} is not an identifier.": "{where} 不是标识符。",
    "{where} is not a list.": "{where} 不是列表。",
    "{where} is nested more than {count} deep.": "{where} 的嵌套超过 {count} 层。",
    "{value} is too large a number": "{value} 数值过大",
    "{value} is not a JSON number": "{value} 不是 JSON 数值",
    "{value} is not a job state.": "{value} 不是作业状态。",
    "{value} is not a checkpoint id.": "{value} 不是检查点标识。",
    "{name} {value} is none of {allowed}.": "{name} 的值 {value} 不在 {allowed} 之中。",
    "The operation is COMPLETED without a result.": "操作为 COMPLETED 但没有结果。",
    "The engine lists the job no more, and knows it when asked.": "引擎不再列出该作业，但询问时仍认识它。",
    "not read to the end within {time} s": "在 {time} 秒内没有读完",
    "true or false": "真假值",
    "a whole number": "整数",
    "a text": "文本",
    "a time": "时间",
    "a list": "列表",
    "a list of texts": "文本列表",
    "an object": "对象",
}

ADDRESSES = {
    "An address has at most {most} characters; this one has {count}.": "地址最多 {most} 个字符；此地址有 {count} 个。",
    "An address has no spaces, control characters or backslashes.": "地址不能含有空格、控制字符或反斜杠。",
    "An address begins with http:// or https://.": "地址以 http:// 或 https:// 开头。",
    "This is no address: {error}.": "这不是地址：{error}。",
    "The host is missing: {scheme}://host:port is needed.": "缺少主机：需要 {scheme}://主机:端口。",
    "Name and password do not belong into an address: it is shown and stored.": "地址中不能含用户名和密码：地址会被显示和保存。",
    "{host} is no name of a host.": "{host} 不是主机名。",
    "{host} has no address.": "{host} 没有地址。",
    "{named} is {kind}. {what} may not lead there unless an administrator allows it ({where}).": (
        "{named} 是{kind}。除非管理员允许（{where}），{what}不能指向那里。"
    ),
    "{host} is {address}, {kind}. {what} may not lead there unless an administrator allows it ({where}).": (
        "{host} 指向 {address}，是{kind}。除非管理员允许（{where}），{what}不能指向那里。"
    ),
    "“May lead to a private address”, or WAYMARK_OUTBOUND_ALLOW": "“允许指向私有地址”，或 WAYMARK_OUTBOUND_ALLOW",
    "A channel": "渠道",
    "A cluster's address": "集群地址",
    "where clouds hand out credentials": "云平台发放凭据的地址",
    "a link-local address": "链路本地地址",
    "a multicast address": "组播地址",
    "no address of a server": "非服务器地址",
    "this machine itself": "本机",
    "a reserved address": "保留地址",
    "a private address": "私有地址",
}

SECRETS = {
    "What {cluster} is asked with cannot be read. {why}": "无法读取询问 {cluster} 所用的凭据。{why}",
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
    "These are no certificates in PEM form: {error}.": "这不是 PEM 格式的证书：{error}。",
    "A client's certificate and its key belong together: one of them is missing.": "客户端证书与其密钥须成对：缺少其中之一。",
    "This is no certificate in PEM form (BEGIN CERTIFICATE).": "这不是 PEM 格式的证书（BEGIN CERTIFICATE）。",
    "This is no private key in PEM form.": "这不是 PEM 格式的私钥。",
    "This is no private key in PEM form. It is encrypted: give it without a password.": (
        "这不是 PEM 格式的私钥。它已加密：请提供不带密码的私钥。"
    ),
    "It is encrypted: give it without a password.": "它已加密：请提供不带密码的私钥。",
    "Certificate and key do not belong together: {error}.": "证书与密钥不匹配：{error}。",
}

# What a leader's node holds instead of an address.
_NO_LEADER = {
    "The leader's node names {address}, which is no address: {why}": "leader 节点中的 {address} 不是地址：{why}",
    "The leader's node names an address of {count} characters.": "leader 节点中的地址有 {count} 个字符。",
    "The leader's node holds JSON without an address.": "leader 节点中的 JSON 没有地址。",
    "The leader's node holds JSON whose address is no text.": "leader 节点中 JSON 的地址不是文本。",
    "The leader's node is not written by Java.": "leader 节点不是由 Java 写入的。",
    "The leader's node begins with something else than an address.": "leader 节点的开头不是地址。",
    "The leader's node is cut short.": "leader 节点的内容不完整。",
    "The leader's node holds something else than a term after the address.": "leader 节点中地址之后不是任期。",
    "The leader's node is cut short, or no address.": "leader 节点的内容不完整，或不是地址。",
}

ZOOKEEPER = {
    **_NO_LEADER,
    **{f"{english} ({{path}})": f"{chinese}（{{path}}）" for english, chinese in _NO_LEADER.items()},
    "ZooKeeper has not been asked yet.": "尚未询问 ZooKeeper。",
    "It is not known who leads {cluster}. {why}": "不清楚谁是 {cluster} 的 leader。{why}",
    "It is not known who leads. {why} The last known address: {said}": "不清楚谁是 leader。{why}最后已知的地址：{said}",
    "ZooKeeper does not show {path} to whom we ask as: another name or password is needed.": (
        "以当前身份无法查看 ZooKeeper 的 {path}：需要其他用户名或密码。"
    ),
    "Others than {name} can change {path} in ZooKeeper: no password is sent to the address there.": (
        "除 {name} 外，其他用户也能修改 ZooKeeper 的 {path}：不会向其中的地址发送密码。"
    ),
    "ZooKeeper says that nobody leads now ({path} is empty).": "ZooKeeper 称当前没有 leader（{path} 为空）。",
    "ZooKeeper says that nobody leads now (there is no {path}).": "ZooKeeper 称当前没有 leader（没有 {path}）。",
    "ZooKeeper at {hosts} does not accept this name and password.": "位于 {hosts} 的 ZooKeeper 不接受此用户名和密码。",
    "ZooKeeper at {hosts} does not answer over TLS.": "位于 {hosts} 的 ZooKeeper 没有通过 TLS 响应。",
    "ZooKeeper at {hosts} does not answer over TLS: {why}.": "位于 {hosts} 的 ZooKeeper 没有通过 TLS 响应：{why}。",
    "path {path}, cluster-id {id} at {servers}": "路径 {path}，cluster-id {id}，位于 {servers}",
    "no name of its own": "没有自己的名称",
}

EXAMINATION = {
    "It is there, but not ready: {why}": "服务存在但尚未就绪：{why}",
    "A server answers there, but not with Flink's REST API: it knows no /overview. Is a part of the path missing?": (
        "该处有服务器响应，但不是 Flink 的 REST API：它没有 /overview。路径是否缺了一部分？"
    ),
    "A server answers there, but not with Flink's REST API": "该处有服务器响应，但不是 Flink 的 REST API",
    "A server answers there, but not with Flink's REST API. {why}": "该处有服务器响应，但不是 Flink 的 REST API。{why}",
    "A proxy answers there, but the cluster behind it does not (HTTP {status}).": (
        "该处有代理响应，但其后的集群没有响应（HTTP {status}）。"
    ),
    "A server answers there, but with an error of its own: {why}": "该处有服务器响应，但它自身出错：{why}",
    "The address redirects to a log-in page ({where}): enter one that takes a token or a password.": (
        "该地址重定向到登录页面（{where}）：请填写一个接受令牌或密码的地址。"
    ),
    "The server does not accept this token (HTTP {status}).": "服务器不接受此令牌（HTTP {status}）。",
    "The server does not accept this name and password (HTTP {status}).": "服务器不接受此用户名和密码（HTTP {status}）。",
    "The server needs a log-in (HTTP {status}): a token, or a name and a password.": (
        "服务器要求登录（HTTP {status}）：需要令牌，或用户名和密码。"
    ),
    "It does not show its configuration: another cluster at this address would not be noticed.": (
        "它不公开其配置：若此地址换成另一个集群，将无法察觉。"
    ),
    "It has no default directory for savepoints: taking one needs a directory each time.": (
        "它没有保存点的默认目录：每次创建都需指定目录。"
    ),
    "It takes no programs (web.submit.enable): jobs can be watched and saved, not started.": (
        "它不接收程序（web.submit.enable）：可以监控作业和创建保存点，但不能启动作业。"
    ),
    "It does not want jobs to be cancelled from outside (web.cancel.enable).": "它不允许从外部取消作业（web.cancel.enable）。",
    "Its clock is {time} s ahead of ours.": "其时钟比本机快 {time} 秒。",
    "Its clock is {time} s behind ours.": "其时钟比本机慢 {time} 秒。",
    "PySpark, by Waymark's job manager": "PySpark（由 Waymark 的作业管理器运行）",
    "Flink REST API {version}, no jobs": "Flink REST API {version}，没有作业",
    "Flink REST API {version}, jobs: {jobs}": "Flink REST API {version}，作业：{jobs}",
}
