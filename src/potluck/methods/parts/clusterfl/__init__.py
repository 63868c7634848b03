"""Parts of ClusterFL."""
