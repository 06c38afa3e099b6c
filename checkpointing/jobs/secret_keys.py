"""The keys that encrypt the secrets of jobs wherever the job manager stores them (Fernet: AES-128-CBC with an HMAC).

A job's graph holds `waymark.secret.*` and `waymark.secret-file.*` encrypted (sealed), in memory and in every store.
They are decrypted for a driver that starts, and for `/jobs/:id/launch`. Drivers do not import this module.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path

from cryptography.fernet import Fernet, InvalidToken, MultiFernet

from checkpointing.durable_files import make_directory, sync
from checkpointing.ids import new_id
from checkpointing.masking import HIDDEN
from checkpointing.model.job_environment import SEALED, is_declared_secret
from checkpointing.model.job_graph import JobGraph

SETTING = "WAYMARK_JOBMANAGER_SECRET_KEYS"
FILE_NAME = "secret-key"


class SecretUnreadable(Exception):
    """No key decrypts a stored secret. The text names the secret and says what to do."""


class SecretKeys:
    """The keys. The first one encrypts, and all of them decrypt. Usable on any thread."""

    def __init__(self, keys: Iterable[str]) -> None:
        """Raise ValueError for a text that is not a key."""
        self._keys = [Fernet(key) for key in keys]
        self._all = MultiFernet(self._keys)

    @classmethod
    def read(cls, configured: Iterable[str], state_directory: Path) -> SecretKeys:
        """Return the configured keys and the one in the state directory. Create the latter if no key is configured.

        Raise OSError, or ValueError if the file in the state directory does not contain a key.
        """
        keys, file = list(configured), state_directory / FILE_NAME
        if not keys:
            _make(file)
        with contextlib.suppress(FileNotFoundError):
            keys.append(file.read_text().strip())
        return cls(keys)

    def seal(self, graph: JobGraph) -> JobGraph:
        """Return the graph with its secrets encrypted by the first key. One that no key decrypts stays unchanged."""
        return replace(graph, configuration={key: self._sealed(key, text) for key, text in graph.configuration.items()})

    def seal_new(self, graph: JobGraph) -> JobGraph:
        """Return the graph of a new job with its plain secrets encrypted."""
        configuration = {
            key: self._seal(text) if is_declared_secret(key) else text for key, text in graph.configuration.items()
        }
        return replace(graph, configuration=configuration)

    def opened(self, configuration: Mapping[str, str]) -> dict[str, str]:
        """Return the configuration with plain secrets. Raise SecretUnreadable."""
        return {key: self._open(key, text) if is_declared_secret(key) else text for key, text in configuration.items()}

    def opened_or_hidden(self, configuration: Mapping[str, str]) -> dict[str, str]:
        """Return the configuration with plain secrets. A secret that no key decrypts becomes HIDDEN."""
        opened: dict[str, str] = {}
        for key, text in configuration.items():
            try:
                opened |= self.opened({key: text})
            except SecretUnreadable:
                opened[key] = HIDDEN
        return opened

    def _sealed(self, key: str, text: str) -> str:
        if not is_declared_secret(key) or self._is_sealed_with_newest_key(text):
            return text
        try:
            return self._seal(self._open(key, text))
        except SecretUnreadable:
            return text

    def _is_sealed_with_newest_key(self, text: str) -> bool:
        if not text.startswith(SEALED):
            return False
        try:
            self._keys[0].decrypt(text.removeprefix(SEALED))
        except InvalidToken:
            return False
        return True

    def _seal(self, plain: str) -> str:
        return SEALED + self._all.encrypt(plain.encode()).decode()

    def _open(self, key: str, text: str) -> str:
        """Return the decrypted text, or a plain text unchanged."""
        if not text.startswith(SEALED):
            return text
        try:
            return self._all.decrypt(text.removeprefix(SEALED)).decode()
        except InvalidToken:
            raise SecretUnreadable(
                f"{key} cannot be decrypted with the keys of this job manager. Add the key that it had before to "
                f"{SETTING} and restart the job manager, or submit the job again with the secret."
            ) from None


def check_key(text: str) -> None:
    """Raise ValueError for a text that is not a key."""
    Fernet(text)


def _make(file: Path) -> None:
    """Create a key file for this account only, unless one exists. Job managers that start together use one file."""
    if file.exists():
        return
    make_directory(file.parent)
    temporary = file.with_name(f".{new_id()}")
    try:
        with open(temporary, "xb", opener=lambda path, flags: os.open(path, flags, 0o600)) as written:
            written.write(Fernet.generate_key())
            written.flush()
            os.fsync(written.fileno())
        with contextlib.suppress(FileExistsError):
            file.hardlink_to(temporary)
    finally:
        temporary.unlink(missing_ok=True)
    sync(file.parent)
