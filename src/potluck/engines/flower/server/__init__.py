"""The server half: the fleet over a transport, the clients that joined, and their tasks in flight."""
