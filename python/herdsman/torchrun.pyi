from collections.abc import Sequence
from typing import Optional

def main(args: Optional[Sequence[str]] = None) -> None: ...
