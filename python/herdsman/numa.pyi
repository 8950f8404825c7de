from typing import Optional

from herdsman._numa_options import AffinityMode as AffinityMode
from herdsman._numa_options import NumaOptions as NumaOptions

def cpus_for(
    device_index: int, numa_options: NumaOptions, root: str = "/sys", devices: Optional[list[str]] = None
) -> list[int]: ...
