"""Sequences of other lengths take the places of earlier ones, and the rest of each place is too small."""
import torch

MIB = 1 << 20


def activations(mebibytes):
    return torch.empty(mebibytes * MIB, dtype=torch.uint8, device="cuda")


kept = [activations(24) for _ in range(8)]
kept.clear()
kept = [activations(14) for _ in range(8)]
kept.append(activations(70))
