"""Reasons why a job cannot be started with its launch record, and outcomes of its launch command."""

from __future__ import annotations

from django.utils.translation import gettext_noop as _

from monitoring.reasons.reason import ReasonCode


class LaunchReason(ReasonCode):
    # A bad launch record: the field, its value, and what is allowed.
    BAD_FIELD = "launch.bad-field", _("launch.{field} is {value}: {allowed}.")
    START_UNKNOWN = (
        "launch.start-unknown",
        _("Waymark does not know how this job was started, so it cannot start it"),
    )
    SECRET_UNREADABLE = (
        "launch.secret-unreadable",
        _("it contains a secret that none of the configured keys can decrypt: enter the secret again"),
    )
    KIND_NEEDED = "launch.kind-needed", _("one of {kinds} is needed")
    PROGRAM_NEEDED = (
        "launch.program-needed",
        _("a program is needed: the id of one on the cluster, or a new one"),
    )
    TEXTS_NEEDED = "launch.texts-needed", _("a list of texts is needed")
    PAIRS_NEEDED = "launch.pairs-needed", _("keys and values are needed")
    COUNT_NEEDED = "launch.count-needed", _("a whole number from 1 is needed, or nothing")
    COUNT_IS_USED = "launch.count-is-used", _("a whole number from 1 is needed: the command uses {place}")
    COUNT_IS_NOT_USED = (
        "launch.count-is-not-used",
        _("leave this empty, or use {place} in an argument of the command"),
    )
    SECONDS_NEEDED = (
        "launch.seconds-needed",
        _("a whole number of seconds from {shortest} to {longest} is needed, or nothing"),
    )

    # The command in a launch record.
    ARGUMENTS_NEEDED = "launch.arguments-needed", _("a list of arguments is needed, the program first")
    ABSOLUTE_PATH_NEEDED = "launch.absolute-path-needed", _("the program's absolute path is needed")
    SAVEPOINT_NEEDED = (
        "launch.savepoint-needed",
        _("{place} is needed in an argument: the command always starts the job from a snapshot"),
    )
    ARGUMENT_TOO_LONG = "launch.argument-too-long", _("an argument can have at most {most} characters")
    FOR_A_SHELL = (
        "launch.for-a-shell",
        _("{found} is shell syntax, but the command runs without a shell: enter each argument separately"),
    )
    BRACES_DO_NOT_MATCH = (
        "launch.braces-do-not-match",
        _("its braces do not match ({error}); write {{{{ and }}}} for braces"),
    )
    UNKNOWN_PLACE = "launch.unknown-place", _("{name} does not exist; use one of {known}")

    # The command is not run.
    NO_SAVEPOINT = (
        "launch.no-savepoint",
        _("a launch command starts a job only from a savepoint, and there is none"),
    )
    NO_SUCH_PROGRAM = (
        "launch.no-such-program",
        _("{program} does not exist on this worker or is not executable"),
    )
    PROGRAM_NOT_RUN = "launch.program-not-run", _("{program} could not be run: {error}")
    READ_AS_CODE = (
        "launch.read-as-code",
        _(
            "{place} is {value}, which {program} could read as code; let the command read the environment variable "
            "{name} instead"
        ),
    )
    READ_AS_OPTION = (
        "launch.read-as-option",
        _(
            "{place} is {value}, which would be read as an option; let the command read the environment variable "
            "{name} instead"
        ),
    )

    # The command was run.
    NO_JOB_ID = "launch.no-job-id", _('The command succeeded but printed no "JobID …": {said}')
    COMMAND_KILLED = "launch.command-killed", _("{program} did not end within {limit_s:g} s and was killed.")
    COMMAND_FAILED = "launch.command-failed", _("{program} failed with exit code {code}: {said}")
    PRINTED_NOTHING = "launch.printed-nothing", _("it printed nothing")
