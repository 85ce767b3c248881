"""Places on the card -> a number that is another one when any of their bits changes. It is worked out there."""

from __future__ import annotations

from collections.abc import Sequence
from ctypes import c_uint64

from grader.devices.contents import mixed
from grader.devices.gpu.driver import Driver
from grader.devices.gpu.ptx import DIGEST


class Digester:
    """Works on the driver's stream. Owns a few bytes of the card until it is closed."""

    def __init__(self, driver: Driver) -> None:
        self._driver, self._sum, self._kernel = driver, driver.allocate(8), driver.kernel(DIGEST, "digest")

    def close(self) -> None:
        self._driver.free(self._sum)

    def digest(self, places: Sequence[tuple[int, int]], key: int) -> int:
        """The number for each (address, count of 4-byte words), by a key of 64 bits. Waits for the answer."""
        driver = self._driver
        driver.fill(self._sum, 0, 8)
        for nth, (place, words) in enumerate(places):
            arguments = (c_uint64(place), c_uint64(words), c_uint64(mixed(key, nth)), c_uint64(self._sum))
            driver.launch(self._kernel, blocks=1024, threads=256, arguments=arguments)
        driver.synchronize()
        return int.from_bytes(driver.download(self._sum, 8), "little")
