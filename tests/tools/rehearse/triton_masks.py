"""What masks select after a kernel of Triton: one that it has nothing to do with, and one that it wrote."""
import torch
import triton
import triton.language as tl


@triton.jit
def negate(mask, count, block: tl.constexpr):
    at = tl.arange(0, block)
    tl.store(mask + at, tl.load(mask + at, at < count) == 0, at < count)


mask = torch.tensor([True, False, False, True, False, True, False, False])
known, written = mask.cuda(), mask.to(torch.int32).cuda()
negate[(1,)](written, 8, block=8)
print("known", known.nonzero().shape[0], "written", written.nonzero().shape[0])
