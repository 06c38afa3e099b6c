"""Start the parts in order, restart those that end, and stop them in order.

One thread does all this, because the kernel ends a child when the thread that forked the child ends.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from types import FrameType

from dashboard.stack.output import Output
from dashboard.stack.parts import ExternalPart, Part, PartState
from dashboard.stack.process import Command, ServerFailed, descendants, spawn
from dashboard.stack.record import PartRecord, StackRecord, start_time

_TICK_S = 0.1
# at least this long between probes, because a server may log each probe, and output wakes the supervisor
_PROBE_EVERY_S = 0.1
_FIRST_BACKOFF_S = 1.0
_LONGEST_BACKOFF_S = 30.0
_HEALTHY_AFTER_S = 60.0
_PROGRESS_EVERY_S = 15.0
# If a part has never been up and ends this number of times, the supervisor gives up.
_MAX_FIRST_TRIES = 3
_HURRIED_GRACE_S = 1.0


class PartFailed(RuntimeError):
    """A part cannot start. The message names the part and has the last lines of its log."""


class _Child:
    """A part with its process and state."""

    def __init__(self, part: Part) -> None:
        self.part = part
        self.state = PartState.DOWN
        self.process: subprocess.Popen[bytes] | None = None
        self.command: Command | None = None
        self.pid_started: int | None = None
        self.version = ""
        self.was_up = False
        self.succeeded = False  # set only for a step, not for a server
        self.tries = 0
        self.restarts = 0
        self.backoff_s = _FIRST_BACKOFF_S
        self.next_start = 0.0
        self.started = 0.0
        self.reported = 0.0
        self.next_probe = 0.0

    @property
    def name(self) -> str:
        return self.part.name

    def has_ended(self) -> bool:
        """Return whether the process has ended.

        Before the process is reaped, the rest of its process group is killed, because later the id could be reused.
        """
        if self.process is None:
            return True
        if self.process.returncode is not None:
            return True
        if os.waitid(os.P_PID, self.process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
            return False
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        return True

    def record(self) -> PartRecord:
        alive = self.process is not None and self.process.returncode is None
        return PartRecord(
            name=self.name,
            state=self.state.value,
            address=self.part.server.address,
            pid=self.process.pid if alive and self.process else None,
            version=self.version,
            pid_started=self.pid_started if alive else None,
            restarts=self.restarts,
        )


class Supervisor:
    """A supervisor that starts `parts` in the given order, after their dependencies, and stops them in `stop_order`.

    Parts that are not in `stop_order` are stopped last.
    """

    def __init__(
        self,
        parts: Sequence[Part],
        *,
        external: Sequence[ExternalPart],
        stop_order: Sequence[str],
        record: StackRecord,
        output: Output,
        on_up: Callable[[], None],
    ) -> None:
        self._children = [_Child(part) for part in parts]
        self._by_name = {child.name: child for child in self._children}
        self._external = external
        self._stop_order = stop_order
        self._record = record
        self._output = output
        self._on_up = on_up
        self._announced = False
        self._stop_requests = 0
        self._selector = selectors.DefaultSelector()
        self._unfinished_lines: dict[int, bytes] = {}

    def run(self) -> None:
        """Run until a stop signal arrives.

        Raises:
            PartFailed: A part cannot start. All parts are stopped.
        """
        previous = {
            number: signal.signal(number, self._request_stop)
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
        }
        try:
            self._write_record()
            while not self._stop_requests:
                self._tick()
        finally:
            try:
                self._stop_all()
            finally:
                self._close_pipes()
                for number, handler in previous.items():
                    signal.signal(number, handler)

    def _request_stop(self, number: int, frame: FrameType | None) -> None:
        self._stop_requests += 1

    # Starting and watching

    def _tick(self) -> None:
        now = time.monotonic()
        for child in self._children:
            if self._stop_requests:
                return
            self._advance(child, now)
        self._pump(_TICK_S)
        if not self._announced and all(self._is_up(child.name) for child in self._children):
            self._announced = True
            self._on_up()

    def _advance(self, child: _Child, now: float) -> None:
        match child.state:
            case PartState.DOWN:
                if not child.succeeded and now >= child.next_start and all(map(self._is_up, child.part.after)):
                    self._start(child, now)
            case PartState.STARTING:
                if child.has_ended():
                    self._handle_end(child, now)
                elif now >= child.next_probe:
                    self._probe(child, now)
            case PartState.UP:
                if not child.part.step and child.has_ended():
                    self._handle_end(child, now)

    def _probe(self, child: _Child, now: float) -> None:
        child.next_probe = now + _PROBE_EVERY_S
        if not child.part.step and child.part.server.answers():
            self._mark_up(child)
        else:
            self._report_progress(child, now)

    def _is_up(self, name: str) -> bool:
        """Return whether a part is up. An external part counts as up: a part that needs it reports its absence."""
        child = self._by_name.get(name)
        return child is None or child.state is PartState.UP

    def _start(self, child: _Child, now: float) -> None:
        child.tries += 1
        child.started = child.reported = now
        self._output.report(f"{child.name}: starting")
        try:
            child.part.server.prepare()
        except (ServerFailed, OSError) as error:
            raise PartFailed(f"{child.name} cannot be prepared: {error}") from error
        child.command = child.part.server.command()
        reader, writer = os.pipe()
        try:
            child.process = spawn(child.command, writer)
        except OSError as error:
            os.close(reader)
            raise PartFailed(f"{child.name} cannot be started: {error}") from error
        finally:
            os.close(writer)
        child.pid_started = start_time(child.process.pid)
        os.set_blocking(reader, False)
        self._selector.register(reader, selectors.EVENT_READ, child.name)
        self._set_state(child, PartState.STARTING)

    def _mark_up(self, child: _Child) -> None:
        child.was_up = True
        child.version = child.part.version()
        address = child.part.server.address
        self._output.report(
            f"{child.name}: up{f' at {address}' if address else ''} after {time.monotonic() - child.started:.1f} s"
        )
        self._set_state(child, PartState.UP)

    def _handle_end(self, child: _Child, now: float) -> None:
        self._pump(0)
        code = child.process.returncode if child.process else None
        if child.part.step and code == 0:
            child.succeeded = True
            self._output.report(f"{child.name}: done after {now - child.started:.1f} s")
            self._set_state(child, PartState.UP)
            return
        exit_text = _exit_text(code)
        if child.part.step or (not child.was_up and child.tries >= _MAX_FIRST_TRIES):
            raise PartFailed(
                f"{child.name} {exit_text} during its start. The end of its output:\n" + self._last_output(child)
            )
        if child.state is PartState.UP and now - child.started > _HEALTHY_AFTER_S:
            child.backoff_s = _FIRST_BACKOFF_S
        self._output.report(f"{child.name}: {exit_text}; starting it again in {child.backoff_s:g} s")
        child.next_start = now + child.backoff_s
        child.backoff_s = min(child.backoff_s * 2, _LONGEST_BACKOFF_S)
        child.restarts += 1
        self._set_state(child, PartState.DOWN)

    def _report_progress(self, child: _Child, now: float) -> None:
        if now - child.reported > _PROGRESS_EVERY_S:
            child.reported = now
            self._output.report(f"{child.name}: still starting, {now - child.started:.0f} s by now")

    def _last_output(self, child: _Child) -> str:
        return "\n".join(f"    {line}" for line in self._output.last_lines(child.name)) or "    (none)"

    # Stopping

    def _stop_all(self) -> None:
        self._output.report("stopping")
        named = [self._by_name[name] for name in self._stop_order if name in self._by_name]
        rest = [child for child in reversed(self._children) if child not in named]
        for child in (*named, *rest):
            self._stop(child)
        self._pump(0)
        self._output.report("everything has stopped")

    def _stop(self, child: _Child) -> None:
        if child.process is None or child.command is None or child.has_ended():
            child.state = PartState.DOWN
            return
        started = time.monotonic()
        for request in (*child.command.stop_signals, signal.SIGKILL):
            # A killed process cannot stop its own children, so kill them too.
            below = descendants(child.process.pid) if request is signal.SIGKILL else []
            for pid in below:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGKILL)
            with contextlib.suppress(ProcessLookupError):
                child.process.send_signal(request)
            if self._wait_for_end(child, child.command.stop_grace_s):
                break
            if request is not signal.SIGKILL:
                self._output.report(f"{child.name}: does not stop on {request.name}")
        self._output.report(f"{child.name}: stopped after {time.monotonic() - started:.1f} s")
        self._set_state(child, PartState.DOWN)

    def _wait_for_end(self, child: _Child, grace_s: float) -> bool:
        """Return whether the process ended in time. A second stop signal shortens the time to _HURRIED_GRACE_S."""
        started = time.monotonic()
        while not child.has_ended():
            grace = grace_s if self._stop_requests < 2 else min(grace_s, _HURRIED_GRACE_S)
            if time.monotonic() - started > grace:
                return False
            self._pump(_TICK_S / 2)
        return True

    # Output and record

    def _pump(self, wait_s: float) -> None:
        """Forward the output of the parts. Wait at most `wait_s` for output."""
        if not self._selector.get_map():
            time.sleep(wait_s)
            return
        for key, _ in self._selector.select(wait_s):
            self._read(key.fd, key.data)

    def _read(self, descriptor: int, name: str) -> None:
        try:
            text = os.read(descriptor, 65536)
        except BlockingIOError:
            return
        *lines, rest = (self._unfinished_lines.pop(descriptor, b"") + text).split(b"\n")
        if not text:
            self._selector.unregister(descriptor)
            os.close(descriptor)
            lines, rest = [rest] if rest else [], b""
        if rest:
            self._unfinished_lines[descriptor] = rest
        for line in lines:
            self._output.line(name, line.decode(errors="replace").rstrip("\r"))

    def _close_pipes(self) -> None:
        """Close the pipes that a surviving descendant of a part still holds open. Its later output is lost."""
        for key in list(self._selector.get_map().values()):
            os.close(key.fd)
        self._selector.close()

    def _set_state(self, child: _Child, state: PartState) -> None:
        child.state = state
        self._write_record()

    def _write_record(self) -> None:
        external = [PartRecord(part.name, PartState.EXTERNAL.value, part.address) for part in self._external]
        try:
            self._record.write(external + [child.record() for child in self._children if not child.part.step])
        except OSError as error:  # a full disk must not stop the running parts
            self._output.report(f"what runs cannot be written down: {error}")


def _exit_text(code: int | None) -> str:
    if code is not None and code < 0:
        return f"was ended by {signal.Signals(-code).name}"
    return f"ended with exit code {code}"
