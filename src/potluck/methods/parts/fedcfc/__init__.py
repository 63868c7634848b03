"""Parts of FedCFC: the bound gradient, the common direction, the first download, precisions, depths, new classes."""
