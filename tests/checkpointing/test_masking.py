"""Finding the secrets of configurations and command lines."""

import pytest

from checkpointing.masking import HIDDEN, is_secret, mask_arguments, mask_values

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
