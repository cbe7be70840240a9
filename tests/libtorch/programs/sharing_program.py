"""Two processes and one CUDA tensor: what tests/libtorch/test_sharing.py runs.

    sharing_program.py CASE SENDER RECEIVER

SENDER and RECEIVER name each process's allocator: spillway, native or expandable.
"""
import ctypes
import os
import random
import resource
import signal
import socket
import sys
import threading
import time

import torch
import torch.multiprocessing as multiprocessing

MIB = 1 << 20


def use(allocator):
    """Before CUDA is used in this process."""
    if allocator == "spillway":
        import spillway
        spillway.install()
    else:
        torch.cuda.memory._set_allocator_settings(f"expandable_segments:{allocator == 'expandable'}")


def read_all(queue, answers, allocator):
    use(allocator)
    for expected in iter(queue.get, None):
        tensors, sums = expected
        answers.put([tensor.double().sum().item() for tensor in tensors] == sums)
        tensors[0].fill_(3)
        torch.cuda.synchronize()
        answers.put(torch.cuda.memory_allocated())
        del tensors, expected
    answers.put("done")


def start(target, *arguments):
    context = multiprocessing.get_context("spawn")
    queue, answers = context.Queue(), context.Queue()
    child = context.Process(target=target, args=(queue, answers, *arguments), daemon=True)
    child.start()
    return child, queue, answers


def pass_tensors(receiver):
    """Several tensors on common pages, of one page and of many, twice."""
    child, queue, answers = start(read_all, receiver)
    sizes = [100, 5 * MIB, 300_000, 1, 2 * MIB, 40 * MIB]
    tensors = [torch.full((size,), i + 1, dtype=torch.uint8, device="cuda") for i, size in enumerate(sizes)]
    for _ in range(2):
        sums = [tensor.double().sum().item() for tensor in tensors]
        torch.cuda.synchronize()
        queue.put((tensors, sums))
        assert answers.get(timeout=60), "the receiver read something else"
        assert answers.get(timeout=60) <= 2048 * MIB
        assert (tensors[0] == 3).all().item(), "what the receiver wrote"
        assert (tensors[1] == 2).all().item()
    queue.put(None)
    assert answers.get(timeout=60) == "done"
    child.join(60)
    assert child.exitcode == 0, child.exitcode
    del tensors
    torch.cuda.ipc_collect()
    assert torch.cuda.memory_allocated() == 0, torch.cuda.memory_allocated()
    torch.cuda.empty_cache()
    assert torch.cuda.memory_reserved() == 0, torch.cuda.memory_reserved()


def views(receiver):
    """Views and slices arrive as views of one storage; the storage is mapped once."""
    child, queue, answers = start(read_all, receiver)
    whole = torch.arange(MIB, dtype=torch.int32, device="cuda")
    parts = [whole[1000:5000], whole.view(1024, 1024)[:, ::7], whole[-1:]]
    queue.put((parts, [part.double().sum().item() for part in parts]))
    assert answers.get(timeout=60)
    answers.get(timeout=60)
    assert (whole[1000:5000] == 3).all().item() and whole[999].item() == 999
    queue.put(None)
    assert answers.get(timeout=60) == "done"
    child.join(60)


def return_them(queue, answers, allocator):
    use(allocator)
    for i in iter(queue.get, None):
        answers.put(torch.full((MIB,), i, device="cuda"))
    torch.cuda.synchronize()
    answers.put("done")
    queue.get()


def both_directions(receiver):
    """What the child made comes here."""
    child, queue, answers = start(return_them, receiver)
    for i in range(5):
        queue.put(i)
        came = answers.get(timeout=60)
        assert (came == i).all().item(), i
        del came
    queue.put(None)
    assert answers.get(timeout=60) == "done"
    queue.put(None)
    child.join(60)
    assert child.exitcode == 0, child.exitcode
    assert torch.cuda.memory_allocated() == 0


def drop_capabilities():
    """From here on the system refuses what it refuses a user under Yama: to take a descriptor of another process."""
    header = (ctypes.c_uint32 * 2)(0x20080522, 0)
    nothing = (ctypes.c_uint32 * 6)()
    capset = 126 if os.uname().machine == "x86_64" else 91
    assert ctypes.CDLL(None).syscall(capset, header, nothing) == 0


def forbidden(queue, answers, allocator):
    use(allocator)
    torch.zeros(1, device="cuda")
    drop_capabilities()
    few = len(os.listdir("/proc/self/fd")) + 20
    resource.setrlimit(resource.RLIMIT_NOFILE, (few, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    pidfd = os.pidfd_open(os.getppid())
    getfd = ctypes.CDLL(None, use_errno=True).syscall(438, pidfd, 1, 0)
    answers.put(("may", getfd >= 0))
    try:
        tensor = queue.get()
        answers.put(("sum", tensor.double().sum().item()))
        del tensor
    except RuntimeError as error:
        answers.put(("error", str(error).splitlines()[0]))
    torch.cuda.synchronize()


def without_permission(receiver):
    child, queue, answers = start(forbidden, receiver)
    assert answers.get(timeout=60) == ("may", False)
    large = torch.ones(400 * MIB, dtype=torch.uint8, device="cuda")
    queue.put(large)
    print(*answers.get(timeout=60), sep=": ")
    child.join(60)


def page_count(handle):
    return int.from_bytes(handle[18:26], "little")


def with_number(handle, place, number):
    """The handle with another of the numbers that Spillway adds: 1 its process's start, 2 and 3 its socket's name."""
    names = 8 if handle[0] >= 3 else 0  # what names a page, since version 3
    at = 26 + names + 4 * page_count(handle) + 8 * place
    return handle[:at] + number.to_bytes(8, "little") + handle[at + 8:]


def open_handles(queue, answers, allocator, weaken=None):
    """Handles that no tensor stands behind."""
    use(allocator)
    torch.zeros(1, device="cuda")
    if weaken:
        weaken()
    for arguments in iter(queue.get, None):
        try:
            torch.UntypedStorage._new_shared_cuda(*arguments)
            answers.put("opened")
        except RuntimeError as error:
            answers.put(str(error).splitlines()[0])
    os.seteuid(os.getuid())


def wrong_handles(receiver):
    child, queue, answers = start(open_handles, receiver)
    tensor = torch.ones(3 * MIB, device="cuda")
    shared = list(tensor.untyped_storage()._share_cuda_())
    handle = shared[1]
    dead = multiprocessing.get_context("spawn").Process(target=int)
    dead.start()
    dead.join()
    process = dead.pid.to_bytes(4, "little")
    for wrong in (b"\x02", b"\x09e" + handle[2:], handle[:1] + b"x" + handle[2:], handle[:30], handle[:-3],
                  handle + b"tail", handle[:2] + process + handle[6:], handle[:10] + bytes(8) + handle[18:],
                  with_number(handle, 1, 1)):
        queue.put((shared[0], wrong, *shared[2:]))
        print(answers.get(timeout=60))
    queue.put(None)
    child.join(60)
    assert child.exitcode == 0


def wrong_sockets(receiver):
    """Where descriptors are asked for at a socket: one where another process answers, and another user's process."""
    tensor = torch.ones(3 * MIB, device="cuda")
    shared = list(tensor.untyped_storage()._share_cuda_())
    helper, _, listens = start(listen)
    assert listens.get(timeout=60)
    child, queue, answers = start(open_handles, receiver, drop_capabilities)
    stolen = with_number(with_number(shared[1], 2, 1), 3, 2)
    queue.put((shared[0], stolen, *shared[2:]))
    print(answers.get(timeout=60))
    queue.put(None)
    child.join(60)
    child, queue, answers = start(open_handles, receiver, become_nobody)
    queue.put(tuple(shared))
    print(answers.get(timeout=60))
    queue.put(None)
    child.join(60)
    helper.kill()


def listen(_queue, answers):
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(f"\0spillway-{1:016x}{2:016x}")
    listener.listen()
    answers.put(True)
    signal.pause()


def become_nobody():
    """To sockets; the real user stays, who writes the simulator's report at the end."""
    os.seteuid(65534)
    drop_capabilities()


def open_twice(queue, answers, allocator):
    use(allocator)
    torch.zeros(1, device="cuda")
    first, second = (torch.UntypedStorage._new_shared_cuda(*arguments) for arguments in queue.get())
    answers.put(first.data_ptr() == second.data_ptr())
    del first
    answers.put(torch.empty(0, dtype=torch.uint8, device="cuda").set_(second).sum().item())


def opened_twice(receiver):
    """A handle that is open already is not mapped again, and stays mapped until the last user is gone."""
    child, queue, answers = start(open_twice, receiver)
    storage = torch.ones(3 * MIB, dtype=torch.uint8, device="cuda").untyped_storage()
    queue.put([storage._share_cuda_(), storage._share_cuda_()])
    print("one mapping", answers.get(timeout=60))
    print("sum", answers.get(timeout=60))
    child.join(60)
    assert child.exitcode == 0, child.exitcode


def descriptors():
    return len(os.listdir("/proc/self/fd"))


def mappings():
    """Of files, which is how computing mode maps pages."""
    with open("/proc/self/maps") as lines:
        return sum("memfd:" in line for line in lines)


def count_descriptors(queue, answers, allocator, weaken):
    use(allocator)
    torch.zeros(1, device="cuda")
    if weaken:
        weaken()
    for tensor in iter(queue.get, None):
        answers.put((tensor.sum().item(), (descriptors(), mappings())))
        del tensor
        torch.cuda.synchronize()


def descriptors_are_closed(receiver, forbidden):
    """Neither process has more of them after a tensor was opened, by either way, nor the receiver more mappings."""
    child, queue, answers = start(count_descriptors, receiver, drop_capabilities if forbidden == "forbidden" else None)
    counts = []
    tensor = torch.ones(30 * MIB, dtype=torch.uint8, device="cuda")
    for _ in range(4):
        queue.put(tensor)
        total, theirs = answers.get(timeout=60)
        assert total == 30 * MIB
        deadline = time.monotonic() + 30  # the thread that answers closes its own a moment later
        while counts and descriptors() > counts[-1][0] and time.monotonic() < deadline:
            time.sleep(0.01)
        counts.append((descriptors(), theirs))
    queue.put(None)
    child.join(60)
    assert counts[1] == counts[-1], counts


def kill_self(queue, answers, allocator, moment):
    use(allocator)
    received = queue.get() if moment != "before" else None
    if moment == "reading":
        for _ in range(20):
            received.add_(1)
        answers.put(os.getpid())
        while True:
            received.add_(1)
    if moment == "freed":
        received.fill_(2)
        torch.cuda.synchronize()
        del received
        torch.cuda.ipc_collect()
    if moment == "before":
        torch.zeros(1, device="cuda")
    answers.put(os.getpid())
    signal.pause()


def receiver_dies(receiver, moment):
    child, queue, answers = start(kill_self, receiver, moment)
    tensor = torch.ones(8 * MIB, device="cuda")
    other = torch.full((8 * MIB,), 7.0, device="cuda")
    if moment != "before":
        queue.put(tensor)
    answers.get(timeout=60)
    if moment == "before":
        queue.put(tensor)
    os.kill(child.pid, signal.SIGKILL)
    child.join(60)
    assert child.exitcode == -signal.SIGKILL
    assert (other == 7).all().item(), "a neighbour's bytes"
    value = tensor[0].item()
    assert value in {"before": {1.0}, "freed": {2.0}}.get(moment, {value}) and value >= 1
    print("value", "good")
    # PyTorch keeps what a dead receiver has not released; what it has released is free.
    del tensor
    torch.cuda.ipc_collect()
    held = torch.cuda.memory_allocated() - other.numel() * 4
    print("held", held // MIB)
    fresh = torch.full((8 * MIB,), 5.0, device="cuda")
    assert (fresh == 5).all().item() and (other == 7).all().item()


def add_forever(queue, answers, allocator):
    use(allocator)
    for tensor in iter(queue.get, None):
        tensor.add_(1)
        torch.cuda.synchronize()
        answers.put(tensor[0].item())
        del tensor


def receivers_die_anywhere(receiver, seed):
    """Tensors go to one receiver after another, each killed at some moment of its work."""
    moments = random.Random(int(seed))
    neighbour = torch.full((3 * MIB,), 7.0, device="cuda")
    lost = 0
    for _ in range(3):
        child, queue, answers = start(add_forever, receiver)
        queue.put(torch.ones(MIB, device="cuda"))
        assert answers.get(timeout=60) == 2
        killer = threading.Timer(moments.uniform(0.0, 0.3), child.kill)
        killer.start()
        while child.is_alive():
            queue.put(torch.ones(MIB, device="cuda"))
            while child.is_alive() and answers.empty():
                time.sleep(0.0005)
            if child.is_alive():
                assert answers.get() == 2
        assert child.exitcode == -signal.SIGKILL, child.exitcode
        torch.cuda.ipc_collect()
        held = torch.cuda.memory_allocated() - 12 * MIB
        assert held - lost <= 2 * 4 * MIB, "more than what was on its way"
        lost = held
        assert (neighbour == 7).all().item()


def send_and_die(queue, answers, allocator, moment):
    use(allocator)
    tensor = torch.full((8 * MIB,), 4.0, device="cuda")
    torch.cuda.synchronize()
    answers.put(tensor)
    answers.close()
    answers.join_thread()
    if moment == "sent":
        signal.pause()
    queue.get()
    signal.pause()


def sender_dies(receiver, moment):
    """`receiver` is the child's allocator here: it sends."""
    child, queue, answers = start(send_and_die, receiver, moment)
    if moment == "sent":
        # The tensor is in the pipe, and nobody has it open.
        answers._reader.poll(60)
        os.kill(child.pid, signal.SIGKILL)
        child.join(60)
        try:
            answers.get(timeout=60)
            print("opened")
        except Exception as error:  # noqa: BLE001  (PyTorch raises of many types here)
            print(type(error).__name__, str(error).splitlines()[0])
    else:
        tensor = answers.get(timeout=60)
        assert (tensor == 4).all().item()
        queue.put("received")
        os.kill(child.pid, signal.SIGKILL)
        child.join(60)
        tensor.mul_(2)
        assert (tensor == 8).all().item(), "its bytes outlive it"
        del tensor
        torch.cuda.synchronize()
        print("read")
    mine = torch.full((8 * MIB,), 6.0, device="cuda")
    assert (mine == 6).all().item()
    del mine
    torch.cuda.empty_cache()
    print("left", torch.cuda.memory_allocated(), torch.cuda.memory_reserved())


def hold_until_told(queue, answers, allocator):
    use(allocator)
    tensor = queue.get()
    answers.put(tensor[0].item())
    queue.get()
    del tensor
    torch.cuda.synchronize()
    answers.put("freed")
    queue.get()


def short_of_memory(receiver):
    """What the receiver is done with is there when memory is short, though nobody has collected it."""
    child, queue, answers = start(hold_until_told, receiver)
    half = torch.cuda.mem_get_info()[1] // 2
    tensor = torch.ones(half, dtype=torch.uint8, device="cuda")
    queue.put(tensor)
    assert answers.get(timeout=60) == 1
    del tensor
    assert torch.cuda.memory_allocated() == half, "the receiver still uses it"
    queue.put("let it go")
    assert answers.get(timeout=60) == "freed"
    more = torch.empty(half + half // 2, dtype=torch.uint8, device="cuda")
    assert torch.cuda.memory_allocated() == more.numel()
    del more
    queue.put(None)
    child.join(60)


def whole_allocations(receiver):
    """A pool that does not split gives each tensor an allocation of its own, with a legacy handle."""
    child, queue, answers = start(read_all, receiver)
    pool = torch.cuda.MemPool(no_split=True)
    with torch.cuda.use_mem_pool(pool):
        tensors = [torch.full((size,), 2, dtype=torch.uint8, device="cuda") for size in (1000, 3 * MIB)]
    handle = tensors[1].untyped_storage()._share_cuda_()[1]
    print("kind", chr(handle[1]), len(handle))
    queue.put((tensors, [2000.0, 6.0 * MIB]))
    assert answers.get(timeout=60)
    answers.get(timeout=60)
    assert (tensors[0] == 3).all().item()
    queue.put(None)
    assert answers.get(timeout=60) == "done"
    child.join(60)
    del tensors


CASES = {"twice": opened_twice, "descriptors": descriptors_are_closed, "sockets": wrong_sockets,
         "pass": pass_tensors, "views": views, "both": both_directions, "whole": whole_allocations,
         "short": short_of_memory, "forbidden": without_permission, "wrong": wrong_handles,
         "receiver_dies": receiver_dies, "receivers_die": receivers_die_anywhere, "sender_dies": sender_dies}

if __name__ == "__main__":
    case, sender, receiver, *rest = sys.argv[1:]
    use(sender)
    CASES[case](receiver, *rest)
    print("good")
