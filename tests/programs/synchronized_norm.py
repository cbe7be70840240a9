"""A small convolutional network with torch.nn.SyncBatchNorm, data parallel: statistics are of all ranks' batches."""
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import common
from ranks import Ranks


def network(channels):
    layers = [nn.Conv2d(3, channels, 3), nn.BatchNorm2d(channels), nn.ReLU(), nn.Conv2d(channels, 8, 3),
              nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.LazyLinear(10)]
    return nn.SyncBatchNorm.convert_sync_batchnorm(nn.Sequential(*layers))


def main():
    options = common.options(__doc__, channels=64, batch=64, size=64)
    ranks = Ranks()
    with torch.device("cuda"):
        net = network(options.channels)
        net(torch.randn(2, 3, options.size, options.size))  # makes the last layer
    if ranks.count > 1:
        net = DistributedDataParallel(net, device_ids=[ranks.device.index])
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
    for step in range(options.steps):
        images = torch.randn(options.batch, 3, options.size, options.size)
        labels = torch.randint(10, (options.batch,))
        # Parts of unlike sizes: their statistics have unlike weights, and every rank's loss its part of the sum.
        edges = [0, *(options.batch * (1 + rank) // ranks.count - 1 for rank in range(ranks.count - 1)), options.batch]
        mine = slice(edges[ranks.number], edges[ranks.number + 1])
        images, labels = images[mine].cuda(), labels[mine].cuda()
        loss = nn.functional.cross_entropy(net(images), labels, reduction="sum") * ranks.count / options.batch
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        with torch.no_grad():
            net.eval()
            evaluated = nn.functional.cross_entropy(net(images), labels, reduction="sum") * ranks.count / options.batch
            net.train()
        ranks.print(f"step {step}: loss={ranks.mean(loss):.7f} evaluated={ranks.mean(evaluated):.7f}")
    ranks.finish()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
