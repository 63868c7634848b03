"""Parts of EchoPFL."""
