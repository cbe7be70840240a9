#!/usr/bin/env python3
"""moved_operands.py: under `spillway run --mode replace --limit BYTES`, flash attention in fp16 and bf16 and a function
that torch.compile makes a Triton kernel of, with operands on the card and with the same ones moved to the host. Prints
as JSON what became of each: "same" bits, "other bits", "does not repeat itself" on the card, or why it did not run."""
import json

import torch
from spillway_memory import query
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

SHAPE = (2, 8, 1024, 64)  # rows, heads, tokens, width
AFTER = 8 << 20  # bytes behind the operands, which a move may leave where they are


def attention(operands):
    with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
        return scaled_dot_product_attention(*operands, is_causal=True)


def elementwise(operands):
    x, y, z = operands
    return torch.sin(x) * y + torch.nn.functional.gelu(z)


def compiled(operands):
    return torch.compile(elementwise)(operands)


OPERATIONS = {"attention, fp16": (attention, torch.float16), "attention, bf16": (attention, torch.bfloat16),
              "compiled": (compiled, torch.float32)}


def operands_in(block, end, dtype):
    """Three tensors that end at a byte of the block, and the byte at which they begin."""
    count = torch.Size(SHAPE).numel()
    begin = end - 3 * count * dtype.itemsize
    whole = block[begin:end].view(dtype)
    whole.normal_()
    return whole.view(3, *SHAPE).unbind(), begin


class Operation:
    """Runs twice with operands on the card; `compare` runs it once more where they are then."""

    def __init__(self, function, operands):
        self.function, self.operands = function, operands
        self.first, self.second = self.values(), self.values()

    def values(self):
        """Or the error in a line."""
        try:
            return self.function(self.operands).clone()
        except Exception as error:  # noqa: BLE001  (torch.compile has many: no compiler, no Triton)
            return f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"

    def compare(self):
        if isinstance(self.first, str):
            return self.first
        if not torch.equal(self.first, self.second):
            return "does not repeat itself"
        again = self.values()
        if isinstance(again, str):
            return f"with operands on the host, {again}"
        return "same" if torch.equal(again, self.first) else "other bits"


def main():
    torch.manual_seed(1)
    torch.ones(1, device="cuda")
    limit = query().limit - query().context
    block = torch.zeros(limit * 3 // 5 // 4096 * 4096, dtype=torch.uint8, device="cuda")
    end, operations = block.numel() - AFTER, {}
    for name, (function, dtype) in OPERATIONS.items():
        operands, end = operands_in(block, end, dtype)
        operations[name] = Operation(function, operands)
    torch.cuda.synchronize()
    before = query().spilled
    hot = torch.empty(limit * 3 // 5, dtype=torch.uint8, device="cuda")
    moved = query().spilled - before
    said = {name: operation.compare() for name, operation in operations.items()}
    hot.fill_(1)
    print(json.dumps({"moved": moved, "operands": block.numel() - end, "said": said}))


if __name__ == "__main__":
    main()
