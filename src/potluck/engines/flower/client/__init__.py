"""The client half: one client that does tasks, its journal on disk, and its connection to the server."""
