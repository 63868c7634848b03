"""Data: public sets and your own files, dealt out to clients, each with its own training and test rows.

The files in the order in which data flows through them:

    load         finds a set by its name, path or function, and reads it with `files` (.npz, .csv, .parquet; `folders`,
                 `npz`), `function`, `public` (public sets on this machine; `exercises` is one) or `made` (artificial)
    intake       decides what each array or column of people's own files is, and cuts recordings into windows
    check        turns arrays into a `Dataset` (in `dataset`), or raises BadInput with the file and the field
    irregular, resample
                 prepare public sets: records of unequal length in fixed shapes, another sampling rate
    spec         the settings of `[partition]`: which clients there are, and how their rows are split
    server       takes the server's own rows out of the set
    federate     deals rows to clients: `partition` plans who gets what, `split` separates training, validation and test
                 rows, `draw` draws rows on demand for fleets of millions
    standardise  computes the scale of each client's samples, or one scale for all
    federation   the result: `Federation` gives the padded rows of any clients
    drift        changes rows or labels while a run goes on
    card         describes a set for `potluck data`; `card_samples` draws some of its windows
"""

from potluck.data.dataset import Dataset
from potluck.data.federate import Federation, federate
from potluck.data.spec import PartitionSpec

__all__ = ["Dataset", "Federation", "PartitionSpec", "federate"]
