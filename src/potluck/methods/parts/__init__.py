"""Parts: pieces of methods that answer one of six questions, kept apart so that answers can be combined.

Each line names a part, says what it answers, and lists the methods or parts that use it directly.

pace: when does the server act, and whom does it ask?
    cohort               a random sample of the idle clients each round (fedavg, fedcfc, fedconv, lotteryfl, scaffold)
    staleness            how much an update counts that comes late (fedasync, fedbuff, fedsea)
    clusterfl/savers     which clients not to ask, to save traffic (clusterfl)
    echopfl/broadcast    when a cluster sends its model to its members (echopfl)
    echopfl/legs         which samples belong to which leg of a task (echopfl)
    echopfl/listeners    which clients get a broadcast (echopfl)
    echopfl/predictor    whether a broadcast will pay, learned from records (echopfl/broadcast)
    echopfl/queries      which clients at work ask for a newer model and get it (echopfl)
    echopfl/tempo        how many epochs fast clients train while others are at work (echopfl)
    centaur/mobility     when a device can reach its access point (ap, centaur, ucd)

grouping: who learns with whom?
    clusterfl/relation   a soft cluster indicator F, learned from the models' answers (clusterfl)
    clusterfl/probe      the inputs on which models are compared (clusterfl)
    clusterfl/models     a client's model and the mean of a cluster, from the server's table (clusterfl)
    clusterfl/table      what each client reported, one row per client (clusterfl)
    clusterfl/vectors    models as rows of a matrix, and back (clusterfl)
    echopfl/clusters     clusters that follow the order of arrivals (echopfl)
    echopfl/merging      nearest centre, running means, splits and merges (echopfl)
    echopfl/refinement   clusters merged or split by the feedback of their members (echopfl)
    echopfl/feedback     how well a cluster's model fits a client (echopfl)
    echopfl/answers      what models say to the same inputs, and which members say alike (echopfl)
    echopfl/trials       a client tried with another cluster's model, judged by its feedback (echopfl)
    centaur/pairs        a device and its access point (ap, centaur, ucd)

shape: what size of model?
    submodels/widths     slices of a model (fedconv, fedmd, fedrolex, hermes, heterofl, standalone, tailorfl)
    submodels/fitting    a width for each client (fedconv, fedmd, fedrolex, hermes, heterofl, standalone, tailorfl)
    submodels/kernels    learned convolution over parameters (fedconv)
    submodels/pruning    the channels that matter to a client (hermes, tailorfl)
    fedcfc/depths        heads of unlike depth (fedcfc)
    fedcfc/precision     weights at the precision of a device (fedcfc)

local: which samples, which loss?
    selection            which samples to train on, to hand over, to discard (ap, centaur, ucd)
    correction           a pull: FedProx, SCAFFOLD (centaur, ditto, fedamp, fedasync, fedcfc, fedprox, scaffold)
    features             the input of the last layer, in training and in use (fedproto, knnper, moon)
    starts               where the weights start (balancefl, fedcfc, fedem, ifca, lotteryfl)
    submodels/train      train the sub-model that was sent (fedconv, fedrolex, hermes, heterofl, standalone, tailorfl)
    centaur/partial      train the end of a network on samples chosen anew (ap, centaur, ucd)
    fedcfc/bind          the local terms of fBind (fedcfc)
    fedcfc/classes       classes that arrive one after another (fedcfc)
    fedcfc/start         the first download of each client (fedcfc)

share: what is shared?
    layers               which layers travel (fedbn, fedper, fedrep, lgfedavg)
    centaur/handover     what a device stores for its access point (ap, centaur, ucd)
    fedcfc/quantised     a vector on the wire, at less precision (fedcfc)
    fedcfc/variants      which modules are bound, which are averaged (fedcfc)

merge: how do updates become one model?
    merge                the mean, or a rule that liars cannot bend (most methods)
    server_step          the mean change as a gradient of the server (fedadam)
    clusterfl/dual       what pulls the models of a cluster together (clusterfl)
    centaur/tiers        FedAvg, FedProx or SCAFFOLD on devices and access points (ap, centaur, ucd)
    fedcfc/cud           the common direction of many gradients (fedcfc)
    submodels/mixing     a mean with learned weights (fedconv)
    submodels/tuning     free numbers tuned on the server rows (fedconv, fedmd, serveralone)

none of the six: settings, costs and figures
    checks               checks of settings (most methods)
    shared_map           a mapping whose changed copy is cheap (fedsea, oort)
    centaur/costs        the expected cost of a round (ap, centaur, ucd)
    centaur/declared     what to tune, which needs, old names (centaur)
    centaur/needed       the network and the access points that its paper has (ap, centaur/declared, ucd)
    centaur/samples      what became of the samples (ap, centaur, ucd)
    clusterfl/clock      server time on the clock of the run (clusterfl)
    clusterfl/declared   what settings require, what to tune (clusterfl)
    clusterfl/figures    figures of a run (clusterfl)
    clusterfl/tuning     the choice of beta, alpha and rho (clusterfl)
    clusterfl/validation losses and accuracies that clients report (clusterfl)
    echopfl/declared     what to tune, which needs, old names (echopfl)
    echopfl/figures      figures of a run (echopfl)
    fedcfc/convergence   the round in which no client gains (fedcfc)
    fedcfc/declared      a network that suits the data, what to tune, old names (fedcfc)
    fedcfc/memory        bytes that a round takes on a device (fedcfc)
    fedcfc/readout       loss and accuracy of a CFC on some rows (fedcfc)
    fedconv/declared     what to tune, which needs, old names (fedconv)
    submodels/figures    figures of a run (fedconv, fedmd, fedrolex, hermes, heterofl, standalone, tailorfl)
"""
