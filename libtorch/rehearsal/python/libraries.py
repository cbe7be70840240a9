"""The part of the rehearsal's probe that knows libraries beside PyTorch. The probe runs it in the program.

Transformers: where no value is computed it gives generate() its end. Where the rehearsal tries what gradient
checkpointing saves (SPILLWAY_REHEARSAL_CHECKPOINTING=1), it turns that on in each model that is called in training.
Triton: where no value is computed, what a kernel was not given stays known. A kernel writes no tensor but those among
its arguments, unless it follows addresses that it finds in memory.
"""
import ctypes
import importlib.util
import os
import sys
import threading


class _AfterImport:
    """Finds nothing itself: has `change` called with a module as soon as that has been imported."""

    def __init__(self, name, change):
        self.name, self.change = name, change

    def find_spec(self, name, path=None, target=None):
        del path, target
        if name != self.name:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is None or spec.loader is None:
            return spec
        execute = spec.loader.exec_module

        def exec_module(module):
            execute(module)
            self.change(module)

        spec.loader.exec_module = exec_module
        return spec


def _after_import(name, change):
    if name in sys.modules:
        change(sys.modules[name])
    else:
        sys.meta_path.insert(0, _AfterImport(name, change))


def _end_generation(values):
    """transformers' generate() asks the device after every token whether all sequences have ended. Zeros say never, so
    it ends where the host knows that it would: at the length that the program asked for."""
    if values == "compute":
        return
    reached = threading.local()

    def change_lengths(module):
        judge = module.MaxLengthCriteria.__call__

        def judge_length(self, input_ids, *arguments, **keywords):
            reached.end = input_ids.shape[1] >= self.max_length
            return judge(self, input_ids, *arguments, **keywords)

        module.MaxLengthCriteria.__call__ = judge_length

    def change_loop(module):
        ask = getattr(module.GenerationMixin, "_has_unfinished_sequences", None)
        if ask is None:
            return

        def has_unfinished_sequences(self, *arguments, **keywords):
            unfinished = ask(self, *arguments, **keywords)
            ended, reached.end = getattr(reached, "end", False), False
            return unfinished and not ended

        module.GenerationMixin._has_unfinished_sequences = has_unfinished_sequences

    _after_import("transformers.generation.stopping_criteria", change_lengths)
    _after_import("transformers.generation.utils", change_loop)


def _checkpoint_models(probe):
    """The outermost model is called first, and turns checkpointing on in those within it."""

    def change(module):
        model_type = module.PreTrainedModel
        call = model_type.__call__

        def call_checkpointed(self, *arguments, **keywords):
            if self.training and self.supports_gradient_checkpointing and not self.is_gradient_checkpointing:
                self.gradient_checkpointing_enable()
                probe.spillway_rehearsal_checkpointed()
            return call(self, *arguments, **keywords)

        model_type.__call__ = call_checkpointed

    _after_import("transformers.modeling_utils", change)


def _storages_of(arguments):
    """Address and bytes of what tensors among them lie in, those behind descriptors included."""
    for argument in arguments:
        tensor = getattr(argument, "base", argument) if hasattr(argument, "block_shape") else argument
        if hasattr(tensor, "untyped_storage"):
            storage = tensor.untyped_storage()
            yield storage.data_ptr(), storage.nbytes()


def _confine_triton(probe):
    forget = probe.spillway_rehearsal_forget
    forget.argtypes = (ctypes.c_uint64, ctypes.c_uint64)

    def change(module):
        launch = module.JITFunction.run

        def run(self, *arguments, **keywords):
            probe.spillway_rehearsal_confine(1)
            try:
                return launch(self, *arguments, **keywords)
            finally:
                probe.spillway_rehearsal_confine(-1)
                for address, count in _storages_of((*arguments, *keywords.values())):
                    forget(address, count)

        module.JITFunction.run = run

    _after_import("triton.runtime.jit", change)


def start(library, steps, values):
    del steps
    _end_generation(values)
    if values != "compute":
        _confine_triton(ctypes.PyDLL(library))
    if os.environ.get("SPILLWAY_REHEARSAL_CHECKPOINTING") == "1":
        _checkpoint_models(ctypes.PyDLL(library))
