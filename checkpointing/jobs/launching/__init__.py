"""How drivers come about: as processes of this machine, out of a pool of warm ones, or through spark-submit."""
