"""What outlives a job manager: checkpoint handles, id counters, job graphs, job results, leadership.

One `HighAvailabilityServices`, two makers: `standalone` (mode NONE) and `zookeeper` (mode ZOOKEEPER).
"""
