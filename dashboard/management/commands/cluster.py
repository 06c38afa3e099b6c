"""`manage.py cluster`: which clusters Waymark watches."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from monitoring.audit import record
from monitoring.engine.errors import EngineError
from monitoring.engine.registration import BadCluster, add_cluster
from monitoring.models import Cluster

ACTOR = "manage.py"


class Command(BaseCommand):
    help = "Add, list, pause and resume the clusters that Waymark watches: any server of Flink's REST API."

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
        add = actions.add_parser("add", help="watch one more cluster; it must answer now")
        add.add_argument("name", help="its name on the pages")
        add.add_argument("url", help="address of its REST API, such as http://127.0.0.1:8081")
        add.add_argument("--token-file", type=Path, help="a file that holds the bearer token it asks for")
        actions.add_parser("list", help="show every cluster and when it last answered")
        for action, text in (("pause", "stop watching; the history stays"), ("resume", "watch again")):
            actions.add_parser(action, help=text).add_argument("name")

    def handle(self, *args: Any, **options: Any) -> None:
        match options["action"]:
            case "add":
                self._add(options["name"], options["url"], options["token_file"])
            case "list":
                self._list()
            case action:
                self._watch(options["name"], watched=action == "resume")

    def _add(self, name: str, url: str, token_file: Path | None) -> None:
        try:
            token = token_file.read_text().strip() if token_file else ""
            cluster, found = add_cluster(name, url, token)
        except OSError as error:
            raise CommandError(f"--token-file: {error}") from error
        except BadCluster as error:
            raise CommandError(str(error)) from error
        except EngineError as error:
            raise CommandError(f"url: {url} does not answer as Flink's REST API: {error}") from error
        record(ACTOR, "cluster.add", f"cluster {cluster.name}", url=cluster.rest_url)
        jobs = "1 job" if found.jobs == 1 else f"{found.jobs} jobs"
        self.stdout.write(f"{cluster.name}: Flink REST API {found.version} with {jobs}. It is watched from now on.")

    def _list(self) -> None:
        for cluster in Cluster.objects.all():
            state = "paused" if not cluster.enabled else "answers" if cluster.reachable else "does not answer"
            seen = f"{cluster.last_answer_at:%Y-%m-%d %H:%M:%S} UTC" if cluster.last_answer_at else "never"
            self.stdout.write(f"{cluster.name}  {cluster.rest_url}  {cluster.version or '–'}  {state}, last {seen}")

    def _watch(self, name: str, *, watched: bool) -> None:
        if not Cluster.objects.filter(name=name).update(enabled=watched, next_poll_at=None):
            known = ", ".join(Cluster.objects.values_list("name", flat=True)) or "none"
            raise CommandError(f"name: {name!r} is not a cluster; there are: {known}")
        record(ACTOR, "cluster.resume" if watched else "cluster.pause", f"cluster {name}")
        self.stdout.write(f"{name} is {'watched again' if watched else 'no longer watched; its history stays'}.")
