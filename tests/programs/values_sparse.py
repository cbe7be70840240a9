"""Sparse tensors on the card have the CPU's values: conversions, products, sums, gradients, for COO and compressed
layouts."""
import warnings

import torch

warnings.filterwarnings("ignore", message="Sparse|.*prototype|.*beta state")
failed = []
checks = 0


def dense(one):
    one = one.detach().cpu()
    return one if one.layout == torch.strided else one.to_dense()


def check(name, function):
    """`function` gets a matrix with zeros, a dense one and a function that puts tensors where these are."""
    global checks
    checks += 1
    expected = dense(function(matrix.clone(), other.clone(), lambda one: one))
    on_card = function(matrix.cuda(), other.cuda(), lambda one: one.cuda())
    if not on_card.is_cuda or not torch.allclose(dense(on_card), expected, rtol=1e-5, atol=1e-6):
        failed.append(name)


def gradient_of_dense(a, b, _):
    b = b.requires_grad_()
    torch.sparse.mm(a.to_sparse(), b).square().sum().backward()
    return b.grad


def gradient_of_sparse(a, b, _):
    a = a.to_sparse().requires_grad_()
    torch.sparse.mm(a, b).square().sum().backward()
    return a.grad.coalesce()


def embedding(_, b, put):
    layer = torch.nn.Embedding(6, 3, sparse=True, _weight=b.clone())
    layer(put(torch.tensor([1, 1, 3]))).sum().backward()
    torch.optim.SGD(layer.parameters(), lr=0.1).step()
    return layer.weight


def in_place(a, _, put):
    made = a.to_sparse()
    made.add_(a.t().to_sparse()).mul_(2)
    return made


torch.manual_seed(0)
matrix = torch.randn(6, 6)
matrix[matrix.abs() < 0.8] = 0
other = torch.randn(6, 3)
places, numbers = torch.tensor([[0, 1, 0], [2, 0, 2]]), torch.tensor([3.0, 4.0, 5.0])
check("coalesce", lambda a, b, put: torch.sparse_coo_tensor(put(places), put(numbers), (6, 6)).coalesce())
for name, convert in {"coo": torch.Tensor.to_sparse, "csr": torch.Tensor.to_sparse_csr,
                      "csc": torch.Tensor.to_sparse_csc, "bsr": lambda a: a.to_sparse_bsr((2, 2))}.items():
    check(f"to {name}", lambda a, b, _, convert=convert: convert(a))
    check(f"{name} to dense", lambda a, b, _, convert=convert: convert(a).to_dense())
    check(f"{name} by dense", lambda a, b, _, convert=convert: convert(a) @ b)
for name, convert in {"coo": torch.Tensor.to_sparse, "csr": torch.Tensor.to_sparse_csr}.items():
    check(f"{name} by vector", lambda a, b, _, convert=convert: convert(a) @ b[:, 0])
    check(f"{name} by sparse", lambda a, b, _, convert=convert: torch.sparse.mm(convert(a), convert(a)))
    check(f"{name} plus sparse", lambda a, b, _, convert=convert: convert(a) + convert(a.t().contiguous()))
    check(f"{name} addmm", lambda a, b, _, convert=convert: torch.addmm(b, convert(a), b))
    check(f"{name} times two", lambda a, b, _, convert=convert: convert(a) * 2)
    check(f"{name} square root", lambda a, b, _, convert=convert: convert(a.abs()).sqrt())
check("times sparse", lambda a, b, _: a.to_sparse() * a.t().to_sparse())
check("softmax", lambda a, b, _: torch.sparse.softmax(a.to_sparse(), 1))
check("sum", lambda a, b, _: torch.sparse.sum(a.to_sparse(), 1))
check("sampled", lambda a, b, _: torch.sparse.sampled_addmm(a.to_sparse_csr(), b, b.t().contiguous()))
check("dense plus sparse", lambda a, b, _: a + a.to_sparse())
check("in place", in_place)
check("bmm", lambda a, b, _: torch.bmm(torch.stack([a, a]).to_sparse(), torch.stack([b, b])))
check("index_select", lambda a, b, put: a.to_sparse().index_select(0, put(torch.tensor([1, 3]))))
check("mask", lambda a, b, _: a.sparse_mask(a.to_sparse()))
check("a gradient of the dense side", gradient_of_dense)
check("a gradient of the sparse side", gradient_of_sparse)
check("an embedding", embedding)
for name in failed:
    print("differs:", name)
print("checks", checks, "failed", len(failed))
torch.cuda.synchronize()
torch._C._cuda_clearCublasWorkspaces()  # PyTorch keeps them otherwise
print("left", torch.cuda.memory_allocated())
