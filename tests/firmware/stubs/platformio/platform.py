"""A PlatformIO platform of our own: the compiler is the system's, and nothing is downloaded."""

from platformio.public import PlatformBase  # type: ignore[import-not-found]


class BarePlatform(PlatformBase):  # type: ignore[misc]
    pass
