"""The services of Apprise that a channel may use.

Apprise knows three times as many. Left out are those that reach beyond HTTP to a checked address: programs, desktops
and logs of this machine, raw sockets, mail past the mail channel, and services that read files of this machine.
"""

from __future__ import annotations

SERVICES: dict[str, str] = {
    "slack": "Slack",
    "workflow": "Microsoft Teams (workflow)",
    "workflows": "Microsoft Teams (workflow)",
    "discord": "Discord",
    "mmost": "Mattermost",
    "mmosts": "Mattermost",
    "rocket": "Rocket.Chat",
    "rockets": "Rocket.Chat",
    "gchat": "Google Chat",
    "webex": "Webex",
    "wxteams": "Webex",
    "zulip": "Zulip",
    "tgram": "Telegram",
    "dingtalk": "DingTalk",
    "wecombot": "WeCom",
    "feishu": "Feishu",
    "lark": "Lark",
    "pagerduty": "PagerDuty",
    "opsgenie": "Opsgenie",
    "victorops": "Splunk On-Call",
    "splunk": "Splunk On-Call",
    "squadcast": "Squadcast",
    "incidentio": "incident.io",
    "betterstack": "Better Stack",
    "ilert": "ilert",
    "firehydrant": "FireHydrant",
    "spike": "Spike.sh",
    "signl4": "SIGNL4",
    "pagertree": "PagerTree",
    "goalert": "GoAlert",
    "goalerts": "GoAlert",
    "pover": "Pushover",
    "pbul": "Pushbullet",
    "ntfy": "ntfy",
    "ntfys": "ntfy",
    "gotify": "Gotify",
    "gotifys": "Gotify",
    "bark": "Bark",
    "barks": "Bark",
    "schan": "ServerChan",
    "pushdeer": "PushDeer",
    "pushdeers": "PushDeer",
    "pushplus": "PushPlus",
    "wxpusher": "WxPusher",
    "twilio": "Twilio",
    "json": "JSON",
    "jsons": "JSON",
    "xml": "XML",
    "xmls": "XML",
    "form": "Form",
    "forms": "Form",
}
# Of any service: a file of this machine sent as the message, and what would undo our own checks and limits.
REFUSED_PARAMETERS = frozenset({"template", "redirect", "verify", "cto", "rto", "store", "overflow"})
