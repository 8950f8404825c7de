"""What keeps `import herdsman` cheap: loggers and dataclass fields that are made when they are asked for."""


class LazyLogger:
    """The logger of that name, made at its first use: `logging` costs more than the rest of an import."""

    def __init__(self, name):
        self._name = name

    def __getattr__(self, attribute):
        import logging

        return getattr(logging.getLogger(self._name), attribute)


class LazyFields:
    """`__dataclass_fields__` of a class that is written out, so that `dataclasses.fields`, `asdict` and `replace` work.

    `names` are its fields in order; those of `without_init` are no parameters of its constructor.
    """

    def __init__(self, names, without_init=()):
        self._names = names
        self._without_init = without_init

    def __get__(self, instance, owner):
        import dataclasses

        made = dataclasses.make_dataclass(
            owner.__name__,
            [(name, object, dataclasses.field(init=name not in self._without_init)) for name in self._names],
        )
        owner.__dataclass_fields__ = made.__dataclass_fields__
        owner.__dataclass_params__ = made.__dataclass_params__
        return owner.__dataclass_fields__


def equal_fields(names):
    """`__eq__` over these fields, among objects of one class."""

    def __eq__(self, other):
        if other.__class__ is not self.__class__:
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in names)

    return __eq__


def show_fields(names):
    """`__repr__` with these fields."""

    def __repr__(self):
        fields = ", ".join(f"{name}={getattr(self, name)!r}" for name in names)
        return f"{self.__class__.__qualname__}({fields})"

    return __repr__
