"""Graphs with true values: a capture changes nothing, each replay computes what was captured, on what is then at the
captured addresses, and draws other random numbers. The CPU's values are the reference."""
import copy
import gc
import warnings

import torch
from torch import nn

warnings.filterwarnings("ignore", message=".*AccumulateGrad node's stream")
failed = []
checks = 0


def check(name, holds):
    global checks
    checks += 1
    if not holds:
        failed.append(name)


def captured(function):
    """The graph of the function's operators, and what it returned."""
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = function()
    return graph, result


def in_place_changes():
    held = torch.full((1000,), 1.0, device="cuda")
    strided = torch.zeros(4, 6, device="cuda")[:, ::2]
    def change():
        total = held.sum()
        held.mul_(2).add_(1)
        strided.add_(torch.arange(3, device="cuda"))
        return total, held + 1, held[:3]
    graph, (total, more, view) = captured(change)
    check("a capture changes nothing", held.eq(1).all().item() and strided.eq(0).all().item())
    for before, after in ((1, 3), (3, 7), (7, 15)):
        graph.replay()
        check(f"the total of {before}", total.item() == 1000 * before)
        check(f"{after}", held.eq(after).all().item() and more.eq(after + 1).all().item() and view[2].item() == after)
    check("a strided sum", strided.tolist() == [[0, 3, 6]] * 4)
    held.fill_(100)
    graph.replay()
    check("another input", more[0].item() == 202)


def values_behind_others():
    """Indices that the graph itself makes: those behind find them while it is captured."""
    table = torch.arange(12.0, device="cuda").view(6, 2)
    source = torch.tensor([5, 0, 3], device="cuda")
    def look_up():
        where = source.clone()
        zeros = torch.zeros(2, dtype=torch.long, device="cuda")
        return table[where], nn.functional.embedding(zeros + 1, table), where.sort()
    graph, (rows, ones, ordered) = captured(look_up)
    source.copy_(torch.tensor([1, 2, 2]))
    graph.replay()
    check("rows", rows.tolist() == [[2, 3], [4, 5], [4, 5]])
    check("made indices", ones.tolist() == [[2, 3]] * 2)
    check("two results", ordered.values.tolist() == [1, 2, 2] and sorted(ordered.indices.tolist()) == [0, 1, 2])


def copies():
    host = torch.full((5,), 3.0).pin_memory()
    back = torch.zeros(5).pin_memory()
    card = torch.zeros(5, device="cuda")
    def move():
        card.copy_(host, non_blocking=True)
        doubled = card.double() * 2
        back.copy_(card + 1, non_blocking=True)
        return doubled
    graph, doubled = captured(move)
    for value in (3.0, 8.0):
        host.fill_(value)
        graph.replay()
        torch.cuda.synchronize()
        check(f"copies of {value}", doubled.tolist() == [2 * value] * 5 and back.tolist() == [value + 1] * 5)


def random_numbers():
    def draw():
        return torch.rand(50, device="cuda"), nn.functional.dropout(torch.ones(50, device="cuda"), 0.5)
    torch.manual_seed(9)
    expected = [draw() for _ in range(3)]
    graph, (uniform, dropped) = captured(draw)
    torch.manual_seed(9)
    for i, (numbers, mask) in enumerate(expected):
        graph.replay()
        check(f"draw {i} is that without a graph", uniform.equal(numbers) and dropped.equal(mask))
    check("draws differ", not expected[0][0].equal(expected[1][0]))


def statistics_that_no_schema_tells():
    layer = nn.BatchNorm1d(4).cuda()
    inputs = torch.arange(12.0, device="cuda").view(3, 4)
    with torch.backends.cudnn.flags(enabled=False):
        graph, _ = captured(lambda: layer(inputs))
    check("a capture leaves running statistics alone", layer.running_mean.eq(0).all().item())
    graph.replay()
    check("a replay moves them", torch.allclose(layer.running_mean, inputs.mean(0) / 10))


def training():
    torch.manual_seed(2)
    model = nn.Sequential(nn.Conv2d(1, 4, 3, bias=False), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(144, 3))
    batches = [torch.randn(5, 1, 8, 8) for _ in range(4)]
    def train(model, step):
        return [step(batch).item() for batch in batches], [one.detach().cpu() for one in model.state_dict().values()]
    def plain(model):
        optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
        def step(batch):
            optimizer.zero_grad()
            loss = model(batch).square().mean()
            loss.backward()
            optimizer.step()
            return loss
        return step
    on_cpu, on_card, graphed = (copy.deepcopy(model).to(device) for device in ("cpu", "cuda", "cuda"))
    losses, weights = train(on_cpu, plain(on_cpu))

    optimizer = torch.optim.Adam(on_card.parameters(), lr=0.01, capturable=True)
    static = torch.zeros(5, 1, 8, 8, device="cuda")
    def whole_step():
        loss = on_card(static).square().mean()
        loss.backward()
        optimizer.step()
        return loss
    state = copy.deepcopy(on_card.state_dict())
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        static.copy_(batches[0])
        whole_step()
    torch.cuda.current_stream().wait_stream(stream)
    optimizer.zero_grad(set_to_none=True)
    before = copy.deepcopy(on_card.state_dict())
    graph, loss = captured(whole_step)
    check("a captured training changes nothing", all(map(torch.equal, before.values(), on_card.state_dict().values())))
    on_card.load_state_dict(state)
    for one in optimizer.state.values():
        for moment in one.values():
            moment.zero_()
    def replay(batch):
        static.copy_(batch)
        graph.replay()
        return loss
    def same(a, b):
        return all(torch.allclose(torch.as_tensor(x), torch.as_tensor(y), rtol=1e-4, atol=1e-5) for x, y in zip(a, b))
    card_losses, card_weights = train(on_card, replay)
    check("losses of a training in a graph", same(losses, card_losses))
    check("its weights and running statistics", same(weights, card_weights))

    callable_ = torch.cuda.make_graphed_callables(graphed, (torch.randn(5, 1, 8, 8, device="cuda"),))
    graphed.load_state_dict(state)
    eager = plain(callable_)
    card_losses, card_weights = train(graphed, lambda batch: eager(batch.cuda()))
    check("losses of graphed callables", same(losses, card_losses))
    check("their weights", same(weights, card_weights))


def replays_allocate_nothing():
    """Matrix products and recurrent layers too, whose memory CUDA's own code takes where a card is modelled."""
    torch.manual_seed(3)
    layers = nn.LSTM(6, 5, num_layers=2, bidirectional=True), nn.GRU(6, 5)
    product, added = torch.randn(7, 6), torch.randn(7, 7)
    def work(lstm, gru, x, more):
        sequence = x.view(7, 1, 6)
        loss = lstm(sequence)[0].sum() + gru(sequence)[0].square().sum()
        gradients = torch.autograd.grad(loss, [x, *lstm.parameters(), *gru.parameters()])
        batches = torch.bmm(x.view(1, 7, 6), x.t().unsqueeze(0))
        return [x @ x.t(), torch.addmm(more, x, x.t()), batches, torch.addmv(x[:, 0], more, x[:, 1]),
                torch.baddbmm(batches, batches, batches), torch.empty(0, 6, device=x.device) @ x.t(), *gradients]
    on_card = [copy.deepcopy(layer).cuda() for layer in layers]
    x, more = product.cuda().requires_grad_(), added.cuda()
    work(*on_card, x, more)
    graph, results = captured(lambda: work(*on_card, x, more))
    with torch.no_grad():
        for one in (x, more):
            one.mul_(2)
    torch.cuda.synchronize()
    before = torch.cuda.memory_stats()["allocation.all.allocated"]
    graph.replay()
    torch.cuda.synchronize()
    check("no allocation", torch.cuda.memory_stats()["allocation.all.allocated"] == before)
    expected = work(*layers, (product * 2).requires_grad_(), added * 2)
    for i, (one, other) in enumerate(zip(expected, results, strict=True)):
        check(f"result {i} of products and recurrent layers", torch.allclose(one, other.cpu(), rtol=1e-4, atol=1e-5))


def what_waits_for_values_is_refused_as_on_a_card():
    x = torch.ones(4, device="cuda")
    uses = {"nonzero": x.nonzero, "equal": lambda: x.equal(x), "mask": lambda: x[x > 0]}
    for name, use in uses.items():
        said = ""
        try:
            with torch.cuda.graph(torch.cuda.CUDAGraph()):
                use()
        except RuntimeError as error:
            said = str(error.__context__ or error)
        check(f"{name} in a capture: {said}", "captur" in said)
    check("after it", bool((x + 1 == 2).all()))


for part in (in_place_changes, values_behind_others, copies, random_numbers,
             statistics_that_no_schema_tells, training, replays_allocate_nothing,
             what_waits_for_values_is_refused_as_on_a_card):
    part()
    gc.collect()
for name in failed:
    print("differs:", name)
print("checks", checks, "failed", len(failed))
torch.cuda.synchronize()
gc.collect()
torch._C._cuda_clearCublasWorkspaces()
print("left", torch.cuda.memory_allocated())
