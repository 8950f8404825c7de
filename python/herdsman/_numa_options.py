"""The options of NUMA binding."""

from dataclasses import dataclass
from enum import Enum


class AffinityMode(str, Enum):
    """Which processors of the machine a worker gets."""

    NODE = "node"
    SOCKET = "socket"
    EXCLUSIVE = "exclusive"
    CORE_COMPLEX = "core-complex"


@dataclass(frozen=True)
class NumaOptions:
    """How workers are bound; with the fall-back, one that cannot be bound runs unbound."""

    affinity_mode: AffinityMode
    should_fall_back_if_binding_fails: bool = False
