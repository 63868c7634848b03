"""Secure sums: a server learns the sum of its clients' vectors, and nothing else of them.

Bonawitz et al., "Practical Secure Aggregation for Privacy-Preserving Machine Learning", CCS 2017, with the sparse
graph of Bell et al., "Secure Single-Server Aggregation with (Poly)Logarithmic Overhead", CCS 2020. The server follows
the protocol and is curious. So may be a share of the clients, who may tell it all they know.

    fixed     numbers as integers modulo 2^32, whose sum is exact
    graph     who shares secrets with whom, and how many shares open a secret
    field     Shamir's secret sharing, for many secrets at once
    keys      key agreement, key derivation, masks from a key
    client    the four steps of a client
    server    the four steps of the server
    cost      bytes of each step, for simulations
    run       a whole sum in one process
"""
