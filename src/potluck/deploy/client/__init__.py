"""The client half of a deployment: the machine that hosts clients, their local rows, and how it connects."""
