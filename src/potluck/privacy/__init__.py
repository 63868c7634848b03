"""Differential privacy: what a run releases of its clients, how it is bounded and noised, and what it costs.

    account    epsilon of a list of charges, by Google's dp-accounting
    ledger     what each device was charged, and what it may still be
    guard      clips an update, and adds noise to it, before it leaves the client
    tree       noise that is correlated over time, where sampling does not amplify
    plan       the settings of `[privacy]`, checked against a method
    need       how many clients a round an epsilon needs (`potluck privacy`)
    audit      what an attacker can prove (`potluck audit`)

`runs/private_fleet.py` puts them between a fleet and a method. `docs/privacy.md` says what is promised, to whom, and
what is not.
"""
