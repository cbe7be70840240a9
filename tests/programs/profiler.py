"""torch.profiler over a small training step, as its first page shows it. A simulated card tells a profiler nothing, and
the CPU's side is all there."""
import torch
from torch.profiler import ProfilerActivity, profile, record_function, schedule


def step(model, optimizer):
    with record_function("forward"):
        loss = model(torch.randn(64, 256, device="cuda")).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()


def main():
    model = torch.nn.Sequential(torch.nn.Linear(256, 1024), torch.nn.ReLU(), torch.nn.Linear(1024, 8)).cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA], profile_memory=True, with_stack=True,
                 record_shapes=True) as whole:
        step(model, optimizer)
    rows = {row.key: row for row in whole.key_averages()}
    assert rows["aten::linear"].count == 2 and rows["forward"].count == 1, sorted(rows)
    assert max(row.self_device_memory_usage for row in rows.values()) >= 256 * 1024 * 4
    assert "aten::addmm" in whole.key_averages().table(sort_by="cpu_time_total")
    traces = []
    with profile(schedule=schedule(wait=1, warmup=1, active=2, repeat=1),
                 on_trace_ready=lambda trace: traces.append({event.name for event in trace.events()})) as scheduled:
        for _ in range(4):
            step(model, optimizer)
            scheduled.step()
    assert len(traces) == 1 and {"forward", "aten::addmm"} <= traces[0], traces
    print("profiled")


if __name__ == "__main__":
    main()
