"""The settings of `[privacy]` and `[secure]`."""

from __future__ import annotations

from pydantic import Field

from potluck.runs.fleet_section import Section


class PrivacySection(Section):
    """Differential privacy: what a run may tell of one client, or of one sample. Needs the extra `privacy`."""

    unit: str = Field(
        "none", pattern="^(none|client|sample)$", description="none | client | sample: whose presence is hidden"
    )
    clip: float = Field(1.0, gt=0, le=1e6, description="largest norm of a client's release, or of a sample's gradient")
    noise: float | None = Field(
        None, gt=0, le=1e6, description="standard deviation of the noise by clip; default: the least for epsilon"
    )
    epsilon: float | None = Field(
        None, gt=0, le=1e6, description="budget of each device; the run ends before it would be exceeded"
    )
    delta: float = Field(1e-5, gt=0, lt=1, description="below one by the number of clients, or of samples")
    rate: float = Field(1.0, gt=0, le=1, description="probability that a client is asked in a round; 1: all are")
    noise_at: str = Field(
        "sum", pattern="^(sum|client)$", description="sum: the server adds it to sums | client: each adds all of it"
    )
    correlation: str = Field(
        "none", pattern="^(none|tree)$", description="none | tree: noise that does not add up over the releases"
    )
    leaves: int = Field(1024, ge=2, le=1 << 30, description="releases of one tree, rounded up to a power of two")
    smallest: int = Field(1, ge=1, description="clients in the smallest cluster or sum that is released")
    accountant: str = Field(
        "pld", pattern="^(pld|rdp)$", description="pld: privacy loss distributions | rdp: Rényi, looser and quicker"
    )


class SecureSection(Section):
    """Secure sums: the server learns the sum of the updates and none of its terms. Needs the extra `secure`."""

    sum: bool = Field(False, description="hide single updates from the server, for methods that need only sums")
    largest: float = Field(
        4.0, gt=0, le=1e6, description="largest absolute value of a number in an update's change; larger ones are cut"
    )
    dropout: float = Field(0.3, ge=0, le=0.5, description="share of the clients that may go away during a sum")
    corrupt: float = Field(0.1, ge=0, le=0.3, description="share of the clients that may work with the server")
    seconds: float = Field(60.0, gt=0, le=86400, description="on real machines: how long each step waits for clients")
