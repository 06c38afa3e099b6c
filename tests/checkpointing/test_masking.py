"""Secrets are found in configurations and command lines."""

import time

import pytest

from checkpointing.masking import HIDDEN, is_secret, mask_arguments, mask_text, mask_values

# flink-core 2.3, GlobalConfiguration.SENSITIVE_KEYS
FLINK_HIDES = [
    *("password", "secret", "fs.azure.account.key", "apikey", "api-key", "auth-params", "service-key", "token"),
    *("basic-auth", "jaas.config", "http-headers"),
]


@pytest.mark.parametrize("key", FLINK_HIDES)
def test_keys_that_flink_hides_are_secret(key: str) -> None:
    assert is_secret(f"my.{key.upper()}.one")


def test_values_of_secret_keys_are_hidden_and_others_are_not() -> None:
    values = {"fs.s3a.secret.key": "abc", "parallelism.default": 2, "my.token": "", "my.password": None}
    masked = {"fs.s3a.secret.key": HIDDEN, "parallelism.default": 2, "my.token": "", "my.password": None}
    assert mask_values(values) == masked


@pytest.mark.parametrize(
    ("name", "value"), [("A", "x"), ("KEY_FILE", "/secret"), ("TOKENS", "12"), ("B", "true"), ("PWD", "x")]
)
@pytest.mark.parametrize("prefix", ["waymark.secret.", "waymark.secret-file."])
def test_a_secret_of_a_job_is_hidden_for_every_name_and_value(prefix: str, name: str, value: str) -> None:
    assert mask_values({prefix + name: value}) == {prefix + name: HIDDEN}


def test_the_password_in_an_address_is_hidden() -> None:
    assert mask_values({"broker": "redis://user:abc@host:1/0"}) == {"broker": f"redis://user:{HIDDEN}@host:1/0"}


def test_secret_arguments_are_hidden_in_both_spellings() -> None:
    assert mask_arguments(["--password=abc", "--token", "def", "--rows", "7", "--secret", "--rows"]) == [
        f"--password={HIDDEN}",
        *("--token", HIDDEN, "--rows", "7", "--secret", "--rows"),
    ]


def test_the_replacement_gets_the_key_and_the_value() -> None:
    seen: list[tuple[str, object]] = []
    mask_arguments(["--password=abc", "--token", "def"], lambda key, value: seen.append((key, value)) or "")
    assert seen == [("password", "abc"), ("token", "def")]


S = "S3cr3t-Value9"  # must never be shown
IN_VALUES = [
    f"jdbc:postgresql://db:5432/flights?user=u&password={S}",
    f"jdbc:postgresql://db:5432/flights?password={S}&ssl=true",
    f"jdbc:mysql://u:{S}@db/flights",
    f"jdbc:sqlserver://db:1433;user=u;password={S};encrypt=true",
    f"jdbc:oracle:thin:u/{S}@//db:1521/orcl",
    f"postgresql://u:{S}/with@signs@db/flights".replace("/with", "-with"),
    f"redis://:{S}@cache:6379/0",
    f"host=db user=u password={S} dbname=flights",
    f"host=db user=u password='{S} with space' dbname=flights",
    f"-Djavax.net.ssl.keyStorePassword={S}",
    f"-Xmx2g -Djavax.net.ssl.trustStorePassword={S} -Dx=1",
    f"-XX:+UseG1GC -Dmy.api-key={S}",
    f"DefaultEndpointsProtocol=https;AccountName=a;AccountKey={S}==;EndpointSuffix=core.windows.net",
    f"Endpoint=sb://x.servicebus.windows.net/;SharedAccessKeyName=n;SharedAccessKey={S}=",
    f"Server=tcp:db;Database=f;User ID=u;Password={S} with space;Encrypt=True",
    f"https://a.blob.core.windows.net/c?sv=2024-11-04&sr=c&sig={S}%3D",
    f"https://b.s3.amazonaws.com/k?X-Amz-Algorithm=AWS4&X-Amz-Signature={S}",
    f"https://example.org/hook?token={S}",
    f'{{"user": "u", "password": "{S}"}}',
    f'{{"db": {{"credentials": {{"secret": "{S}", "n": 1}}}}}}',
    f"{{'user': 'u', 'passwd': '{S}'}}",
    f'{{\\"password\\": \\"{S}\\"}}',
    f"Authorization: Bearer {S}",
    f"Authorization: Basic {S}==",
    f"authorization={S}",
    f"-H 'X-Api-Key: {S}' https://example.org",
    f"curl -H 'Authorization: Bearer {S}' https://example.org",
    f"Bearer {S}",
    f"tool --password {S} --rows 7",
    f"tool --password={S} --rows 7",
    f"PGPASS={S} psql",
    f"DB_PWD={S} ./run.sh",
    f'KafkaLoginModule required username="u" password="{S}";',
    f"-----BEGIN RSA PRIVATE KEY-----\n{S}\n-----END RSA PRIVATE KEY-----",
    f"https://hooks.slack.com/services/T000/B000/{S.replace('-', '')}",
    "eyJhbGciOiJIUzI1NiJ9.S3cr3tpayload00.S3cr3tsignature",
    "https://ghp_S3cr3t567890123456789012345678901234@github.com/o/r",
]


@pytest.mark.parametrize("value", IN_VALUES)
def test_a_secret_within_a_value_is_hidden_for_every_key(value: str) -> None:
    for masked in (
        mask_values({"my.setting": value})["my.setting"],
        *mask_arguments(["--url", value]),
        *mask_arguments([f"--conf=spark.my.setting={value}"]),
        str(mask_values({"nested": {"list": [value, {"deep": value}]}})),
    ):
        assert not [part for part in ("S3cr3t", "Value9", "with space", "signs") if part in masked], masked
    assert HIDDEN in mask_values({"my.setting": value})["my.setting"]


@pytest.mark.parametrize(
    ("value", "masked"),
    [
        (
            "jdbc:postgresql://db/f?user=u&password=abc&ssl=true",
            f"jdbc:postgresql://db/f?user=u&password={HIDDEN}&ssl=true",
        ),
        ("jdbc:sqlserver://db;password=abc;encrypt=true", f"jdbc:sqlserver://db;password={HIDDEN};encrypt=true"),
        ("-Xmx2g -Dx.password=abc -Dy=1", f"-Xmx2g -Dx.password={HIDDEN} -Dy=1"),
        ('{"password": "abc", "rows": 7}', f'{{"password": "{HIDDEN}", "rows": 7}}'),
        ("Authorization: Bearer abc123, Accept: text/plain", f"Authorization: Bearer {HIDDEN}, Accept: text/plain"),
    ],
)
def test_text_next_to_a_secret_is_not_masked(value: str, masked: str) -> None:
    assert mask_values({"my.setting": value}) == {"my.setting": masked}


@pytest.mark.parametrize(
    "key",
    [
        "--pass",
        "--pwd",
        "PGPASS",
        "passphrase",
        "DB_PWD",
        "dbPass",
        "spark.executorEnv.PGPASSWORD",
        "x.apiKey",
        "SharedAccessKey",
        "fs.azure.sas.container.account.blob.core.windows.net",
        "ssl.private-key",
    ],
)
def test_keys_of_secrets_are_known(key: str) -> None:
    assert is_secret(key)
    assert mask_values({key: "abc"}) == {key: HIDDEN}


READABLE = {
    "execution.checkpointing.interval": "10s",
    "fs.s3a.aws.credentials.provider": "org.apache.hadoop.fs.s3a.SimpleAWSCredentialsProvider",
    "security.kerberos.login.keytab": "/etc/flink.keytab",
    "db.password-file": "/run/secrets/db",
    "spark.ssl.enabled": "true",
    "security.delegation.tokens.enabled": "true",
    "llm.max_tokens": "4096",
    "spark.kubernetes.kerberos.tokenSecret.name": "hadoop-token",
    "containerized.master.env.PWD": "/opt/flink",
    "PWD": "/opt/flink",
    "compass": "north",
    "bypass": "none of it",
    "private.network": "10.0.0.0/8",
    "url": "jdbc:postgresql://db:5432/flights?user=u&ssl=true",
    "mail": "smtp://mail.example.org:25?from=a@example.org",
    "git": "ssh://git@github.com/o/r",
    "address": "http://host:8080/a@b",
    "opts": "-Xmx2g -XX:+UseG1GC -Duser.timezone=UTC -Dx.y=1;z",
    "json": '{"rows": 7, "keyed": true, "keys": ["a", "b"], "passengers": 3}',
    "prose": "Passwords: none. A token bucket limits the rate; the secret: there is none.",
    "bearer": "bearer authentication is off",
    "query": "select * from t where key = 'a' and pass_count = 3",
    "path": "s3://bucket/tokens/secret/part-0001.parquet",
    "class": "com.example.SecretSharing",
    "id": "AKIAIOSFODNN7EXAMPLE",
    "uuid": "550e8400-e29b-41d4-a716-446655440000",
    "number": 7,
    "yes": True,
    "nothing": None,
    "arguments": ["--rows", "7", "--input", "/data/x", "-v", "--no-password", "--user", "1000:1000"],
}


def test_text_without_secrets_is_not_masked() -> None:
    assert mask_values(READABLE) == READABLE


@pytest.mark.parametrize(
    ("arguments", "masked"),
    [
        (["--password", "-SECRET"], ["--password", HIDDEN]),
        (["--pass", "abc", "--pwd", "def"], ["--pass", HIDDEN, "--pwd", HIDDEN]),
        (["-u", "me:abc", "https://example.org"], ["-u", f"me:{HIDDEN}", "https://example.org"]),
        (["--token", "-rows", "7"], ["--token", "-rows", "7"]),
        (["--token", "-Dx=1", "-v"], ["--token", "-Dx=1", "-v"]),
        (["sh", "-c", "tool --secret abc"], ["sh", "-c", f"tool --secret {HIDDEN}"]),
        (["-H", "Authorization: Bearer abcdef12"], ["-H", f"Authorization: Bearer {HIDDEN}"]),
    ],
)
def test_secrets_of_a_command_line_are_hidden(arguments: list[str], masked: list[str]) -> None:
    assert mask_arguments(arguments) == masked


LONG = 100_000
HOSTILE = [
    *("a", "aB3/+", "password=", "password='", "?token&", "http://", "a://b:", "--token ", "bearer ", "eyJaaaaaaaa."),
    *("-----BEGIN PRIVATE KEY-----", "authorization:", "jdbc:oracle:a:u/", '\\"password\\":\\"', "a.", "password "),
]


@pytest.mark.parametrize("part", HOSTILE)
def test_a_long_text_is_searched_in_time(part: str) -> None:
    """The time must grow linearly with the length. With quadratic growth the search took over ten seconds."""
    started = time.thread_time()
    mask_text(part * (LONG // len(part)))
    assert time.thread_time() - started < 5
