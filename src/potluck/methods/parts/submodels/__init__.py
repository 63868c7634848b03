"""Parts of the methods that give clients sub-models: FedConv, HeteroFL, FedRolex, FedMD, Hermes, TailorFL."""
