"""One call with what the profiler and the library said of it."""

from __future__ import annotations

from dataclasses import replace

from nhwc.model import Call, TensorMeta
from nhwc.recorder import library
from nhwc.recorder.dispatch import RawCall
from nhwc.recorder.inner import Inside

#: Position of ``transposed`` among the arguments of the convolution operators.
_TRANSPOSED = {"convolution": 6, "_convolution": 6, "convolution_overrideable": 6, "convolution_backward": 7}


def join(raw: RawCall, inside: Inside | None, library_output: bytes, *, ran: bool = True) -> Call:
    """The call with its caller, its time, the copies inside its kernel and the reorders inside its library.

    ran: whether its kernel ran; of a call on fake tensors only the caller is true.
    """
    call = raw.call
    reorders = library.between(library_output, raw.output_start, raw.output_end)
    if reorders:
        shapes, transposed = operand_shapes(call), _is_transposed(call)
        named = [library.name_operand(reorder, shapes, transposed=transposed) for reorder in reorders]
        # matrices have no memory format: only that a weight is packed again at every call is worth telling
        reorders = [reorder for reorder in named if len(reorder.shape) > 2 or reorder.operand == "weights"]
    if inside is None or "." not in call.operator:  # a higher-order operator, which the dispatcher does not announce
        return replace(call, caller=call.operator, reorders=tuple(reorders))
    if not ran:
        return replace(call, caller=inside.caller)
    by_address = {address: meta for address, meta in zip(raw.addresses, call.inputs, strict=True) if address}
    copies = [
        replace(
            copy,
            source=_identify(copy.source, by_address.get(source)),
            target=_identify(copy.target, by_address.get(target)),
        )
        for copy, target, source in inside.copies
    ]
    return replace(
        call,
        caller=inside.caller,
        copies=tuple(copies),
        reorders=(*reorders, *inside.reorders),
        ms=inside.ms,
    )


def _identify(meta: TensorMeta, operand: TensorMeta | None) -> TensorMeta:
    return meta if operand is None else replace(meta, storage=operand.storage, name=operand.name)


def _is_transposed(call: Call) -> bool:
    position = _TRANSPOSED.get(call.name)
    return position is not None and position < len(call.arguments) and call.arguments[position] is True


def operand_shapes(call: Call) -> dict[str, tuple[int, ...]]:
    """Shapes of an operator's operands by oneDNN's names for them: src, weights, dst."""
    shapes = [meta.shape for meta in call.inputs]
    if call.name == "convolution_backward" and len(shapes) >= 3:
        return {"dst": shapes[0], "src": shapes[1], "weights": shapes[2]}
    if call.name in ("addmm", "addmm_", "baddbmm"):  # the bias comes first
        shapes = shapes[1:]
    named = dict(zip(("src", "weights"), shapes, strict=False))
    if call.outputs:
        named["dst"] = call.outputs[0].shape
    return named
