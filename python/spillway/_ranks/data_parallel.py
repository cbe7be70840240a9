"""DistributedDataParallel: a rank computes alone, and its gradients are reduced when all ranks have theirs.

Nothing waits for another rank while memory may run out, so that a failure is redone, or its micro-batch split, by the
rank that has it. The reduction is DDP's own: a backward pass that brings no gradient runs through its parameters in the
order in which their gradients came, so that buckets, hooks and bits are those of DDP.
"""
import itertools
import typing

if typing.TYPE_CHECKING:
    import torch
    from torch.nn.parallel import DistributedDataParallel

_NOT_RUN: typing.Any = 0  # false for DDP, whose forward ends by setting False itself

def obstacle(module: "DistributedDataParallel") -> typing.Optional[str]:
    """Why a call of this module cannot be taken apart into what a rank does alone and what all do."""
    for attribute, what in (("static_graph", "DDP with static_graph=True"),
                            ("mixed_precision", "DDP with mixed_precision"),
                            ("buffer_hook", "DDP with a communication hook for buffers"),
                            ("_use_python_reducer", "DDP with the Python reducer"),
                            ("_delay_all_reduce_all_params", "DDP with delay_all_reduce_named_params")):
        if getattr(module, attribute, None):
            return what
    if getattr(getattr(module, "_join_config", None), "enable", False):
        return "DDP inside join()"
    return None


class DataParallel:
    """The modules of one call."""

    def __init__(self, modules: list["DistributedDataParallel"]) -> None:
        self._modules = modules
        self._order: list[dict[torch.Tensor, None]] = [{} for _ in modules]  # parameters, as their gradients came
        self._is_inside = [False for _ in modules]
        self._handles: list[typing.Any] = []

    def begin(self) -> None:
        """Does what DDP's forward exchanges with other ranks; after it, forward and backward exchange nothing."""
        # Lightning calls its training_step within DDP's forward.
        self._is_inside = [type(one)._active_ddp_module is one for one in self._modules]
        for module, order in zip(self._modules, self._order):
            if module.reducer._rebuild_buckets():
                module._has_rebuilt_buckets = True
            if module._check_sync_bufs_pre_fwd():
                module._sync_buffers()
            module.require_backward_grad_sync, module.require_forward_param_sync = False, _NOT_RUN
            # DDP makes its buckets anew in the order of the first backward pass.
            if not module._has_rebuilt_buckets:
                for parameter in _parameters(module):
                    self._handles.append(parameter.register_post_accumulate_grad_hook(_Noting(order)))

    def check(self) -> None:
        """DDP's own error comes at the next forward; here no rank makes the step."""
        for module in itertools.compress(self._modules, self._are_run()):
            if module.find_unused_parameters or all(one.grad is not None for one in _parameters(module)):
                continue
            names = [name for name, one in module.module.named_parameters() if one.requires_grad and one.grad is None]
            raise RuntimeError(f"these parameters had no part in the loss: {', '.join(names[:5])}. Wrap the model by "
                               "DistributedDataParallel with find_unused_parameters=True")

    def _are_run(self) -> list[bool]:
        """DDP reduces nothing where its forward was not run: the function may have run the module inside it."""
        return [is_inside or module.require_forward_param_sync is not _NOT_RUN
                for module, is_inside in zip(self._modules, self._is_inside)]

    def end(self) -> None:
        """Before the reduction, or instead of it."""
        are_run = self._are_run()
        for module in self._modules:
            module.require_backward_grad_sync = module.require_forward_param_sync = True
        for handle in self._handles:
            handle.remove()
        self._modules = list(itertools.compress(self._modules, are_run))
        self._order = list(itertools.compress(self._order, are_run))

    def reduce(self) -> None:
        for module, order in zip(self._modules, self._order):
            parameters = _parameters(module)
            ordered = [*order, *(one for one in parameters if one not in order)]
            with _without_hooks(ordered):
                _run_reducer(module, ordered)


class _Noting:
    def __init__(self, order: dict["torch.Tensor", None]) -> None:
        self._order = order

    def __call__(self, parameter: "torch.Tensor") -> None:
        self._order.pop(parameter, None)  # of a redo or a later piece, the last counts
        self._order[parameter] = None


def _parameters(module: "DistributedDataParallel") -> list["torch.Tensor"]:
    return [one for one in module._module_parameters if one.requires_grad]


class _without_hooks:
    """Within it the parameters' own hooks rest: they are for gradients, and have had them."""

    def __init__(self, parameters: list["torch.Tensor"]) -> None:
        self._hooks = [(one, one._backward_hooks) for one in parameters if one._backward_hooks]

    def __enter__(self) -> None:
        for parameter, _ in self._hooks:
            parameter._backward_hooks = None

    def __exit__(self, *_: object) -> None:
        for parameter, hooks in self._hooks:
            parameter._backward_hooks = hooks


def _run_reducer(module: "DistributedDataParallel", parameters: list["torch.Tensor"]) -> None:
    """A backward pass in which each parameter, one after the other, gets no gradient: DDP then takes what it has."""
    import torch

    class Passing(torch.autograd.Function):
        @staticmethod
        def forward(ctx, after, parameter):  # type: ignore[no-untyped-def]
            ctx.device = after.device
            return torch.empty(0, device=parameter.device)

        @staticmethod
        def backward(ctx, gradient):  # type: ignore[no-untyped-def]
            return gradient.to(ctx.device), None

    with torch.enable_grad():
        token = torch.empty(0, device=parameters[0].device, requires_grad=True)
        for parameter in reversed(parameters):
            token = Passing.apply(token, parameter)
        module.reducer.prepare_for_forward()
        module.reducer.prepare_for_backward([token] if module.find_unused_parameters else [])
        token.backward(torch.empty(0, device=token.device))
