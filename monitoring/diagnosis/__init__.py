"""Why a checkpoint is slow, failed or missing, and what of a job's configuration asks for trouble.

`gathering` reads stored rows into a `Scene`; each module of `signs` is one thing that may be wrong and looks for its
evidence in it; `judging` puts what was found in order. Only `gathering` does I/O.
"""
