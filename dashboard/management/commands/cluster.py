"""`manage.py cluster`: manage the clusters that Waymark monitors."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.forms.models import model_to_dict
from django.utils import timezone

from dashboard.forms.cluster import ClusterForm
from monitoring.engine import registration
from monitoring.engine.examination import Problem, examine, remarks_on
from monitoring.engine.probe import Found
from monitoring.models import Authentication, Cluster, Discovery

ACTOR = "manage.py"

# Options of `add` with the form field of each. Secrets come from files, because every account can see command lines.
_OPTIONS = {
    "savepoints": (
        "savepoint_target",
        "with --directory: where Waymark stores savepoints of the queries, outside of the directory (default: none)",
    ),
    "history-server": (
        "history_server",
        "the URL of Flink's History Server, which shows the end of a job whose cluster has ended (default: none)",
    ),
    "zookeeper": (
        "zookeeper_hosts",
        "ZooKeeper servers that store the address of the leader, such as zk1:2181,zk2:2181",
    ),
    "root": ("zookeeper_root", "Flink's high-availability.zookeeper.path.root (default: /flink)"),
    "cluster-id": ("zookeeper_cluster_id", "Flink's high-availability.cluster-id (default: /default)"),
    "zookeeper-authentication": ("zookeeper_authentication", "digest or sasl, if ZooKeeper requires a log-in"),
    "zookeeper-user": ("zookeeper_username", "the user name for ZooKeeper"),
    "zookeeper-tls": (
        "zookeeper_tls",
        "true: connect to ZooKeeper over TLS, with the certificates of --ca-file and --certificate-file",
    ),
    "user": ("username", "the user name for basic authentication"),
    "labels": ("labels", "labels, such as team=payments,env=prod"),
    "every": ("poll_interval_s", "seconds between polls (default: 3)"),
    "limit": ("request_limit_s", "seconds until a request times out (default: 10)"),
    "at-once": ("requests_at_once", "maximum number of concurrent requests (default: 8)"),
    "savepoints-at-once": ("savepoints_at_once", "maximum number of concurrent scheduled savepoints (default: 4)"),
    "savepoint-jitter": (
        "savepoint_jitter_s",
        "seconds over which savepoints that are due at the same time are spread (default: 60)",
    ),
}
# Fields that the form requires. The command sends the defaults of the model.
_USUAL = ("poll_interval_s", "request_limit_s", "requests_at_once", "savepoints_at_once", "savepoint_jitter_s")
_FILES = {
    "token-file": ("token", "a file with the bearer token"),
    "password-file": ("password", "a file with the password of --user"),
    "zookeeper-password-file": ("zookeeper_password", "a file with the password of --zookeeper-user"),
    "ca-file": ("ca_bundle", "a PEM file with the CA certificates to trust instead of those of this machine"),
    "certificate-file": ("client_certificate", "a PEM file with the client certificate, for mutual TLS"),
    "key-file": ("client_key", "a PEM file with the private key of the client certificate"),
}


class Command(BaseCommand):
    help = "Add, list, test, pause, resume and remove the clusters that Waymark monitors through Flink's REST API."

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
        add = actions.add_parser("add", help="add a cluster that responds; see also --unanswered")
        add.add_argument("name", help="the name of the cluster in Waymark")
        add.add_argument("url", nargs="?", default="", help="the URL of the REST API, such as http://127.0.0.1:8081")
        for option, (_, text) in _OPTIONS.items():
            add.add_argument(f"--{option}", help=text)
        for option, (_, text) in _FILES.items():
            add.add_argument(f"--{option}", type=Path, help=text)
        add.add_argument(
            "--directory",
            default="",
            help="instead of a URL: a directory of checkpoint locations",
        )
        add.add_argument(
            "--event-logs", metavar="PATH", default="", help="instead of a URL: a directory of Spark's event logs"
        )
        add.add_argument(
            "--agent", action="store_true", help="instead of a URL: programs of Spark report their queries"
        )
        add.add_argument("--unanswered", action="store_true", help="save the cluster even if it does not respond")
        actions.add_parser("list", help="list all clusters with their addresses, versions and statuses")
        for action, text in (
            ("test", "test the connection with the stored settings, without changes"),
            ("resume", "resume the monitoring of a paused or removed cluster"),
            ("same", "confirm that the cluster at the address is the same one, rebuilt"),
        ):
            actions.add_parser(action, help=text).add_argument("name")
        for action, text in (
            ("pause", "stop monitoring the cluster; its history is kept"),
            ("remove", "remove the cluster; if it has jobs, their history is kept"),
        ):
            parsed = actions.add_parser(action, help=text)
            parsed.add_argument("name")
            parsed.add_argument("--reason", default="", help="the reason, for the audit log")

    def handle(self, *args: Any, **options: Any) -> None:
        match options["action"]:
            case "add":
                self._add(options)
            case "list":
                self._list()
            case action:
                self._act(action, _find(options["name"]), options.get("reason", ""))

    def _add(self, options: dict[str, Any]) -> None:
        form = ClusterForm(_form_data(options), label_suffix="")
        if not (form.is_valid() and form.examine(timezone.now)):
            raise CommandError("\n".join(_error_text(form, name, text) for name, text in _errors(form)))
        registration.add(form.instance, ACTOR)
        answer = form.found.reason if form.found else "no response yet"
        self.stdout.write(f"Added cluster {form.instance.name} ({answer}). Waymark polls it from now on.")
        for remark in remarks_on(form.instance):
            self.stdout.write(f"Warning: {remark}")

    def _list(self) -> None:
        for cluster in Cluster.objects.all():
            state = "reachable" if cluster.reachable else "unreachable"
            if not cluster.enabled:
                state = "removed" if cluster.archived_at else "paused"
            seen = f"{cluster.last_answer_at:%Y-%m-%d %H:%M:%S} UTC" if cluster.last_answer_at else "never"
            where = cluster.rest_url or "–"
            self.stdout.write(f"{cluster.name}  {where}  {cluster.version or '–'}  {state}, last response: {seen}")

    def _act(self, action: str, cluster: Cluster, reason: str) -> None:
        match action:
            case "test":
                self._test(cluster)
            case "pause":
                registration.watch(cluster, watched=False, actor=ACTOR, reason=reason)
                self.stdout.write(f"Waymark no longer monitors {cluster.name}. Its history is kept.")
            case "resume":
                registration.watch(cluster, watched=True, actor=ACTOR)
                self.stdout.write(f"Waymark monitors {cluster.name} again.")
            case "same":
                if cluster.stranger is None:
                    raise CommandError(
                        f"There is nothing to confirm: Waymark found no other cluster at the address of {cluster.name}."
                    )
                registration.confirm_same(cluster, ACTOR)
                self.stdout.write(f"Confirmed that the cluster at this address is {cluster.name}.")
            case "remove":
                gone = registration.remove(cluster, actor=ACTOR, reason=reason, now=timezone.now())
                self.stdout.write(
                    f"Removed cluster {cluster.name}.{'' if gone else ' The history of its jobs is kept.'}"
                )

    def _test(self, cluster: Cluster) -> None:
        outcome = examine(cluster, timezone.now)
        if isinstance(outcome, Problem):
            raise CommandError(f"{outcome.field}: {outcome.reason}")
        for name, value in _describe(outcome):
            self.stdout.write(f"{name:<18}{value}")
        for remark in outcome.remarks:
            self.stdout.write(f"Warning: {remark}")


def _find(name: str) -> Cluster:
    cluster = Cluster.objects.filter(name=name).first()
    if cluster is None:
        known = ", ".join(Cluster.objects.values_list("name", flat=True)) or "none"
        raise CommandError(f"There is no cluster {name!r}. The clusters are: {known}")
    return cluster


def _form_data(options: dict[str, Any]) -> dict[str, Any]:
    """Return the data that the form of the page would send."""
    given = {field: options[option.replace("-", "_")] for option, (field, _) in _OPTIONS.items()}
    for option, (field, _) in _FILES.items():
        given[field] = _content(option, options[option.replace("-", "_")])
    usual = model_to_dict(Cluster(), _USUAL)
    authentication = Authentication.BEARER if given["token"] else Authentication.NONE
    return {
        **usual,
        **{field: value for field, value in given.items() if value not in (None, "")},
        "name": options["name"],
        "rest_url": options["directory"] or options["event_logs"] or options["url"],
        "discovery": _discovery(options, given["zookeeper_hosts"]),
        "authentication": Authentication.BASIC if given["username"] else authentication,
        "unanswered": options["unanswered"],
    }


def _discovery(options: dict[str, Any], zookeeper_hosts: str | None) -> Discovery:
    if options["agent"]:
        return Discovery.AGENT
    if options["directory"]:
        return Discovery.DIRECTORY
    if options["event_logs"]:
        return Discovery.EVENT_LOG
    return Discovery.ZOOKEEPER if zookeeper_hosts else Discovery.URL


def _content(option: str, file: Path | None) -> str:
    try:
        return file.read_text().strip() if file else ""
    except (OSError, UnicodeDecodeError) as error:
        raise CommandError(f"--{option}: {error}") from error


def _errors(form: ClusterForm) -> list[tuple[str, str]]:
    return [(name, str(text)) for name, texts in form.errors.items() for text in texts]


def _error_text(form: ClusterForm, name: str, text: str) -> str:
    """Return the field, its value unless it is a secret, and the error."""
    shown = {"rest_url": "url"}.get(name, name)
    value = "" if name in form.unshown or name not in form.data else f" {str(form.data[name])[:200]!r}"
    return f"{shown}{value}: {text}"


def _describe(found: Found) -> list[tuple[str, str]]:
    """Return the results of the test as labels and texts."""
    if found.version.watched:
        return [("engine", str(found.engine)), ("found", str(found.reason))]
    allowed = {True: "yes", False: "no", None: "unknown"}
    return [
        ("engine", f"{found.engine} {found.version.text}"),
        ("not supported", "; ".join(found.version.lacks()) or "–"),
        ("commit", found.commit or "unknown"),
        ("jobs", ", ".join(f"{count} {state}" for state, count in found.jobs.items()) or "none"),
        ("task managers", f"{found.taskmanagers}, {found.slots_available} of {found.slots_total} slots free"),
        ("history", f"{found.history_length} checkpoints" if found.history_length else "unknown"),
        ("checkpoints", found.checkpoint_directory or "unknown"),
        ("savepoints", found.savepoint_directory or "unknown"),
        ("accepts programs", allowed[found.can_submit]),
        ("allows cancel", allowed[found.can_cancel]),
        ("clock", "unknown" if found.clock_s is None else f"{found.clock_s:+.0f} s compared to this machine"),
        ("identity", str(found.identity or "unknown")),
    ]
