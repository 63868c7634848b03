"""Data: public sets and people's own files, dealt out to clients, each with its own train and test rows."""

from potluck.data.dataset import Dataset
from potluck.data.federate import Federation, federate
from potluck.data.spec import PartitionSpec

__all__ = ["Dataset", "Federation", "PartitionSpec", "federate"]
