"""One call of a rank that has no others: a process group of one."""
import typing

if typing.TYPE_CHECKING:
    import torch


class Alone:
    """In the place of a Turn."""

    control = None

    def __init__(self) -> None:
        import torch.distributed as dist

        self.rank, self.key, self.agreed = dist.get_rank(), "", False

    def __enter__(self) -> "Alone":
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def meet(self, said: typing.Any = None) -> list[typing.Any]:
        return [] if said is None else [said]

    def collective(self, begins: bool = True) -> None:
        pass

    def check(self) -> None:
        pass

    def done(self, devices: typing.Iterable["torch.device"]) -> None:
        pass
