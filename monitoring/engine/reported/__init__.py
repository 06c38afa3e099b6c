"""Watch Structured Streaming queries through the agent in their programs (deploy/agent/waymark_agent.py). Read-only.

`report` reads a post of the agent, `storing` stores it, and `transport` answers Flink's REST paths from the rows, so
that monitoring needs no other protocol. A figure that Spark's progress does not have is null.
"""
