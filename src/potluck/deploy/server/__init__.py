"""The server half of a deployment: its processes, the gateway, the session of a run."""
