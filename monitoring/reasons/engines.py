"""Reasons for failed requests to an engine, or to ZooKeeper for its leader, and for the results of a cluster's test."""

from __future__ import annotations

from django.utils.translation import gettext_noop as _

from monitoring.marking import plural as ngettext
from monitoring.reasons.reason import ReasonCode


class EngineReason(ReasonCode):
    # No answer.
    NOT_LISTENING = "engines.not-listening", _("{url} cannot be reached: nothing listens there.")
    NOT_CONNECTED = "engines.not-connected", _("{url} cannot be reached: the connection timed out.")
    NOT_REACHED = "engines.not-reached", _("{url} cannot be reached: {error}")
    HUNG_UP = "engines.hung-up", _("{url} accepted the connection and closed it without a response.")
    BROKE_OFF = "engines.broke-off", _("{url} closed the connection in the middle of its response.")
    TOO_SLOW = "engines.too-slow", _("{url} did not answer {path} within {limit_s:g} s.")
    CALL_TOO_SLOW = "engines.call-too-slow", _("{url} did not answer within {limit_s:g} s.")
    NOT_HTTP = "engines.not-http", _("{url} answers with something that is not HTTP.")
    NOT_HTTP_BUT_HTTPS = (
        "engines.not-http-but-https",
        _("{url} answers with something that is not HTTP; is it meant to be https://?"),
    )
    NOT_TLS = "engines.not-tls", _("{url} does not speak TLS; is it meant to be http://?")
    CERTIFICATE_REQUIRED = (
        "engines.certificate-required",
        _("{url} requires a client certificate that it trusts ({words})."),
    )
    BAD_CERTIFICATE = "engines.bad-certificate", _("The certificate of {url} {problem}.")
    NOT_VALID_YET = "engines.not-valid-yet", _("is not valid yet; are the clocks right?")
    EXPIRED = "engines.expired", _("has expired")
    SELF_SIGNED = "engines.self-signed", _("is self-signed; enter it as the CA bundle to trust it")
    UNKNOWN_AUTHORITY = (
        "engines.unknown-authority",
        _("is issued by an authority that is not trusted; enter the authority's certificate as the CA bundle"),
    )
    REVOKED = "engines.revoked", _("has been revoked")
    OTHER_HOST = "engines.other-host", _("is for another host ({detail})")
    UNTRUSTED = "engines.untrusted", _("is not trusted: {detail}")

    # Unusable answers.
    HTTP_STATUS = "engines.http-status", _("The server responds to {path} with HTTP {status}.")
    REDIRECTS = (
        "engines.redirects",
        _("HTTP {status}: the address redirects to {location}; enter that address instead."),
    )
    REDIRECTS_ELSEWHERE = (
        "engines.redirects-elsewhere",
        _("HTTP {status}: the address redirects elsewhere; enter the target address instead."),
    )
    BAD_RANGE = "engines.bad-range", _("The answer to {path} has the Content-Range {text!r}.")
    WEB_PAGE = "engines.web-page", _("The answer to {path} is a web page, not JSON.")
    TOO_LARGE = "engines.too-large", _("The answer to {path} is larger than {limit} bytes.")
    NOT_JSON = "engines.not-json", _("The answer is not JSON: {error}")
    NOT_A_NUMBER = "engines.not-a-number", _("{text} is not a JSON number")
    NUMBER_TOO_LARGE = "engines.number-too-large", _("{text} is too large a number")
    FIELD_MISSING = "engines.field-missing", _("{where} has no field {name!r}.")
    FIELD_NULL = "engines.field-null", _("{where} is null, not {expected}.")
    FIELD_TYPE = "engines.field-type", _("{where} is {found}, not {expected}.")
    OUT_OF_RANGE = "engines.out-of-range", _("{where} is out of range.")
    NOT_AN_IDENTIFIER = "engines.not-an-identifier", _("{where} is not an identifier.")
    NOT_A_LIST = "engines.not-a-list", _("{where} is not a list.")
    TOO_DEEP = "engines.too-deep", _("{where} is nested more than {most} deep.")
    NOT_A_JOB_STATE = "engines.not-a-job-state", _("{value!r} is not a job state.")
    NOT_A_CHECKPOINT_ID = "engines.not-a-checkpoint-id", _("{value} is not a checkpoint id.")
    NOT_ONE_OF = "engines.not-one-of", _("{name} is {value!r}; expected one of {allowed}.")
    WITHOUT_RESULT = "engines.without-result", _("The operation is COMPLETED without a result.")
    FLAG = "engines.flag", _("true or false")
    NUMBER = "engines.number", _("a number")
    WHOLE_NUMBER = "engines.whole-number", _("a whole number")
    TEXT = "engines.text", _("a text")
    TIME = "engines.time", _("a time")
    LIST = "engines.list", _("a list")
    TEXTS = "engines.texts", _("a list of texts")
    OBJECT = "engines.object", _("an object")

    # A run that the engine does not know.
    JOB_UNKNOWN = (
        "engines.job-unknown",
        _("The engine responds but does not know the job: {polls} polls in {seconds} s."),
    )
    NO_JOB_KNOWN = (
        "engines.no-job-known",
        _("The engine responds but knows no jobs at all: {polls} polls in {seconds} s."),
    )
    NOT_LISTED = "engines.not-listed", _("The engine no longer lists the job, but still knows its id.")
    CLUSTER_ENDED = "engines.cluster-ended", _("The cluster has ended with its job.")
    ARCHIVED = "engines.archived", _("The History Server {url} reports the end of the job: {state}.")
    WITHOUT_ARCHIVES = "engines.without-archives", _("{why} The History Server cannot be read: {problem}")
    CANCELED = "engines.canceled", _("The cluster accepted the request to cancel the job, and no longer runs it.")
    FIRST_SEEN = "engines.first-seen", _("Seen for the first time.")
    NAMED_AGAIN = "engines.named-again", _("The engine lists the job again, under the same id.")
    SEEN_THROUGH = "engines.seen-through", _("The query is seen through {cluster} from now on.")
    CONTINUED_BY = "engines.continued-by", _("Waymark continues the query as a job of {cluster}.")
    SEEN_AS_ANOTHER = "engines.seen-as-another", _("Another job has the query: Waymark also sees it in another way.")
    ENDED_AGAIN = "engines.ended-again", _("The job came back and ended again.")
    RESTARTED_FROM_CHECKPOINT = (
        "engines.restarted-from-checkpoint",
        _("The engine restarted the job from checkpoint {number}"),
    )
    RESTARTED_FROM_SAVEPOINT = (
        "engines.restarted-from-savepoint",
        _("The engine restarted the job from savepoint {number}"),
    )
    RESTARTED_AFTER = "engines.restarted-after", _("The engine restarted the job after: {cause}")
    NOT_READ_TO_END = "engines.not-read-to-end", _("the read did not finish within {limit_s:g} s")
    PROBLEMS = "engines.problems", "{problems:clauses}"

    # Where a Spark cluster keeps the rest of a log, by the code that Waymark's job manager sends.
    LOGS_STANDALONE = (
        "engines.logs-standalone",
        _(
            "The cluster keeps the logs of the executors: open the application in the web UI of the Spark "
            "master, or see the work/ directory of each worker."
        ),
    )
    LOGS_YARN = (
        "engines.logs-yarn",
        _(
            "The cluster keeps the logs of the executors: run yarn logs -applicationId with the application "
            "id from the driver's log."
        ),
    )
    LOGS_YARN_DRIVER = (
        "engines.logs-yarn-driver",
        _(
            "The cluster keeps the logs of the driver and the executors: run yarn logs -applicationId with "
            "the application id from the driver's log."
        ),
    )
    LOGS_KUBERNETES = (
        "engines.logs-kubernetes",
        _("The cluster keeps the logs of the executors: run kubectl logs with the name of the pod."),
    )
    LOGS_KUBERNETES_DRIVER = (
        "engines.logs-kubernetes-driver",
        _("The cluster keeps the logs of the driver and the executors: run kubectl logs with the name of the pod."),
    )

    # Looking up the leader in ZooKeeper.
    LEADER_UNKNOWN = "engines.leader-unknown", _("The leader of {cluster} is unknown. {why}")
    LEADER_UNKNOWN_NO_ANSWER = (
        "engines.leader-unknown-no-answer",
        _("The leader is unknown. {why} The last known address: {answer}"),
    )
    ZOOKEEPER_NOT_ASKED = "engines.zookeeper-not-asked", _("Waymark has not queried ZooKeeper yet.")
    ZOOKEEPER_SILENT = "engines.zookeeper-silent", _("ZooKeeper at {hosts} does not answer.")
    ZOOKEEPER_SILENT_TLS = "engines.zookeeper-silent-tls", _("ZooKeeper at {hosts} does not answer over TLS.")
    ZOOKEEPER_NO_TLS = "engines.zookeeper-no-tls", _("ZooKeeper at {hosts} does not answer over TLS: {why}.")
    ZOOKEEPER_LOG_IN_REFUSED = (
        "engines.zookeeper-log-in-refused",
        _("ZooKeeper at {hosts} does not accept this name and password."),
    )
    NODE_NOT_READABLE = (
        "engines.node-not-readable",
        _("ZooKeeper denies Waymark access to {path}: another name or password is needed."),
    )
    NODE_NOT_OURS = (
        "engines.node-not-ours",
        _(
            "Users other than {name} can change {path} in ZooKeeper, so no password is sent to the address "
            "stored there."
        ),
    )
    NODE_EMPTY = "engines.node-empty", _("According to ZooKeeper there is no leader now ({path} is empty).")
    NODE_MISSING = "engines.node-missing", _("According to ZooKeeper there is no leader now (it has no node {path}).")
    NODE_MALFORMED = "engines.node-malformed", _("{problem} ({path})")
    NODE_BAD_ADDRESS = (
        "engines.node-bad-address",
        _("The leader's node contains {address!r}, which is not an address: {why}"),
    )
    NODE_LONG_ADDRESS = (
        "engines.node-long-address",
        _("The leader's node contains an address of {count} characters."),
    )
    NODE_JSON_WITHOUT_ADDRESS = (
        "engines.node-json-without-address",
        _("The leader's node contains JSON without an address."),
    )
    NODE_JSON_BAD_ADDRESS = (
        "engines.node-json-bad-address",
        _("The leader's node contains JSON whose address is not a string."),
    )
    NODE_NOT_JAVA = "engines.node-not-java", _("The leader's node does not have Java's format.")
    NODE_BAD_START = (
        "engines.node-bad-start",
        _("The leader's node does not begin with an address."),
    )
    NODE_CUT_SHORT = "engines.node-cut-short", _("The leader's node is truncated.")
    NODE_BAD_TERM = (
        "engines.node-bad-term",
        _("The leader's node has no valid term after the address."),
    )
    NODE_UNREADABLE = "engines.node-unreadable", _("The leader's node is truncated or is not an address.")
    JOB_STORED = "engines.job-stored", _("ZooKeeper still stores {job_id} for the next leader to start.")

    # A directory of checkpoint locations.
    ONLY_WATCHED = (
        "engines.only-watched",
        _("Waymark only watches this query, and cannot start, stop or save it"),
    )
    ONLY_SAVED = (
        "engines.only-saved",
        _("Waymark only watches and saves this query, and cannot start or stop it"),
    )
    ROOT_NOT_ALLOWED = (
        "engines.root-not-allowed",
        _("{root} is not below a directory of WAYMARK_STATE_ROOTS, so Waymark does not read it."),
    )
    ROOT_MISSING = (
        "engines.root-missing",
        _("{root} does not exist, or holds nothing although queries were found there. Is its storage mounted?"),
    )
    ROOT_UNREADABLE = "engines.root-unreadable", _("The directory cannot be listed. {error}")
    NOT_SCANNED_YET = "engines.not-scanned-yet", _("The first scan of {root} has not ended.")
    LOCATION_UNKNOWN = "engines.location-unknown", _("The query {query} has no checkpoint location any more.")
    NO_SUCH_COPY = "engines.no-such-copy", _("No savepoint was requested with the trigger ID {trigger}.")
    FOUND_QUERIES = (
        "engines.found-queries",
        ngettext("{count} streaming query found", "{count} streaming queries found", "count"),
    )
    SCAN_CONTINUES = (
        "engines.scan-continues",
        _("The scan has not ended. Waymark continues it, and adds the queries that it finds."),
    )

    # Reports of the agent.
    REPORT_VERSION = (
        "engines.report-version",
        _("{where} is {found}, but this version of Waymark reads {known}. Use the agent of the same version."),
    )
    TOO_MANY = "engines.too-many", _("{where} has more than {most} entries.")
    TOO_LONG = "engines.too-long", _("{where} has more than {most} characters.")
    NOT_A_TIME = "engines.not-a-time", _("{where} is not a time with a time zone.")
    RUN_NOT_REPORTED = "engines.run-not-reported", _("No program reports the run {run} any more.")

    # The cluster's identity.
    NAMES = "engines.names", "{names}"
    NAMES_AT = "engines.names-at", _("{names} at {servers}")
    NAMELESS = "engines.nameless", _("no name")
    PATH = "engines.path", _("path {path}")
    ANOTHER_CLUSTER = (
        "engines.stranger",
        _(
            "Another cluster answers at {url}: it was {known}, and is now {found}. Waymark draws no "
            "conclusions about its jobs until somebody confirms that this is the same cluster, rebuilt."
        ),
    )

    # A test of a cluster.
    PYSPARK = "engines.pyspark", _("PySpark, by Waymark's job manager")
    WITHOUT_JOBS = "engines.without-jobs", _("Flink REST API {version}, no jobs")
    WITH_JOBS = "engines.with-jobs", _("Flink REST API {version}, jobs: {jobs}")
    NOT_READY = "engines.not-ready", _("The server is running but not ready: {why}")
    HUNG_UP_BUT_HTTPS = "engines.hung-up-but-https", _("{why} Is it meant to be https://?")
    NOT_FLINK = "engines.not-flink", _("A server answers there, but not with Flink's REST API. {why}")
    NO_OVERVIEW = (
        "engines.no-overview",
        _("A server answers there, but not with Flink's REST API: it has no /overview. Is a part of the path missing?"),
    )
    NO_HISTORY_SERVER = (
        "engines.no-history-server",
        _("A server answers there, but it is not Flink's History Server. Enter an address such as http://host:8082."),
    )
    BEHIND_PROXY = (
        "engines.behind-proxy",
        _("A proxy answers there, but the cluster behind it does not (HTTP {status})."),
    )
    SERVER_ERROR = "engines.server-error", _("A server answers there, but with an error: {why}")
    LOG_IN_PAGE = (
        "engines.log-in-page",
        _("The address redirects to a log-in page ({location}): enter an address that accepts a token or a password."),
    )
    TOKEN_REFUSED = "engines.token-refused", _("The server does not accept this token (HTTP {status}).")
    PASSWORD_REFUSED = (
        "engines.password-refused",
        _("The server does not accept this name and password (HTTP {status})."),
    )
    LOG_IN_NEEDED = (
        "engines.log-in-needed",
        _("The server needs a log-in (HTTP {status}): a token, or a name and a password."),
    )
    TOKEN_UNENCRYPTED = (
        "engines.token-unencrypted",
        _("The token is sent to {host} without encryption. Use an https:// address."),
    )
    PASSWORD_UNENCRYPTED = (
        "engines.password-unencrypted",
        _("The password is sent to {host} without encryption. Use an https:// address."),
    )
    NO_CONFIGURATION = (
        "engines.no-configuration",
        _("The cluster does not show its configuration, so Waymark cannot detect another cluster at this address."),
    )
    NO_SAVEPOINT_DIRECTORY = (
        "engines.no-savepoint-directory",
        _("The cluster has no default directory for savepoints, so each savepoint request needs a directory."),
    )
    STATE_NOT_REACHED = (
        "engines.state-not-reached",
        _(
            "WAYMARK_STATE_ROOTS has no entry for {where}. Waymark does not check snapshots there before a "
            "restart, and guesses the numbers of checkpoints that no poll saw."
        ),
    )
    ITS_STATE = "engines.its-state", _("its state")
    NO_PROGRAMS = (
        "engines.no-programs",
        _(
            "The cluster does not accept programs (web.submit.enable): Waymark can monitor its jobs and take "
            "savepoints, but cannot start jobs."
        ),
    )
    NO_CANCEL = (
        "engines.no-cancel",
        _("The cluster does not allow jobs to be cancelled from outside (web.cancel.enable)."),
    )
    VERSION_UNREADABLE = (
        "engines.version-unreadable",
        _("The version {version!r} is not recognized. Waymark treats the cluster as a recent Flink version."),
    )
    VERSION_TOO_OLD = (
        "engines.version-too-old",
        _(
            "Flink {version} is older than {oldest}, the oldest version that Waymark supports: some data may "
            "be missing."
        ),
    )
    VERSION_TOO_NEW = (
        "engines.version-too-new",
        _("Flink {version} is newer than {newest}, the newest version that Waymark is tested with."),
    )
    CLOCK_AHEAD = "engines.clock-ahead", _("Its clock is {seconds:.0f} s ahead of Waymark's.")
    CLOCK_BEHIND = "engines.clock-behind", _("Its clock is {seconds:.0f} s behind Waymark's.")
