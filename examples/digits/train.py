#!/usr/bin/env python3
"""Train a small network to read handwritten digits, with the same gradient step on every rank.

Any launcher will do that sets MASTER_ADDR, MASTER_PORT, RANK and WORLD_SIZE. Needs torch (1.13 or newer) and nothing
else; runs on CPUs. The last line of rank 0 is `accuracy A on 297 unseen digits (N ranks, E epochs)`.
"""

import argparse
import datetime
import gzip
import pathlib

import torch
import torch.distributed as dist

# Early: it keeps the group of the moment of its import as a default, and with it gloo's threads to the end of Python.
import torch.distributed.nn
from torch import nn
from torch.nn.parallel import DistributedDataParallel

TRAINED_ON = 1500  # of 1797


def digits():
    """All images as floats from 0 to 1 in the shape (n, 1, 8, 8), and their labels, shuffled the same way every time."""
    packed = pathlib.Path(__file__).with_name("digits.u8.gz").read_bytes()
    rows = torch.frombuffer(bytearray(gzip.decompress(packed)), dtype=torch.uint8).view(-1, 65)
    rows = rows[torch.randperm(len(rows), generator=torch.Generator().manual_seed(1))]
    return rows[:, :64].float().div(16).view(-1, 1, 8, 8), rows[:, 64].long()


def network():
    return nn.Sequential(
        nn.Conv2d(1, 24, kernel_size=3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(24, 48, kernel_size=3, padding=1),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(48 * 16, 10),
    )


def train(options, rank, ranks):
    torch.set_num_threads(1)
    torch.manual_seed(2)  # the same first weights everywhere

    images, labels = digits()
    model = DistributedDataParallel(network())
    optimizer = torch.optim.SGD(model.parameters(), lr=options.rate, momentum=0.9)
    shuffle = torch.Generator().manual_seed(3)  # the same order everywhere; each rank takes its share of a batch
    print(f"rank {rank} of {ranks} with torch {torch.__version__}", flush=True)

    accuracy = 0.0
    for epoch in range(1, options.epochs + 1):
        total = torch.zeros(2)
        for batch in torch.randperm(TRAINED_ON, generator=shuffle).split(options.batch):
            share = batch[rank::ranks]
            loss = nn.functional.cross_entropy(model(images[share]), labels[share])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += torch.tensor([loss.item(), 1.0])

        with torch.no_grad():
            mine = slice(TRAINED_ON + rank, None, ranks)
            right = (model.module(images[mine]).argmax(1) == labels[mine]).sum()
        # One reduction for both: what was lost over all ranks, and how many unseen digits were read right.
        sums = torch.cat([total, right.float().view(1)])
        dist.all_reduce(sums)
        accuracy = sums[2].item() / (len(images) - TRAINED_ON)
        if rank == 0:
            print(f"epoch {epoch}: loss {sums[0].item() / sums[1].item():.4f}, accuracy {accuracy:.3f}", flush=True)

    if rank == 0:
        unseen = len(images) - TRAINED_ON
        print(f"accuracy {accuracy:.3f} on {unseen} unseen digits ({ranks} ranks, {options.epochs} epochs)", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--batch", type=int, default=60, help="images in a step, all ranks together")
    parser.add_argument("--rate", type=float, default=0.05)
    options = parser.parse_args()

    # The backend is named: wheels for GPUs offer NCCL on machines that cannot use it.
    dist.init_process_group("gloo", timeout=datetime.timedelta(minutes=2))
    rank, ranks = dist.get_rank(), dist.get_world_size()
    if options.batch % ranks:
        parser.error(f"a batch of {options.batch} cannot be divided among {ranks} ranks")
    train(options, rank, ranks)
    # The model has gone with its function, so that this ends the threads of gloo. One that gave back a tensor while
    # Python ends would abort the process.
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
