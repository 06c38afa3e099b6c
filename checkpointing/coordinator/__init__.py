"""When a checkpoint may start, who still owes an acknowledgement, what counts as failure.

Pure: no I/O, no clock and no thread of its own. Events come in, and effects go out for a runner to perform.
"""
