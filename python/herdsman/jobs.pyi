from collections.abc import Generator, Iterator, Sequence
from os import PathLike
from typing import Any, Literal, Optional, Union, overload

ENDED: frozenset[str]

def submit(
    job: Union[str, Sequence[str], PathLike[str], dict[str, Any]],
    *,
    backend: Optional[str] = None,
    home: Optional[Union[str, PathLike[str]]] = None,
    **options: Any,
) -> Job: ...

class Job:
    id: str
    def __init__(self, id: str, home: Optional[Union[str, PathLike[str]]] = None) -> None: ...
    @classmethod
    def from_id(cls, id: str, home: Optional[Union[str, PathLike[str]]] = None) -> Job: ...
    def status(self) -> dict[str, Any]: ...
    @property
    def state(self) -> str: ...
    def done(self) -> bool: ...
    def why(self) -> str: ...
    def wait(self, timeout: Optional[float] = None) -> str: ...
    def result(self, timeout: Optional[float] = None) -> dict[str, Any]: ...
    @overload
    def logs(
        self,
        follow: Literal[False] = False,
        rank: Optional[Union[int, str]] = None,
        node: Optional[Union[int, str]] = None,
        stream: Optional[str] = None,
        task: Optional[int] = None,
        tail: Optional[int] = None,
    ) -> str: ...
    @overload
    def logs(
        self,
        follow: Literal[True],
        rank: Optional[Union[int, str]] = None,
        node: Optional[Union[int, str]] = None,
        stream: Optional[str] = None,
        task: Optional[int] = None,
        tail: Optional[int] = None,
    ) -> Iterator[str]: ...
    @overload
    def events(self, follow: Literal[False] = False) -> list[dict[str, Any]]: ...
    @overload
    def events(self, follow: Literal[True]) -> Iterator[dict[str, Any]]: ...
    def cancel(self, signal: Optional[Union[int, str]] = None, grace: Optional[float] = None) -> None: ...
    def __await__(self) -> Generator[Any, None, dict[str, Any]]: ...
