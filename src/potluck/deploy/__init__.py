"""Runs on real machines: certificates and keys, the processes of server and clients, and what each of them does."""
