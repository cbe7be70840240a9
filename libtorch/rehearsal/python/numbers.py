"""The part of the rehearsal's probe that follows numbers. The probe runs it in the program, where no value is computed.

`loss.item()` alone does not decide what a program allocates. So it gives a number that tells the probe when the program
decides by it: compares it, takes it as true or false, makes a whole number of it, or gives it on to where it is not
followed (NumPy, pickle, `torch.tensor`). What only prints, logs or averages it decides nothing. The same holds for
`print(tensor)`.

Not followed: whole numbers and truth values, which may size something in C; what C functions that are bound before
`import torch` make of a number (`from math import exp`); what a tensor is filled with or multiplied by. That a number
is finite is taken for granted, as the values of the device are.
"""
import ctypes
import functools
import math

_CALCULATIONS = ("add", "radd", "sub", "rsub", "mul", "rmul", "truediv", "rtruediv", "floordiv", "rfloordiv", "mod")
_CALCULATIONS += ("rmod", "pow", "rpow", "neg", "pos", "abs", "round")
_DECISIONS = ("bool", "lt", "le", "gt", "ge", "eq", "ne", "hash", "int", "trunc", "floor", "ceil", "float", "divmod")
_DECISIONS += ("rdivmod", "reduce_ex")
_FUNCTIONS = ("exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sqrt", "pow")


def _make_number_type(tell):
    """A float that calls `tell` when the program decides by it, and makes its like when the program calculates."""

    def calculate(method):
        @functools.wraps(method)
        def calculation(self, *others):
            result = method(self, *others)
            return Number(result) if type(result) is float else tell(result)

        return calculation

    def decide(method):
        @functools.wraps(method)
        def decision(*arguments):
            tell()
            return method(*arguments)

        return decision

    def stay(self, memo=None):
        del memo
        return self

    names = {"__slots__": (), "__copy__": stay, "__deepcopy__": stay}
    names.update({f"__{name}__": calculate(getattr(float, f"__{name}__")) for name in _CALCULATIONS})
    names.update({f"__{name}__": decide(getattr(float, f"__{name}__")) for name in _DECISIONS})
    names["__reduce_ex__"] = decide(lambda self, protocol: (float, (float.__pos__(self),)))
    Number = type("float", (float,), names)
    return Number


def _follow_functions(number):
    """Python's own: what they make of a followed number is followed."""

    def follow(function):
        @functools.wraps(function)
        def calculate(*arguments):
            result = function(*arguments)
            return number(result) if any(type(value) is number for value in arguments) else result

        return calculate

    for name in _FUNCTIONS:
        if hasattr(math, name):
            setattr(math, name, follow(getattr(math, name)))
    math.fsum = _follow_sum(math.fsum, number)


def _follow_sum(fsum, number):
    @functools.wraps(fsum)
    def calculate(values):
        values = list(values)
        result = fsum(values)
        return number(result) if any(type(value) is number for value in values) else result

    return calculate


def start(library, steps, values):
    del steps
    if values == "compute":
        return
    import torch

    probe = ctypes.PyDLL(library)
    count_as_number = probe.spillway_rehearsal_count_as_number

    def tell(result=None):
        if result is not NotImplemented:
            probe.spillway_rehearsal_decided()
        return result

    number = _make_number_type(tell)
    _follow_functions(number)
    read, make, show = torch.Tensor.item, torch.tensor, torch._tensor_str._str

    @functools.wraps(read)
    def item(self):
        if not self.is_floating_point():
            return read(self)
        count_as_number(1)
        try:
            value = read(self)
        finally:
            unknown = count_as_number(-1)
        return number(value) if unknown and type(value) is float else value

    @functools.wraps(show)
    def show_tensor(*arguments, **keywords):
        count_as_number(1)
        try:
            return show(*arguments, **keywords)
        finally:
            count_as_number(-1)

    @functools.wraps(make)
    def make_tensor(data, *arguments, **keywords):
        if type(data) is number or (type(data) in (list, tuple) and any(type(one) is number for one in data)):
            tell()
        return make(data, *arguments, **keywords)

    torch.Tensor.item, torch.tensor, torch._tensor_str._str = item, make_tensor, show_tensor
