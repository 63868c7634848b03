"""Parts of FedCFC."""
