"""Takes eight optimizer steps in one way.

    steps.py one | thread | caught | turns | later
"""
import sys
import threading

import torch


def optimizer():
    weight = torch.ones(8, device="cuda", requires_grad=True)
    weight.grad = torch.ones_like(weight)
    return torch.optim.SGD([weight], lr=0.1)


def train(*optimizers):
    for _ in range(8):
        for one in optimizers:
            one.step()


how = sys.argv[1]
if how == "one":
    train(optimizer())
elif how == "thread":
    thread = threading.Thread(target=train, args=[optimizer()])
    thread.start()
    thread.join()
elif how == "caught":
    one = optimizer()
    for _ in range(8):
        try:
            one.step()
        except SystemExit:
            pass
elif how == "turns":  # two optimizers in each step
    train(optimizer(), optimizer())
elif how == "later":  # eight of the first and then eight of the second, which begins within the eighth
    train(optimizer())
    train(optimizer())
