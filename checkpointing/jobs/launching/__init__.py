"""Launchers of drivers: as processes of this machine, from a pool of spare drivers, or through spark-submit."""
