"""Find out why a checkpoint is slow, failed or missing, and which settings of a job are risky.

`fact_queries` reads stored rows into `DiagnosisFacts`. Each module of `signs` searches the facts for evidence of one
kind of problem. `signs` orders the findings. Only `fact_queries` does I/O.
"""
