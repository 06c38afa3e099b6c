"""Why a checkpoint is slow, failed or missing, and what of a job's configuration asks for trouble.

`scene_queries` reads stored rows into a `Scene`. Each module of `signs` is one possible problem and looks for its
evidence in it. `signs` orders the findings. Only `scene_queries` does I/O.
"""
