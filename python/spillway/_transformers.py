"""The part of the rehearsal's probe that knows Transformers. The probe runs it in the program.

Where no value is computed it gives generate() its end. Where the rehearsal tries what gradient checkpointing saves
(SPILLWAY_REHEARSAL_CHECKPOINTING=1), it turns that on in each model that is called in training.
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


def start(library, steps, values):
    del steps
    _end_generation(values)
    if os.environ.get("SPILLWAY_REHEARSAL_CHECKPOINTING") == "1":
        _checkpoint_models(ctypes.PyDLL(library))
