"""The peak of live tensors while something runs: what a training takes of a device's memory, measured, not typed in."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import _FlopCounterMode

LARGE = 128 * 1024  # bytes from which an allocation gets pages of its own (glibc's M_MMAP_THRESHOLD)


class Peak(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Follows the bytes of live tensors that operations inside create; those `given` were there before.

    Python's collector of cycles rests meanwhile: when it comes is chance, and a gradient of a gradient has cycles.
    """

    def __init__(self, given: Iterable[Tensor] = ()) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.live = 0
        self.peak = 0
        self._known: dict[int, weakref.ref[Any]] = {}
        self._given = {tensor.untyped_storage()._cdata for tensor in given}

    def __enter__(self) -> Peak:
        self._collects = gc.isenabled()
        gc.disable()
        super().__enter__()  # type: ignore[no-untyped-call]
        return self

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)  # type: ignore[no-untyped-call]
        if self._collects:
            gc.enable()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        for leaf in tree_leaves(out):
            if isinstance(leaf, Tensor):
                self._follow(leaf.untyped_storage())
        return out

    def _follow(self, storage: torch.UntypedStorage) -> None:
        name = storage._cdata
        if name in self._known or name in self._given:
            return
        nbytes = storage.nbytes()

        def freed(_: Any) -> None:
            self._known.pop(name, None)
            self.live -= nbytes

        self._known[name] = weakref.ref(storage, freed)
        self.live += nbytes
        self.peak = max(self.peak, self.live)


class Effort(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts the operations inside that compute something, and the bytes that they read and write.

    Operations that autograd records are counted apart: with their way back they cost much more. Views cost next to
    nothing and are left out. Large results take new pages from the system, which cost more than to write them.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.ops = 0
        self.recorded = 0
        self.moved = 0
        self.fresh = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        if not func.is_view:
            given = [one for one in tree_leaves((args, kwargs)) if isinstance(one, Tensor)]
            made = [one for one in tree_leaves(out) if isinstance(one, Tensor)]
            if torch.is_grad_enabled() and any(one.requires_grad for one in given):
                self.recorded += 1
            else:
                self.ops += 1
            self.moved += sum(one.numel() * one.element_size() for one in (*given, *made))
            there = {one.untyped_storage()._cdata for one in given}
            new = {one.untyped_storage()._cdata: one.untyped_storage().nbytes() for one in made}
            self.fresh += sum(size for name, size in new.items() if name not in there and size >= LARGE)
        return out


def _without_compiler(mode: type[TorchDispatchMode]) -> None:
    """PyTorch wraps a mode so that its compiler leaves the mode alone, and imports the compiler for that, which takes
    seconds. Nothing here is compiled: the mode is called as it is."""
    raw: Any = getattr(mode.__torch_dispatch__, "__wrapped__", None)
    if raw is not None:
        raw.__dynamo_disable = raw


_without_compiler(Peak)
_without_compiler(Effort)
_without_compiler(_FlopCounterMode)
