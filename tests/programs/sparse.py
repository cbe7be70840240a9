"""Sparse tensors as stock PyTorch runs them with cuSPARSE: CSR, COO and BSR against dense and sparse, and
semi-structured (two in four) weights with cuSPARSELt.

Checks shapes, gradients, and that a product does not make its operand dense."""
import warnings

import torch

warnings.filterwarnings("ignore", message="Sparse|.*prototype|.*beta state")
device = "cuda"
ROWS, COLUMNS, EACH = 4096, 4096, 4


def csr(dtype, requires_grad=False):
    row_starts = torch.arange(0, ROWS * EACH + 1, EACH)
    columns = torch.arange(ROWS * EACH) * 7 % COLUMNS
    columns = columns.view(ROWS, EACH).sort().values.flatten()
    values = torch.randn(ROWS * EACH, dtype=dtype)
    with torch.sparse.check_sparse_tensor_invariants(False):
        return torch.sparse_csr_tensor(row_starts, columns, values, (ROWS, COLUMNS), device=device,
                                       requires_grad=requires_grad)


for dtype in (torch.float32, torch.float64, torch.complex64):
    dense = torch.randn(COLUMNS, 8, device=device, dtype=dtype)
    matrix = csr(dtype)
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    assert (matrix @ dense).shape == (ROWS, 8)
    assert (matrix @ dense[:, 0]).shape == (ROWS,)
    assert torch.sparse.mm(matrix, dense).shape == (ROWS, 8)
    assert torch.addmm(torch.ones(ROWS, 8, device=device, dtype=dtype), matrix, dense).shape == (ROWS, 8)
    assert torch.cuda.max_memory_allocated() - before < ROWS * COLUMNS, "the matrix was made dense"
    product = matrix @ matrix
    assert product.shape == (ROWS, COLUMNS) and product.layout == torch.sparse_csr
    assert (matrix + matrix).shape == (ROWS, COLUMNS)

weights = csr(torch.float32, requires_grad=True)
inputs = torch.randn(COLUMNS, 8, device=device, requires_grad=True)
torch.sparse.mm(weights, inputs).sum().backward()
assert inputs.grad.shape == inputs.shape and weights.grad.shape == weights.shape

places = torch.stack([torch.arange(ROWS) % 1000, torch.arange(ROWS) * 7 % 1000])
coo = torch.sparse_coo_tensor(places, torch.ones(ROWS), (1000, 1000), device=device, requires_grad=True)
other = torch.randn(1000, 16, device=device, requires_grad=True)
torch.sparse.mm(coo, other).sum().backward()
assert other.grad.shape == other.shape
assert (coo.detach().coalesce() * 2).shape == coo.shape
assert torch.sparse.sampled_addmm(csr(torch.float32), torch.randn(ROWS, 8, device=device),
                                  torch.randn(8, COLUMNS, device=device)).shape == (ROWS, COLUMNS)
assert torch.triangular_solve(torch.randn(ROWS, 2, device=device), csr(torch.float32), upper=False).solution.shape \
    == (ROWS, 2)

embedding = torch.nn.Embedding(1000, 16, sparse=True, device=device)
embedding(torch.arange(32, device=device)).sum().backward()
torch.optim.SparseAdam(embedding.parameters()).step()

if torch.cuda.get_device_capability() >= (8, 0):
    dense = torch.tensor([0, 0, 1, 1], dtype=torch.float16).tile((128, 32)).to(device)
    compressed = torch._cslt_compress(dense)
    assert compressed.numel() * compressed.element_size() == 9 * dense.numel() * dense.element_size() // 16
    assert torch._cslt_sparse_mm(compressed, torch.ones(128, 64, device=device, dtype=torch.float16)).shape == (128, 64)
torch.cuda.synchronize()
print("sparse: all layouts")
