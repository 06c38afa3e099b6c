"""`manage.py submit`: upload a program, run it, and wait for its start."""

from __future__ import annotations

import argparse
import shlex
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from checkpointing.jobs.known_keys import DIRECTORY
from checkpointing.jobs.launching.deployment import DEPLOY_MODE, LAUNCHER, DeployMode, LauncherKind, is_loopback
from checkpointing.model.driver_spec import is_script
from checkpointing.rest.client import JobManagerClient, JobManagerUnreachable, RequestRefused
from checkpointing.rest.rows_written_again import warning_of
from checkpointing.rest.submission import (
    JobFailed,
    Submission,
    follow,
    import_checkpoints,
    newest_batches,
    queries_writing_again,
)
from checkpointing.storage.locations import as_absolute
from dashboard.management.job_manager import ACCESS_HELP, WAIT_HELP, add_job_manager_option, job_manager_client

# The options of spark-submit and the job settings that they set, so that most spark-submit commands work with `submit`.
# Source: SparkSubmitArguments of Spark 4, which uses the same settings.
SPARK_SUBMIT_KEYS = {
    "--master": "spark.master",
    "--deploy-mode": "spark.submit.deployMode",
    "--py-files": "spark.submit.pyFiles",
    "--jars": "spark.jars",
    "--packages": "spark.jars.packages",
    "--exclude-packages": "spark.jars.excludes",
    "--repositories": "spark.jars.repositories",
    "--files": "spark.files",
    "--archives": "spark.archives",
    "--driver-memory": "spark.driver.memory",
    "--driver-cores": "spark.driver.cores",
    "--driver-java-options": "spark.driver.extraJavaOptions",
    "--driver-library-path": "spark.driver.extraLibraryPath",
    "--driver-class-path": "spark.driver.extraClassPath",
    "--executor-memory": "spark.executor.memory",
    "--executor-cores": "spark.executor.cores",
    "--num-executors": "spark.executor.instances",
    "--total-executor-cores": "spark.cores.max",
    "--queue": "spark.yarn.queue",
    "--principal": "spark.kerberos.principal",
    "--keytab": "spark.kerberos.keytab",
}
_FILES = ("--py-files", "--jars", "--files", "--archives")
EPILOG = f"""\
examples:
  manage.py submit script.py --conf execution.checkpointing.interval=10s -- localhost 9999
  manage.py submit wordcount.py:wordcount --arg input=/data/in --conf execution.checkpointing.interval=10s

A script runs as under spark-submit: the arguments after `--` are its sys.argv[1:]. `submit` also accepts these options
of spark-submit: {", ".join(SPARK_SUBMIT_KEYS)}.

The exit code is 0 if the job runs, or with --wait if it is FINISHED, and 1 if the job was refused or failed.
{ACCESS_HELP}"""


class Command(BaseCommand):
    help = "Submit a PySpark program to the job manager and wait until it runs."
    requires_system_checks = []  # noqa: RUF012  (Django's own form)
    script_arguments: tuple[str, ...] = ()

    def run_from_argv(self, argv: list[str]) -> None:
        """Keep the arguments after `--` for the program, because argparse would read them as arguments of `submit`."""
        own = argv[: argv.index("--")] if "--" in argv else argv
        self.script_arguments = tuple(argv[len(own) + 1 :])
        parser = self.create_parser(argv[0], argv[1])
        unknown = parser.parse_known_args(own[2:])[1]
        if unknown:
            words = shlex.join(unknown)
            parser.print_usage(sys.stderr)
            parser.exit(2, f"unrecognized arguments: {words}. Those of the program come after --, as in: -- {words}\n")
        super().run_from_argv(own)

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.formatter_class = argparse.RawDescriptionHelpFormatter
        parser.epilog = EPILOG
        parser.add_argument(
            "program",
            metavar="PROGRAM",
            help="SCRIPT.py, PROGRAM.py:FUNCTION, PROGRAM.zip:MODULE:FUNCTION, or PROGRAM.zip:MODULE for a script",
        )
        parser.add_argument(
            "--name", help="the job's name (default: pipeline.name, or the name of the function or script)"
        )
        parser.add_argument(
            "--arg", action="append", default=[], metavar="KEY=VALUE", help="an entry in the args of the program"
        )
        parser.add_argument(
            "--conf", action="append", default=[], metavar="KEY=VALUE", help="a Flink or spark.* setting"
        )
        for option in SPARK_SUBMIT_KEYS:
            parser.add_argument(option, dest=option, metavar="VALUE", help=argparse.SUPPRESS)
        for option, text in (
            ("--secret", "set the environment variable NAME to the content of FILE; pages and the API hide it"),
            ("--secret-file", "copy FILE to a private file, whose path is in the environment variable NAME_FILE"),
        ):
            parser.add_argument(option, action="append", default=[], metavar="NAME=FILE", help=text)
        parser.add_argument(
            "--requirements",
            metavar="FILE",
            help="a requirements file; the job manager creates one Python environment for each content",
        )
        parser.add_argument("--parallelism", type=int)
        parser.add_argument(
            "--directory",
            help="the directory for relative paths of the program, on the machine of the driver (default: the current "
            "directory, for a script whose driver runs on this machine)",
        )
        parser.add_argument(
            "--from-savepoint",
            metavar="LOCATION",
            help="a savepoint or retained checkpoint to start from: a path, or a URL such as s3://…",
        )
        parser.add_argument(
            "--from-checkpoint",
            action="append",
            default=[],
            metavar="[NAME=]LOCATION",
            help="a checkpoint location that Spark wrote without Waymark; it is copied and not changed. For a program "
            "with several queries, repeat the option with the name of each query",
        )
        parser.add_argument("--allow-non-restored-state", action="store_true")
        add_job_manager_option(parser)
        parser.add_argument("--timeout", type=float, default=300.0, help="seconds to wait until the job runs (300)")
        parser.add_argument("--wait", action="store_true", help=WAIT_HELP)

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            submission = _submission(options, self.script_arguments)
            client = job_manager_client(options["jobmanager"])
            jar_id = client.upload(submission.program)
            self.stdout.write(f"Uploaded {submission.program.name}.")
            if submission.savepoint is not None:
                self._warn_of_duplicate_rows(queries_writing_again(client, submission.savepoint))
            if submission.checkpoints:
                submission = replace(submission, savepoint=_imported(client, submission, options["timeout"]))
                self._report_copied_checkpoints(client, submission)
            job_id = client.run(jar_id, submission.request())
            self.stdout.write(f"Submitted: job {job_id}")
            self._follow(client, job_id, options["timeout"], until_finished=options["wait"])
        except OSError as error:
            raise CommandError(f"{error.filename or options['program']}: {error.strerror or error}") from error
        except JobFailed as error:
            if error.stack:
                self.stderr.write(error.stack)
            raise CommandError(str(error)) from error
        except (ValueError, JobManagerUnreachable, RequestRefused) as error:
            raise CommandError(str(error)) from error

    def _follow(self, client: JobManagerClient, job_id: str, timeout_s: float, *, until_finished: bool) -> None:
        clock = (time.monotonic, time.sleep)
        try:
            follow(client, job_id, self.stdout.write, *clock, timeout_s, until_finished=until_finished)
        except KeyboardInterrupt:
            self.stderr.write(f"Interrupted. The job continues; see: manage.py job show {job_id}")
            raise

    def _report_copied_checkpoints(self, client: JobManagerClient, submission: Submission) -> None:
        ending = "s" if len(submission.checkpoints) > 1 else ""
        self.stdout.write(f"Copied the checkpoint location{ending} to savepoint {submission.savepoint}")
        self.stdout.write("It stays until you delete it. To start from it again, use --from-savepoint.")
        for line in newest_batches(client, submission.checkpoints):
            self.stdout.write(line)
        self.stdout.write("Waymark cannot see whether the old job still runs. Make sure that it has stopped.")

    def _warn_of_duplicate_rows(self, again: Sequence[Mapping[str, Any]]) -> None:
        if again:
            self.stderr.write(warning_of(again))


def _imported(client: JobManagerClient, submission: Submission, timeout_s: float) -> str:
    return import_checkpoints(client, submission, time.monotonic, time.sleep, timeout_s)


def in_current_directory(submission: Submission, job_manager: str) -> Submission:
    """Return a script's submission with the current directory, in which spark-submit would run it.

    The submission is unchanged if it names a directory, if its program is a function, or if its driver runs on another
    machine.
    """
    elsewhere = (DEPLOY_MODE, DeployMode.CLUSTER.value), (LAUNCHER, LauncherKind.KUBERNETES.value)
    is_in_cluster = any(submission.settings.get(key, "").strip().lower() == value for key, value in elsewhere)
    is_here = is_loopback(job_manager) and not is_in_cluster
    if DIRECTORY in submission.settings or not is_script(submission.entry_class) or not is_here:
        return submission
    return replace(submission, settings={DIRECTORY: str(Path.cwd()), **submission.settings})


def _submission(options: dict[str, Any], script_arguments: tuple[str, ...]) -> Submission:
    directory = options["directory"]
    submission = Submission.parse(
        options["program"],
        name=options["name"],
        arguments=options["arg"],
        settings=[*_spark_submit_settings(options), *options["conf"]],
        parallelism=options["parallelism"],
        savepoint=options["from_savepoint"],
        allow_non_restored_state=options["allow_non_restored_state"],
        secrets=options["secret"],
        secret_files=options["secret_file"],
        more_arguments=script_arguments,
        checkpoints=options["from_checkpoint"],
        requirements=options["requirements"],
        directory=str(Path(directory).absolute()) if directory else None,
    )
    return in_current_directory(submission, options["jobmanager"])


def _spark_submit_settings(options: Mapping[str, Any]) -> Iterator[str]:
    """Yield `KEY=VALUE` for each option of spark-submit. Paths of files are relative to the current directory."""
    for option, key in SPARK_SUBMIT_KEYS.items():
        value = options.get(option)
        if value and option in _FILES:
            value = ",".join(as_absolute(file.strip()) for file in value.split(",") if file.strip())
        if value:
            yield f"{key}={value}"
