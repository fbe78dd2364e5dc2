"""Attributes that are set once."""

from typing import NoReturn

from smoothsp.oracles._questions.checks import NO_TORCHSCRIPT

# Sets an attribute without a look at its name, where microseconds count.
put = object.__setattr__


class ReadOnly:
    """Public attributes are set once, while an object is made, and never again.

    Numbers derived from potentials are kept beside them: a structure with one potential
    exchanged would compute with the old one in part.
    """

    @staticmethod
    def __prepare_scriptable__() -> NoReturn:
        """Raise an error: what ``torch.jit.script`` calls first."""
        raise TypeError(NO_TORCHSCRIPT)

    def __setattr__(self, name: str, value: object) -> None:
        if name[0] != "_" and (
            name in self.__dict__
            or isinstance(getattr(type(self), name, None), property)
        ):
            kind = type(self).__name__
            raise AttributeError(
                f"{name}: the attributes of a {kind} cannot be set again; make a new "
                f"{kind}"
            )
        super().__setattr__(name, value)
