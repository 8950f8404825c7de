"""Which standard streams of which ranks something applies to."""

from enum import IntFlag

_MAPPING_REGEX = r"^(\d+:[0123],)*(\d+:[0123])$"
_VALUE_REGEX = r"^[0123]$"


class Std(IntFlag):
    """Standard streams."""

    NONE = 0
    OUT = 1
    ERR = 2
    ALL = 3

    @classmethod
    def from_str(cls, vm):
        """`"3"` is a Std, `"0:1,2:3"` a mapping from rank to Std; all else is a ValueError."""
        if len(vm) == 1 and vm in "0123":
            return cls(int(vm))
        found = {}
        for entry in vm.split(","):
            rank, colon, value = entry.partition(":")
            if not (colon and rank.isascii() and rank.isdigit() and len(value) == 1 and value in "0123"):
                raise ValueError(f"{vm} does not match: <{_VALUE_REGEX}> or <{_MAPPING_REGEX}>")
            found[int(rank)] = cls(int(value))
        return found


def to_map(val_or_map, local_world_size):
    """One Std, or a mapping with gaps, as a mapping that has every rank."""
    ranks = range(local_world_size)
    if isinstance(val_or_map, Std) or type(val_or_map).__name__ == "Std":
        # torch's own does as well.
        return dict.fromkeys(ranks, Std(val_or_map))
    return {rank: val_or_map.get(rank, Std.NONE) for rank in ranks}
