"""`manage.py state`: read the state in a checkpoint or savepoint of a PySpark job."""

from __future__ import annotations

import argparse
import dataclasses
import json
from collections.abc import Callable, Iterable, Sequence
from enum import Enum
from typing import TYPE_CHECKING, Any

from django.core.management.base import BaseCommand, CommandError

from checkpointing.java import JavaNotFound
from checkpointing.storage.locations import as_absolute
from dashboard.stack.extras import JOBMANAGER, require
from monitoring.reasons.state_reads import StateReadReason

if TYPE_CHECKING:
    from checkpointing.state_reading.contents import SnapshotContents

PATH_HELP = "directory of a checkpoint or savepoint, local or remote (s3://…), such as …/chk-7 or …/savepoint-ab12cd-…"
EPILOG = """\
examples:
  manage.py state list  /checkpoints/1f0c…/chk-7
  manage.py state read  /checkpoints/1f0c…/chk-7 --key word=hello
  manage.py state read  /checkpoints/1f0c…/chk-7 --view total --where 'value > 100' --limit 20
  manage.py state sizes /checkpoints/1f0c…/chk-7 --rows
  manage.py state diff  /checkpoints/1f0c…/chk-7 /checkpoints/1f0c…/chk-8 --json

--query, --operator and --view select the state; `list` shows the values. An option may be omitted if it has only one
possible value. `list`, and `sizes` without --rows, are fast. The others start Spark, which needs Java and some seconds.
The snapshot is not changed.
"""


class Command(BaseCommand):
    help = "Read the state in a checkpoint or savepoint: operators, keys and values, sizes, differences."
    requires_system_checks = []  # noqa: RUF012  (Django's own form)

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.formatter_class = argparse.RawDescriptionHelpFormatter
        parser.epilog = EPILOG
        actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
        listing = actions.add_parser("list", help="list operators, their views, and operator state")
        read = actions.add_parser("read", help="show keys and values of one view")
        sizes = actions.add_parser("sizes", help="show bytes, files and rows by partition, and their skew")
        diff = actions.add_parser("diff", help="show keys that were added, removed or changed between two snapshots")
        for action in (listing, read, sizes, diff):
            action.add_argument("path", metavar="PATH", type=as_absolute, help=PATH_HELP)
            action.add_argument("--json", action="store_true", help="print one JSON object instead of a table")
        diff.add_argument("after", metavar="PATH", type=as_absolute, help="the later snapshot")
        for action in (read, sizes, diff):
            _add_reference(action)
        _add_filter(read)
        sizes.add_argument("--rows", action="store_true", help="also count the rows of the view")
        diff.add_argument("--sample", type=int, default=10, help="number of keys to show for each kind of change (10)")

    def handle(self, *args: Any, **options: Any) -> None:
        require("`manage.py state`", JOBMANAGER.packages)
        # The functions below check query, operator and view, because the allowed values depend on the snapshot.
        actions: dict[str, Callable[[dict[str, Any]], tuple[Any, Iterable[str]]]] = {
            "list": _list,
            "read": _read,
            "sizes": _sizes,
            "diff": _diff,
        }
        try:
            result, lines = actions[options["action"]](options)
        except (OSError, ValueError, JavaNotFound) as error:
            if options["json"]:  # the worker that shows the state on a page reads the reason
                self.stdout.write(json.dumps(StateReadReason.NOT_READ(problem=str(error)).as_json()))
            raise CommandError(str(error)) from error
        if options["json"]:
            self.stdout.write(json.dumps(dataclasses.asdict(result), default=_plain, ensure_ascii=False))
            return
        for line in lines:
            self.stdout.write(line)


def _add_reference(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--query", help="the name of the query")
    parser.add_argument("--operator", type=int, metavar="N", help="the number of the stateful operator in its query")
    parser.add_argument("--view", metavar="NAME", help="a state variable, timers, a side of a join, or a store")


def _add_filter(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--key", action="append", default=[], metavar="FIELD=TEXT", help="only rows whose key has this field value"
    )
    parser.add_argument("--contains", metavar="TEXT", help="only rows whose key contains this text")
    parser.add_argument("--partition", type=int, metavar="N")
    parser.add_argument("--where", metavar="SQL", help="a condition on key, map_key, value, expires_at and partition")
    parser.add_argument("--limit", type=int, default=100, help="maximum number of rows (100)")


def _plain(value: object) -> object:
    if isinstance(value, Enum):
        return value.value
    raise TypeError(f"{value!r} is not JSON")


# --- actions: each returns the result for JSON and its lines of text -------------------------------------------------
# Spark's packages are optional and slow to import, so each action imports what it needs.


def _list(options: dict[str, Any]) -> tuple[Any, Iterable[str]]:
    from checkpointing.state_reading.contents import contents_of

    contents = contents_of(options["path"])
    return contents, _contents_lines(contents)


def _read(options: dict[str, Any]) -> tuple[Any, Iterable[str]]:
    from checkpointing.state_reading.reading import StateFilter, ViewReference, read_state

    only = StateFilter(_key(options["key"]), options["contains"], options["partition"], options["where"])
    reference = ViewReference(options["query"], options["operator"], options["view"])
    found = read_state(options["path"], reference, only=only, limit=options["limit"])
    table = [
        [str(row.partition), _json(row.key), _json(row.map_key), _json(row.value), _json(row.expires_at)]
        for row in found.rows
    ]
    lines = _table(["partition", "key", "map key", "value", "expires at"], table)
    number = "1 row" if len(table) == 1 else f"{len(table)} rows"
    more = f"There are more than {number}; see --limit." if found.is_truncated else f"{number}."
    return found, [*lines, more]


def _sizes(options: dict[str, Any]) -> tuple[Any, Iterable[str]]:
    from checkpointing.state_reading.reading import ViewReference, state_sizes

    reference = ViewReference(options["query"], options["operator"], options["view"])
    sizes = state_sizes(options["path"], reference, rows=options["rows"])
    counted = options["rows"]
    table = [[str(p.index), str(p.bytes), str(p.files), str(p.rows) if counted else "–"] for p in sizes.partitions]
    skews = [f"bytes {_skew(sizes.skew_of_bytes)}"] + ([f"rows {_skew(sizes.skew_of_rows)}"] if counted else [])
    note = f"Largest partition against the mean: {', '.join(skews)}."
    return sizes, [*_table(["partition", "bytes", "files", "rows"], table), note]


def _diff(options: dict[str, Any]) -> tuple[Any, Iterable[str]]:
    from checkpointing.state_reading.difference import state_difference
    from checkpointing.state_reading.reading import ViewReference

    reference = ViewReference(options["query"], options["operator"], options["view"])
    found = state_difference(options["path"], options["after"], reference, sample=options["sample"])
    table = [
        [each.change.value, _json(each.key), _json(each.map_key), _json(each.before), _json(each.after)]
        for each in found.sample
    ]
    summary = (
        f"From {found.before_id} to {found.after_id}: {found.added} added, {found.removed} removed, "
        f"{found.changed} changed, {found.unchanged} as before."
    )
    return found, [summary, *(_table(["change", "key", "map key", "before", "after"], table) if table else [])]


def _key(entries: Sequence[str]) -> dict[str, str | None]:
    for entry in entries:
        if "=" not in entry:
            raise ValueError(f"--key {entry!r}: FIELD=TEXT is expected")
    return {field: text for field, _, text in (entry.partition("=") for entry in entries)}


# --- lines -----------------------------------------------------------------------------------------------------------


def _contents_lines(contents: SnapshotContents) -> Iterable[str]:
    batches = ", ".join(f"{query} after batch {batch}" for query, batch in contents.batches.items())
    yield f"{contents.kind} {contents.checkpoint_id} of job {contents.job_name} ({contents.job_id}): {batches}"
    for operator in contents.keyed:
        yield ""
        yield f"query {operator.query}, operator {operator.number}: {operator.name}"
        yield f"  {len(operator.partitions)} partitions, {operator.bytes} bytes"
        for view in operator.views:
            yield f"  {view.name}  {view.kind.value}{', with a time to live' if view.has_ttl else ''}"
    for holder in contents.operator_state:
        yield ""
        yield f"query {holder.query}, operator state of {holder.holder}: {holder.parallelism} subtasks"
        for state in holder.states:
            yield f"  {state.name}  {state.mode}  {_json(state.elements)}"
    if not contents.keyed and not contents.operator_state:
        yield "It holds no state beyond the sources' positions."


def _table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Return the lines of a table without the columns that are empty in every row."""
    used = [n for n in range(len(header)) if not rows or any(row[n] not in ("null", "–") for row in rows)]
    widths = [max(len(header[n]), *(len(row[n]) for row in rows), 0) for n in used]
    return [
        "  ".join(row[n].ljust(width) for n, width in zip(used, widths, strict=True)).rstrip()
        for row in [header, *rows]
    ]


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


def _skew(skew: float | None) -> str:
    return "–" if skew is None else f"{skew:.2f} times"
