import concurrent.futures
from collections.abc import Callable
from os import PathLike
from typing import Any, Optional, Union

class Executor(concurrent.futures.Executor):
    def __init__(
        self,
        backend: Optional[str] = None,
        *,
        max_workers: Optional[int] = None,
        initializer: Optional[Callable[..., object]] = None,
        initargs: tuple[Any, ...] = (),
        folder: Optional[Union[str, PathLike[str]]] = None,
        home: Optional[Union[str, PathLike[str]]] = None,
        python: Optional[str] = None,
        **options: Any,
    ) -> None: ...
