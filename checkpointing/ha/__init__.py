"""Data that outlives a job manager: checkpoint handles, ID counters, job graphs, job results, leadership.

`HighAvailabilityServices` is the interface, with two implementations: standalone (mode NONE) and ZooKeeper (mode
ZOOKEEPER).
"""
