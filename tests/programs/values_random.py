"""Random numbers on `cuda`: seeds, saved states and recomputation repeat exactly. Prints one line per failed check and
a last line `checks N failed M`.
"""
import torch
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint

FAILED = []
CHECKS = 0


def check(name, good):
    global CHECKS
    CHECKS += 1
    if not good:
        FAILED.append(name)
        print(name)


def draws():
    x = torch.full((300,), 0.5, device="cuda")
    return [torch.rand(300, device="cuda"), torch.randn(300, device="cuda"), torch.randperm(50, device="cuda"),
            torch.randint(0, 100, (300,), device="cuda"), torch.bernoulli(x), x.clone().uniform_(), x.clone().normal_(),
            torch.multinomial(x, 5), torch.multinomial(x, 400, replacement=True), x.clone().exponential_(),
            x.clone().random_(), x.clone().cauchy_(), x.clone().geometric_(0.3), x.clone().log_normal_(),
            torch.poisson(x), torch.normal(x, x), torch._standard_gamma(x), F.dropout(x, 0.4),
            F.dropout1d(x.view(3, 100)),
            F.alpha_dropout(x, 0.3, True), torch.native_dropout(x, 0.5, True)[1], torch._fused_dropout(x, 0.5)[0],
            F.rrelu(-x, training=True), torch.randn_like(x),
            torch.nn.init.xavier_uniform_(torch.empty(5, 6, device="cuda"))]


def all_equal(a, b):
    return len(a) == len(b) and all(torch.equal(p, q) for p, q in zip(a, b))


def seeds_and_states():
    torch.cuda.manual_seed(11)
    first = draws()
    second = draws()
    check("draws differ from one another", not any(torch.equal(p, q) for p, q in zip(first, second)))
    torch.cuda.manual_seed(11)
    check("manual_seed repeats", all_equal(first, draws()))
    check("and goes on the same", all_equal(second, draws()))
    torch.cuda.manual_seed(12)
    check("another seed differs", not torch.equal(first[0], torch.rand(300, device="cuda")))
    state = torch.cuda.get_rng_state()
    with torch.random.fork_rng(devices=[0]):
        forked = draws()
    check("fork_rng restores", all_equal(forked, draws()))
    torch.cuda.set_rng_state(state)
    check("set_rng_state repeats", all_equal(forked, draws()))
    torch.manual_seed(5)
    host = torch.rand(9)
    torch.manual_seed(5)
    draws()
    check("the CPU's generator is not touched", torch.equal(host, torch.rand(9)))


def generators():
    make = lambda: torch.Generator(device="cuda").manual_seed(3)  # noqa: E731
    generator = make()
    before = torch.cuda.get_rng_state()
    first = torch.rand(9, device="cuda", generator=generator)
    second = torch.rand(9, device="cuda", generator=generator)
    check("an own generator leaves the default alone", torch.equal(before, torch.cuda.get_rng_state()))
    again = make()
    check("an own generator repeats", torch.equal(first, torch.rand(9, device="cuda", generator=again)))
    check("and goes on", torch.equal(second, torch.rand(9, device="cuda", generator=again)))
    try:
        torch.empty(3, device="cuda").normal_(generator=torch.Generator())
        check("a CPU generator is refused", False)
    except RuntimeError as error:
        check("a CPU generator is refused with its reason", "generator" in str(error))


def statistics():
    torch.cuda.manual_seed(1)
    kept = F.dropout(torch.ones(100000, device="cuda"), 0.3)
    check("dropout keeps 70%", abs((kept > 0).float().mean().item() - 0.7) < 0.01)
    check("dropout scales", abs(kept.max().item() - 1 / 0.7) < 1e-5)
    normal = torch.randn(100000, device="cuda")
    check("normal mean", abs(normal.mean().item()) < 0.02)
    check("normal deviation", abs(normal.std().item() - 1) < 0.02)
    pairs = torch.stack([torch.rand(1, device="cuda").squeeze() for _ in range(2000)])
    check("first numbers of draws are uniform", abs(pairs.mean().item() - 0.5) < 0.03)
    check("and distinct", pairs.unique().numel() > 1990)


def gradients(run, x):
    x = x.clone().requires_grad_()
    torch.cuda.manual_seed(2)
    run(x).sum().backward()
    return x.grad


def recomputation():
    layers = torch.nn.Sequential(torch.nn.Linear(16, 16), torch.nn.Dropout(0.5), torch.nn.GELU(),
                                 torch.nn.Dropout(0.2)).cuda()
    x = torch.randn(8, 16, device="cuda")
    for reentrant in (False, True):
        recomputed = gradients(lambda t: checkpoint(layers, t, use_reentrant=reentrant), x)
        check(f"recomputed dropout, reentrant {reentrant}", torch.equal(gradients(layers, x), recomputed))
    q = torch.randn(2, 3, 8, 16, device="cuda")
    bias = torch.randn(8, 8, device="cuda")
    for name, attend in (("flash", lambda t: F.scaled_dot_product_attention(t, q, q, dropout_p=0.4)),
                         ("efficient",
                          lambda t: F.scaled_dot_product_attention(t, q, q, attn_mask=bias, dropout_p=0.4))):
        recomputed = gradients(lambda t: checkpoint(attend, t, use_reentrant=False), q)
        check(f"recomputed attention dropout, {name}", torch.equal(gradients(attend, q), recomputed))


def attention_gradients():
    """Dropout in attention: the gradient agrees with a numerical one, so backward draws forward's mask."""
    from torch.nn.attention import SDPBackend, sdpa_kernel
    q, k, v = (torch.randn(1, 2, 4, 8, device="cuda") for _ in range(3))
    bias = torch.randn(4, 4, device="cuda")

    def run(t, backend, mask):
        torch.cuda.manual_seed(9)
        with sdpa_kernel(backend):
            return (F.scaled_dot_product_attention(t, k, v, attn_mask=mask, dropout_p=0.3) * v).sum()

    half = [t.bfloat16() for t in (q, k, v)]
    with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
        out = F.scaled_dot_product_attention(*half, dropout_p=0.3)
    check("bfloat16 flash attention with dropout", out.dtype == torch.bfloat16 and out.isfinite().all().item())
    for backend, mask in ((SDPBackend.EFFICIENT_ATTENTION, bias),
                          (SDPBackend.EFFICIENT_ATTENTION, None), (SDPBackend.MATH, bias)):
        x = q.clone().requires_grad_()
        run(x, backend, mask).backward()
        step = torch.zeros_like(q)
        step[0, 1, 2, 3] = 1e-2
        numerical = (run(q + step, backend, mask) - run(q - step, backend, mask)) / 2e-2
        check(f"gradient through {backend} with mask {mask is not None}",
              abs(numerical.item() - x.grad[0, 1, 2, 3].item()) < 2e-3)
    b = bias.clone().requires_grad_()
    F.scaled_dot_product_attention(q, k, v, attn_mask=b).sum().backward()
    expected = bias.cpu().clone().requires_grad_()
    F.scaled_dot_product_attention(q.cpu(), k.cpu(), v.cpu(), attn_mask=expected).sum().backward()
    check("gradient of the attention bias", torch.allclose(b.grad.cpu(), expected.grad, atol=1e-5))
    grouped = k[:, :1].clone().requires_grad_()
    F.scaled_dot_product_attention(q, grouped, v[:, :1], enable_gqa=True).sum().backward()
    reference = k[:, :1].cpu().clone().requires_grad_()
    F.scaled_dot_product_attention(q.cpu(), reference, v[:, :1].cpu(), enable_gqa=True).sum().backward()
    check("grouped-query attention", torch.allclose(grouped.grad.cpu(), reference.grad, atol=1e-5))


def attention_weights():
    """Dropout in attention leaves the weights' sum as it is on the average, and a position that is hidden hidden."""
    q, k = torch.randn(2, 4, 8, 64, 64, device="cuda")
    weights = F.scaled_dot_product_attention(q, k, torch.eye(64, device="cuda").expand_as(q), dropout_p=0.4,
                                             is_causal=True)
    check("causal attention with dropout sees no later position", torch.equal(weights, weights.tril()))
    check("dropout in attention scales what it keeps", abs(weights.sum(-1).mean().item() - 1) < 0.05)


def main():
    seeds_and_states()
    generators()
    statistics()
    recomputation()
    attention_gradients()
    attention_weights()
    torch.cuda.synchronize()
    print(f"checks {CHECKS} failed {len(FAILED)}")
    torch._C._cuda_clearCublasWorkspaces()  # PyTorch keeps them otherwise
    print("left", torch.cuda.memory_allocated())


if __name__ == "__main__":
    main()
