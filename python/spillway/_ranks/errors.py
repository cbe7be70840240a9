"""What a rank is told when another one fails."""
import typing


class RanksStopped(RuntimeError):
    """Another rank failed, and all ranks stop at this call: none of them has the call's gradients.

    incident   the number that all ranks name
    rank       the rank that failed, of all ranks of the program; None where it is the store at which ranks meet
    cause      what is known of its failure
    """

    def __init__(self, incident: str, rank: typing.Optional[int], cause: str) -> None:
        who = "" if rank is None else f"rank {rank} "
        super().__init__(f"incident {incident}: {who}{cause}. All ranks stop here, and none has made this step")
        self.incident, self.rank, self.cause = incident, rank, cause

    def __reduce__(self):  # type: ignore[no-untyped-def]
        return RanksStopped, (self.incident, self.rank, self.cause)
