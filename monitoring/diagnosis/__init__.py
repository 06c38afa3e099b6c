"""Find out why a checkpoint is slow, failed or missing, and which settings of a job are risky.

`scene_queries` reads stored rows into a `Scene`. Each module of `signs` looks in the scene for evidence of one kind of
problem. `signs` orders the findings. Only `scene_queries` does I/O.
"""
