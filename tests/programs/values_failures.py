"""What must not go unnoticed on `cuda`: unsupported operators, mixed devices, memory that runs out in the middle of an
operator. Prints one line per failed check and a last line `checks N failed M`. Needs a card of 1 GiB.
"""
import gc

import torch

FAILED = []
CHECKS = 0


def check(name, good):
    global CHECKS
    CHECKS += 1
    if not good:
        FAILED.append(name)
        print(name)


def raises(kind, function, *texts):
    try:
        function()
    except kind as error:
        missing = [t for t in texts if t not in str(error)]
        if missing:
            print("message lacks", missing, "in", str(error).splitlines()[:3])
        return not missing
    return False


def unsupported():
    x = torch.rand(3, 4, 8, device="cuda")
    check("an operator without a CPU kernel names itself",
          raises(NotImplementedError, lambda: torch._cslt_compress(x[0].half()), "aten::_cslt_compress"))
    check("so does one whose CPU kernel lacks the type",
          raises(NotImplementedError, lambda: torch.linalg.svd(x.half()), "svd"))
    check("work goes on after it", (x + 1).sum().item() > 0)


def devices():
    a = torch.ones(3, device="cuda")
    check("host and device tensors do not mix", raises(RuntimeError, lambda: a + torch.ones(3), "same device"))
    check("nor in a list", raises(RuntimeError, lambda: torch.cat([a, torch.ones(3)]), "same device"))
    check("a host scalar tensor does", torch.equal((a + torch.tensor(1.0)).cpu(), torch.full((3,), 2.0)))


def views_and_storages():
    a = torch.arange(12.0, device="cuda").view(3, 4)
    b = a.t()
    check("a view shares its storage", b.untyped_storage().data_ptr() == a.untyped_storage().data_ptr())
    b.add_(1)
    check("a write through a view is seen", a[0, 0].item() == 1)
    out = torch.empty(0, device="cuda")
    alias = out.view(0)
    torch.add(a, 1, out=out)
    check("a resized output keeps its storage object",
          alias.untyped_storage()._cdata == out.untyped_storage()._cdata and out[0, 0].item() == 2)
    check("relu_ returns its argument", torch.relu_(out) is not None and out.data_ptr() == torch.relu_(out).data_ptr())
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        c = a * 2
    c.record_stream(torch.cuda.current_stream())
    torch.cuda.current_stream().wait_stream(side)
    check("work on another stream", (c.sum() == a.sum() * 2).item())


def accounting():
    torch.cuda.empty_cache()
    base = torch.cuda.memory_allocated()
    a = torch.zeros(1 << 20, device="cuda")
    check("an output is charged once", torch.cuda.memory_allocated() - base == 4 << 20)
    b = a + 1
    check("and the next", torch.cuda.memory_allocated() - base == 8 << 20)
    torch.cuda.reset_peak_memory_stats()
    torch.var(b.view(1024, 1024).t(), dim=1)
    b.sort()
    check("temporaries are charged", torch.cuda.max_memory_allocated() - base > 8 << 20)
    check("and given back", torch.cuda.memory_allocated() - base == 8 << 20)
    conv = torch.nn.Conv2d(8, 8, 3).cuda()
    kept = torch.cuda.memory_allocated()
    for _ in range(3):
        conv(torch.rand(4, 8, 32, 32, device="cuda")).sum().backward()
        conv.zero_grad()
    check("a convolution leaves nothing behind", torch.cuda.memory_allocated() == kept)


def out_of_memory():
    held = torch.zeros(200 << 20, dtype=torch.uint8, device="cuda")
    x = torch.rand(75 << 20, device="cuda")  # 300 MiB; sorting takes 900 MiB more
    before = torch.cuda.memory_allocated()
    sorted_too_big = lambda: x.sort()  # noqa: E731
    for _ in range(3):
        check("memory runs out inside an operator",
              raises(torch.OutOfMemoryError, sorted_too_big, "CUDA out of memory. Tried to allocate"))
        gc.collect()
        check("and nothing is left of it", torch.cuda.memory_allocated() == before)
    check("its argument is unharmed", 0.4 < x[:1000].mean().item() < 0.6)
    out = torch.empty(0, device="cuda")
    check("an output that cannot grow", raises(torch.OutOfMemoryError, lambda: torch.cat([x, x, x], out=out)))
    check("host memory is not charged", torch.zeros(1000).sum().item() == 0)
    del held
    y = torch.rand(40 << 20, device="cuda", requires_grad=True)
    loss = (y * y).sum()
    before = torch.cuda.memory_allocated()
    torch.cuda.empty_cache()
    held = torch.empty(torch.cuda.mem_get_info()[0] - (64 << 20), dtype=torch.uint8, device="cuda")
    check("backward runs out of memory", raises(torch.OutOfMemoryError, lambda: loss.backward(retain_graph=True)))
    del held
    gc.collect()
    check("and leaves nothing", torch.cuda.memory_allocated() == before)
    loss.backward()
    check("and works when there is room", torch.equal(y.grad[:9], 2 * y[:9]))
    check("the process goes on", (x[:10] + 1).sum().item() > 10)


def mixed_precision():
    model = torch.nn.Linear(16, 16).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cuda")
    for _ in range(3):
        with torch.autocast("cuda", dtype=torch.float16):
            output = model(torch.rand(8, 16, device="cuda"))
            loss = output.square().mean()
        check("autocast computes in half", output.dtype == torch.float16)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
    check("the loss scale is kept", scaler.get_scale() > 0 and loss.isfinite().item())


def main():
    for part in (unsupported, devices, views_and_storages, accounting, out_of_memory, mixed_precision):
        part()
        gc.collect()
    torch.cuda.synchronize()
    print(f"checks {CHECKS} failed {len(FAILED)}")
    torch._C._cuda_clearCublasWorkspaces()  # PyTorch keeps them otherwise
    print("left", torch.cuda.memory_allocated())


if __name__ == "__main__":
    main()
