"""torch.linalg as stock PyTorch runs it with cuSOLVER and cuBLAS: factorizations, solvers, eigenvalues, singular
values, in single, double and complex precision, one matrix and batches, forward and backward.

Checks shapes, gradients, and that the peak is some matrices and not many."""
import time

import torch

device = "cuda"
SIZES = ((), (3,))
# Some of these functions are MAGMA's, for which the wheel has kernels from 8.0 on.
magma = torch.cuda.get_device_capability() >= (8, 0)


def matrix(dtype, batch, rows=96, columns=96, definite=False):
    made = torch.randn(*batch, rows, columns, device=device, dtype=dtype)
    return (made @ made.mH + rows * torch.eye(rows, device=device, dtype=dtype) if definite else made).requires_grad_()


def measured(what, result_of, *inputs, gradients=True):
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    results = result_of(*inputs)
    results = results if isinstance(results, tuple) else (results,)
    if gradients:
        total = sum(result.abs().sum() for result in results if result.is_floating_point() or result.is_complex())
        for one, gradient in zip(inputs, torch.autograd.grad(total, inputs)):
            assert gradient.shape == one.shape
    taken = sum(one.numel() * one.element_size() for one in inputs)
    peak = torch.cuda.max_memory_allocated() - before
    assert peak < 40 * taken + (2 << 20) + workspace, (what, peak, taken)
    return results


# PyTorch's workspaces for cuBLAS come with the first products, in this thread and in that of the gradients, and stay;
# since 2.15 each is there for the length of a call.
left = torch.ones(96, 96, device=device, requires_grad=True)
(left @ left).sum().backward()
torch.cuda.reset_peak_memory_stats()
before = torch.cuda.memory_allocated()
left @ left
workspace = torch.cuda.max_memory_allocated() - before
for dtype in (torch.float32, torch.float64, torch.complex64, torch.complex128):
    for batch in SIZES:
        square, tall = matrix(dtype, batch), matrix(dtype, batch, rows=128, columns=64)
        wide, definite = matrix(dtype, batch, rows=64, columns=128), matrix(dtype, batch, definite=True)
        right = matrix(dtype, batch, columns=8)
        linalg = torch.linalg
        assert measured("cholesky", linalg.cholesky, definite)[0].shape == definite.shape
        assert measured("cholesky_ex", linalg.cholesky_ex, definite, gradients=False)[1].shape == batch
        measured("lu", linalg.lu_factor, square.detach(), gradients=False)
        assert measured("solve", linalg.solve, square, right)[0].shape == right.shape
        assert measured("inv", linalg.inv, square)[0].shape == square.shape
        assert measured("det", linalg.det, square, gradients=False)[0].shape == batch
        q, r = measured("qr", linalg.qr, tall)
        assert q.shape == (*batch, 128, 64) and r.shape == (*batch, 64, 64)
        # The gradients of complex eigenvectors look at values, which a card without values does not have.
        real = not dtype.is_complex
        values, vectors = measured("eigh", linalg.eigh, definite, gradients=real)
        assert values.shape == (*batch, 96) and vectors.shape == definite.shape
        u, s, vh = measured("svd", lambda a: linalg.svd(a, full_matrices=False), tall,
                            gradients=real)
        assert u.shape == (*batch, 128, 64) and s.shape == (*batch, 64) and vh.shape == (*batch, 64, 64)
        assert measured("svdvals", linalg.svdvals, wide, gradients=False)[0].shape == (*batch, 64)
        assert measured("lstsq", lambda a, b: linalg.lstsq(a, b).solution, tall, matrix(dtype, batch, 128, 4),
                        gradients=False)[0].shape == (*batch, 64, 4)
        assert measured("triangular", lambda a, b: linalg.solve_triangular(a, b, upper=False), square, right)[0].shape \
            == right.shape
        if magma:
            measured("cholesky_solve", torch.cholesky_solve, right, definite)
        measured("pinv", linalg.pinv, tall, gradients=False)
        measured("ormqr", lambda a: torch.ormqr(*torch.geqrf(a), torch.ones_like(a)), square.detach(), gradients=False)
        measured("ldl", linalg.ldl_factor, definite, gradients=False)

for driver in ("gesvd", "gesvdj", "gesvda"):
    torch.linalg.svd(matrix(torch.float32, ()), driver=driver, full_matrices=False)
torch.linalg.eigvals(matrix(torch.float32, ()).detach())
torch.cuda.synchronize()
# Autograd's thread takes the GIL to let go of the last gradients; an interpreter that ends meanwhile aborts.
time.sleep(0.1)
print("linear algebra: all functions and precisions")
