"""Decides when a checkpoint may start, who must still acknowledge it, and what counts as a failure.

It does no I/O, starts no thread and reads only the clock that it gets. Events come in, and effects go out for a runner
to perform.
"""
