"""When a checkpoint may start, who still owes an acknowledgement, what counts as failure.

Pure: no I/O, no clock and no thread of its own. Everything comes in through the protocols in `ports`.
"""
