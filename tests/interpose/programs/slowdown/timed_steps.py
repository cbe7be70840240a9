"""How long steps take on the virtual clock."""
import torch

import simulator_control


def last_ms(step, count=14):
    """Virtual milliseconds of the last of so many steps."""
    for _ in range(count):
        before = simulator_control.counts().virtual_ns
        step()
        torch.cuda.synchronize()
        after = simulator_control.counts().virtual_ns
    return (after - before) / 1e6
