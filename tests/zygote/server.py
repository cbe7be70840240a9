"""An interpreter with PyTorch imported, forked for each program that a test starts: the tests' `python` asks it.

Usage: server.py SOCKET. Writes 'y' to descriptor 3 once it listens. Ends after three minutes without a program.
"""
import atexit
import builtins
import ctypes
import fcntl
import gc
import io
import os
import runpy
import selectors
import signal
import socket
import struct
import sys
import threading
import types

IDLE_SECONDS = 180
DESCRIPTORS = 200


class Request:
    """What a program inherits: its words after `python`, environment, folder, mask, descriptors (its number, ours)."""

    def __init__(self, client):
        head, held, _, _ = socket.recv_fds(client, 4, DESCRIPTORS)
        body = self._receive(client, struct.unpack("=I", head)[0])
        self.mask, count = struct.unpack_from("=II", body)
        targets = struct.unpack_from(f"={count}i", body, 8)
        self.descriptors = list(zip(targets, held))
        folder, _, rest = body[8 + 4 * count:].partition(b"\0")
        self.folder = os.fsdecode(folder)
        words, rest = self._words(rest)
        variables, _ = self._words(rest)
        self.words = [os.fsdecode(word) for word in words[1:]]
        self.environment = dict(variable.split(b"=", 1) for variable in variables if b"=" in variable)
        self.unbuffered = bool(self.environment.get(b"PYTHONUNBUFFERED"))
        self.writes_bytecode = True
        while self.words[0] in ("-B", "-u"):
            if self.words.pop(0) == "-u":
                self.unbuffered = True
            else:
                self.writes_bytecode = False

    @staticmethod
    def _receive(client, length):
        parts = []
        while length > 0:
            part = client.recv(min(length, 1 << 16))
            if not part:
                raise ConnectionError("the client left while it asked")
            parts.append(part)
            length -= len(part)
        return b"".join(parts)

    @staticmethod
    def _words(text):
        count, = struct.unpack_from("=I", text)
        parts = text[4:].split(b"\0", count)
        return parts[:count], parts[count]

    def close(self):
        for _, held in self.descriptors:
            os.close(held)


class Server:
    """Forks for each client, and tells it the program's process, then its status. Who leaves kills its program."""

    def __init__(self, path):
        self.path = path
        self.selector = selectors.DefaultSelector()
        self.listener = socket.socket(socket.AF_UNIX)
        if os.path.exists(path):
            os.unlink(path)  # of a server that was killed
        self.listener.bind(path)
        self.listener.listen(64)
        self.selector.register(self.listener, selectors.EVENT_READ, self.accept)
        self.running = {}  # client → (process, its descriptor)
        self.asked = 0

    def serve(self):
        """The request of the program that this process has become: only children return."""
        while True:
            events = self.selector.select(IDLE_SECONDS)
            if not events and not self.running:
                os.unlink(self.path)
                os._exit(0)
            for key, _ in events:
                request = key.data()
                if request is not None:
                    return request

    def accept(self):
        client, _ = self.listener.accept()
        try:
            request = Request(client)
        except (OSError, ConnectionError, struct.error):
            client.close()
            return None
        self.asked += 1
        if self.asked == 3:  # there may be many more
            import_for_many()
        process = os.fork()
        if process == 0:
            self.leave(client)
            return request
        request.close()
        watched = os.pidfd_open(process)
        self.running[client] = (process, watched)
        self.selector.register(watched, selectors.EVENT_READ, lambda: self.ended(client))
        self.selector.register(client, selectors.EVENT_READ, lambda: self.left(client))
        self.tell(client, process)
        return None

    def ended(self, client):
        if client in self.running:
            process, watched = self.running.pop(client)
            _, status = os.waitpid(process, 0)
            self.selector.unregister(watched)
            os.close(watched)
            self.selector.unregister(client)
            self.tell(client, status)
            client.close()

    def left(self, client):
        if client in self.running:
            os.kill(self.running[client][0], signal.SIGKILL)
            self.ended(client)

    @staticmethod
    def tell(client, number):
        try:
            client.sendall(struct.pack("=i", number))
        except OSError:
            pass  # it left; its program is killed when that is seen

    def leave(self, client):
        """In the child: nothing of the server stays open."""
        self.selector.close()
        self.listener.close()
        client.close()
        for other, (_, watched) in self.running.items():
            other.close()
            os.close(watched)


def take_descriptors(descriptors):
    above = 1 + max(target for target, _ in descriptors) + len(descriptors)
    moved = []
    for target, held in descriptors:
        moved.append((target, fcntl.fcntl(held, fcntl.F_DUPFD_CLOEXEC, above)))
        os.close(held)
    for standard in range(3):
        os.close(standard)
    for target, held in moved:
        os.dup2(held, target)
        os.close(held)


def stream(descriptor, mode, unbuffered):
    try:
        buffering = 0 if unbuffered else -1
        raw = open(descriptor, mode + "b", buffering, closefd=False)
    except OSError:
        return None  # the program was started without it
    errors = "backslashreplace" if descriptor == 2 else "strict"
    line_buffering = descriptor == 2 or raw.isatty()
    text = io.TextIOWrapper(raw, encoding="utf-8", errors=errors, line_buffering=line_buffering,
                            write_through=unbuffered)
    text.mode = mode
    return text


def become(request):
    """This process takes over what the program's would have had."""
    take_descriptors(request.descriptors)
    os.chdir(request.folder)
    os.umask(request.mask)
    sys.dont_write_bytecode = not request.writes_bytecode
    for name in list(os.environb):
        if name not in request.environment:
            del os.environb[name]
    os.environb.update(request.environment)
    sys.stdin = sys.__stdin__ = stream(0, "r", False)
    sys.stdout = sys.__stdout__ = stream(1, "w", request.unbuffered)
    sys.stderr = sys.__stderr__ = stream(2, "w", request.unbuffered)
    for name in filter(None, reversed(os.environ.get("PYTHONPATH", "").split(os.pathsep))):
        sys.path.insert(0, os.path.abspath(name))


def prepare_main(words):
    """A fresh __main__ for the words after `python`, and its code."""
    main = types.ModuleType("__main__")
    main.__builtins__ = builtins
    sys.orig_argv = [sys.executable, *words]
    if words[0] == "-c":
        sys.argv = ["-c", *words[2:]]
        sys.path.insert(0, "")
        code = compile(words[1], "<string>", "exec", dont_inherit=True)
    else:
        sys.argv = words
        sys.path.insert(0, os.path.dirname(os.path.realpath(words[0])))
        main.__file__ = os.path.abspath(words[0])
        with open(words[0], "rb") as source:
            code = compile(source.read(), main.__file__, "exec", dont_inherit=True)
    sys.modules["__main__"] = main
    return code, main.__dict__


def run(words):
    """Runs the program as the interpreter's main would; what it raises is told without this file's frames."""
    try:
        if words[0] == "-m":
            sys.argv = words[1:]
            sys.orig_argv = [sys.executable, *words]
            sys.path.insert(0, os.getcwd())
            runpy.run_module(words[1], run_name="__main__", alter_sys=True)
        else:
            code, names = prepare_main(words)
            exec(code, names)
    except SystemExit:
        raise
    except KeyboardInterrupt:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    except BaseException:
        kind, error, trace = sys.exc_info()
        while trace is not None and trace.tb_frame.f_code.co_filename == __file__:
            trace = trace.tb_next
        sys.excepthook(kind, error.with_traceback(trace), trace)
        sys.exit(1)


def status_of(end):
    """What the interpreter makes of a SystemExit."""
    if end.code is None or isinstance(end.code, int):
        return (end.code or 0) & 0xFF
    print(end.code, file=sys.stderr)
    return 1


def finish(status, shared):
    """Ends the process as the interpreter would, but that the modules of these names keep what they have.

    To free those objects, page by page, takes longer than most programs. Libraries' own functions for the end run as
    ever, but for the server's LibTorch (keep_operators.c)."""
    distributed = sys.modules.get("torch.distributed")
    if distributed and distributed.is_initialized():  # what it holds must go before libraries end
        gc.unfreeze()  # else nanobind reports the frozen objects as leaked
        sys.exit(status)
    threading._shutdown()  # waits for the program's threads
    atexit._run_exitfuncs()
    try:
        for file in filter(None, (sys.stdout, sys.stderr)):
            file.flush()
    except (OSError, ValueError):
        sys.exit(status)  # the interpreter has words and a status for this
    for name in set(sys.modules) - shared | {"__main__"}:
        names = getattr(sys.modules.pop(name), "__dict__", None)
        if isinstance(names, dict) and names is not globals():  # after `-m` this file is __main__ again
            names.clear()
    gc.collect()
    ctypes.PyDLL(None).exit(status)  # with the interpreter's lock: libraries let go of Python's objects


def import_for_all():
    """What every program here imports, and nothing that asks for a device: a child could not use it."""
    import torch
    import torch.distributed
    import torch.utils.data  # noqa: F401
    gc.freeze()  # what is shared with the programs stays shared


def import_for_many():
    """What most of them import later: the first step of an optimizer, or a model, brings as much again."""
    gc.disable()
    import torch._dynamo  # noqa: F401
    from transformers import GPT2LMHeadModel  # noqa: F401
    gc.freeze()
    gc.enable()


def replace_allocator():
    """What `--mode replace` does while PyTorch is imported, and could not do in the server (late_replacement.c)."""
    process = ctypes.CDLL(None)
    ctypes.c_int.in_dll(process, "spillway_libtorch_is_hidden").value = 0
    getattr(process, "PyInit_torch", None)  # as after the import of a library


def serve(socket_path):
    """Returns in each program's process: its words, and the names of the modules that it shares."""
    gc.disable()  # nearly all that is imported stays
    import_for_all()
    gc.enable()
    server = Server(socket_path)
    os.write(3, b"y")
    os.close(3)
    request = server.serve()
    shared = set(sys.modules)
    become(request)
    replace_allocator()
    return request.words, shared


if __name__ == "__main__":
    del sys.path[0]  # the folder of this file
    program, kept = serve(sys.argv[1])
    try:
        run(program)
        code = 0
    except SystemExit as end:
        code = status_of(end)
    finish(code, kept)
