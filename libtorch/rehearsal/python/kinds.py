"""The part of the rehearsal's probe that tells what memory is for. The probe runs it in the program.

After each step of an optimizer it tells the probe where parameters, gradients and the optimizer's state lie. Parameters
that no optimizer has (frozen ones) and buffers are found at an optimizer's first two steps, in all modules there are.
"""
import ctypes
import gc

_PARAMETER, _GRADIENT, _OPTIMIZER_STATE = 1, 2, 3  # libtorch/rehearsal/site_table.h
_STEPS_OF_A_SEARCH = 2


def _tensors_of(value, torch):
    """The plain CUDA tensors of a value: those in a list, a dictionary, or a tensor that wraps others (DTensor)."""
    if isinstance(value, torch.Tensor):
        if hasattr(value, "__tensor_flatten__"):
            for name in value.__tensor_flatten__()[0]:
                yield from _tensors_of(getattr(value, name), torch)
        elif value.is_cuda and value.layout is torch.strided:
            yield value
    elif isinstance(value, dict):
        for one in value.values():
            yield from _tensors_of(one, torch)
    elif isinstance(value, (list, tuple)):
        for one in value:
            yield from _tensors_of(one, torch)


def _all_modules(torch):
    """By their type alone: to ask a stranger's object for its class may run its code."""
    return [one for one in gc.get_objects() if issubclass(type(one), torch.nn.Module)]


def start(library, steps, values):
    del steps, values
    import torch
    from torch.optim.optimizer import register_optimizer_step_post_hook

    probe = ctypes.PyDLL(library)

    def classify(value, kind):
        addresses = {tensor.untyped_storage().data_ptr() for tensor in _tensors_of(value, torch)}
        array = (ctypes.c_uint64 * len(addresses))(*addresses)
        probe.spillway_rehearsal_classify(array, ctypes.c_size_t(len(addresses)), ctypes.c_int(kind))

    def stepped(optimizer, arguments, keywords):
        del arguments, keywords
        seen = getattr(optimizer, "_spillway_searches", 0)
        if seen < _STEPS_OF_A_SEARCH:
            optimizer._spillway_searches = seen + 1
            for module in _all_modules(torch):
                classify([module._parameters, module._buffers], _PARAMETER)
        parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
        classify(parameters, _PARAMETER)
        classify([parameter.grad for parameter in parameters], _GRADIENT)
        classify(list(optimizer.state.values()), _OPTIMIZER_STATE)

    register_optimizer_step_post_hook(stepped)
