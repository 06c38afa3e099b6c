"""The log of all parts: each line has the part's name as a prefix and is also written to a file."""

from __future__ import annotations

import contextlib
import itertools
import os
import sys
from pathlib import Path
from typing import TextIO

OURS = "waymark"
_WIDTH = 12
_COLOURS = (36, 32, 33, 35, 34, 96, 92, 93, 95, 94)
_FILE_LIMIT = 5_000_000  # bytes; in addition to the current file, one older file is kept


class Output:
    """A log that prints all lines on `stream` and writes those of each part to `directory`/<part>.log."""

    def __init__(self, directory: Path, stream: TextIO = sys.stdout) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._directory = directory
        self._stream: TextIO | None = stream
        self._is_terminal = stream.isatty()
        self._colour = self._is_terminal and "NO_COLOR" not in os.environ
        self._palette = itertools.cycle(_COLOURS)
        self._colours: dict[str, int] = {}
        self._files: dict[str, TextIO] = {}

    def report(self, text: str) -> None:
        """Print a line of the supervisor."""
        self.line(OURS, text)

    def show_secret(self, text: str) -> None:
        """Print a line of the supervisor only to a terminal, never to a file, a pipe or a journal."""
        if self._is_terminal:
            self._print(OURS, text)

    def line(self, name: str, text: str) -> None:
        with contextlib.suppress(OSError):  # if the disk is full, the parts report the error
            self._append_to_file(name, text)
        self._print(name, text)

    def _print(self, name: str, text: str) -> None:
        if self._stream is None:
            return
        prefix = f"{name:<{_WIDTH}}│ "
        if self._colour:
            prefix = f"\x1b[{self._colour_of(name)}m{prefix}\x1b[0m"
        try:
            print(prefix + text, file=self._stream, flush=True)
        except OSError:  # the terminal is closed; write only the files from now on
            self._stream = None

    def last_lines(self, name: str, count: int = 15) -> list[str]:
        try:
            return self._path(name).read_text(errors="replace").splitlines()[-count:]
        except OSError:
            return []

    def close(self) -> None:
        for file in self._files.values():
            file.close()
        self._files.clear()

    def _colour_of(self, name: str) -> int:
        if name == OURS:
            return 1
        if name not in self._colours:
            self._colours[name] = next(self._palette)
        return self._colours[name]

    def _path(self, name: str) -> Path:
        return self._directory / f"{name}.log"

    def _append_to_file(self, name: str, text: str) -> None:
        file = self._files.get(name) or self._open(name)
        file.write(text + "\n")
        file.flush()
        if file.tell() > _FILE_LIMIT:
            file.close()
            self._path(name).replace(self._directory / f"{name}.log.1")
            self._open(name)

    def _open(self, name: str) -> TextIO:
        self._files[name] = self._path(name).open("a")
        return self._files[name]
