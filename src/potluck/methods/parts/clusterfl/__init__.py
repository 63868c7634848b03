"""Parts of ClusterFL: the relation of clients, its probe inputs, the savers, the choice of beta, figures."""
