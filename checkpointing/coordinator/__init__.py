"""When a checkpoint may start, who still owes an acknowledgement, what counts as failure.

It does no I/O, starts no thread and reads only the clock that it gets. Events come in, and effects go out for a runner
to perform.
"""
