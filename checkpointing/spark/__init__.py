"""The task side, in the driver process: agent, snapshots, restore, measured figures."""
