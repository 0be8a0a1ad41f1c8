"""How formats flow through a step: for every call what it does to the format, and for every tensor lying plane by
plane the call (or input) that it comes from. The rules read their findings off this.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum

from nhwc.model import Call, InnerCopy, Phase, TensorMeta, Trace
from nhwc.rules.order import Order, order_of, permutes
from nhwc.strides import channels_last_for, physical_order, strides_for

COPIES = frozenset({"clone", "_to_copy", "copy_", "copy", "contiguous", "to_format"})
CONVOLUTIONS = frozenset(
    {"convolution", "convolution_backward", "mkldnn_rnn_layer", "_convolution", "cudnn_convolution"}
)
#: Operators that do nothing but copy their operands into one tensor.
JOINING = frozenset({"cat", "stack"})
#: Composite operators by which a user asks for a copy; any other caller of a copy hides it.
EXPLICIT_CALLERS = frozenset(
    {
        "clone",
        "_to_copy",
        "to",
        "copy_",
        "copy",
        "contiguous",
        "reshape",
        "flatten",
        "type_as",
        "float",
        "unflatten",
        "ravel",
        "to_format",
    }
)
_FACTORIES = ("new_", "empty", "zeros", "ones", "full", "rand", "arange", "linspace", "scalar_tensor", "eye")


class Event(str, Enum):
    """What a call does to the format of the data that passes through it."""

    COPY = "copies between formats"
    LOSS = "reads channels last, writes contiguous"
    MIXED = "reads both formats, writes contiguous"
    STRIDES = "is misled by non-canonical strides"
    GRADIENT = "writes the gradient of a channels-last activation in contiguous"


@dataclass(frozen=True)
class Origin:
    """Where data lying plane by plane comes from: a culprit call, a source call (factory), or a named tensor."""

    call: int | None
    culprit: bool
    name: str | None = None


class Flow:
    """Events and origins of a trace.

    events: call index → Event. origin_at: (call index, input position) → Origin, for inputs lying plane by plane.
    expected: whether channels last is in use at all (a parameter or an input lies so).
    """

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self.events: dict[int, Event] = {}
        self.origin_at: dict[tuple[int, int], Origin] = {}
        self.forced: set[int] = set()
        self._state: dict[int, Origin | None] = {}
        self._makers: dict[int, int] = {}
        self._images: dict[int, Order] = {}
        self.parameters = {parameter.tensor.storage for parameter in trace.parameters}
        tensors = [*(parameter.tensor for parameter in trace.parameters), *trace.inputs]
        self.expected = any(order_of(meta) is Order.PIXELS for meta in tensors) or any(
            order_of(meta) is Order.PIXELS for call in trace.calls if call.name in CONVOLUTIONS for meta in call.inputs
        )
        self._find_image_aliases()
        for meta in tensors:
            if order_of(meta) is Order.PLANES:
                self._state.setdefault(meta.storage, Origin(None, False, meta.name))
        for call in trace.calls:
            if call.phase is not Phase.OPTIMIZER:
                self._step(call)

    # -- questions the rules ask -------------------------------------------------------------------------------

    def origin(self, call: Call) -> Origin | None:
        """The origin of the largest operand of ``call`` that lies plane by plane."""
        best = max(
            (position for position in range(len(call.inputs)) if (call.index, position) in self.origin_at),
            key=lambda position: (call.inputs[position].storage not in self.parameters, call.inputs[position].nbytes),
            default=None,
        )
        return None if best is None else self.origin_at[(call.index, best)]

    def cause(self, call: Call) -> int | None:
        """The culprit call that ``call`` suffers from, None where it suffers from none or is one itself."""
        origin = self.origin(call)
        return origin.call if origin is not None and origin.culprit and origin.call != call.index else None

    def forward_culprit(self, call: Call) -> int | None:
        """The culprit of the forward pass whose own backward ``call`` is: replacing the one replaces the other.

        They belong together in one composite operator (instance_norm), on one line, or in one function of the user's
        that is no module's forward (a channel shuffle).
        """
        if call.forward is None:
            return None
        forward = self.trace.calls[call.forward]
        together = [index for index in self.events if _belong_together(self.trace.calls[index], forward)]
        return min(together, key=lambda index: abs(index - forward.index), default=None)

    def copies_of(self, call: Call, *, weights: bool) -> list[InnerCopy]:
        """Copies inside the kernel that change the format: of activations, or of weights and their gradients.

        None where joining tensors in channels last writes each where it belongs, or where nothing that goes in or
        comes out is in channels last: such a kernel copies in contiguous format too.
        """
        if not weights:
            if call.name in JOINING and call.index not in self.events:
                return []
            if not any(order_of(meta) is Order.PIXELS for meta in (*call.inputs, *call.outputs)):
                return []
        return [
            copy
            for copy in call.copies
            if self._is_weight(call, copy) is weights
            and (_reorders_weight if weights else _changes_format)(copy.source, copy.target)
            and call.name not in COPIES
        ]

    def is_parameter(self, meta: TensorMeta) -> bool:
        """Whether the tensor is a parameter of the model, or shares its memory."""
        return meta.storage in self.parameters

    # -- the walk ----------------------------------------------------------------------------------------------

    def _step(self, call: Call) -> None:
        orders = [order_of(meta) for meta in call.inputs]
        for position, (meta, order) in enumerate(zip(call.inputs, orders, strict=True)):
            if order is Order.PLANES:
                origin = self._state.get(meta.storage) or Origin(self._makers.get(meta.storage), False, meta.name)
                self.origin_at[(call.index, position)] = origin
        if call.view:
            self._follow_view(call)
            return
        event = self._copy_event(call) if call.name in COPIES else self._event(call, orders)
        if event is not None:
            self.events[call.index] = event
        self._write_state(call, event)

    def _write_state(self, call: Call, event: Event | None) -> None:
        written = [call.inputs[position] for position in call.mutates]
        for meta in written:
            if event is not None and order_of(meta) is Order.PLANES:
                self._state[meta.storage] = self._culprit_of(call, event)
        mutated = {meta.storage for meta in written}
        for meta in call.outputs:
            if meta.storage in mutated:
                continue
            self._makers[meta.storage] = call.index
            # tokens that a copy wrote plane by plane are viewed as an image later
            if order_of(meta) is Order.PLANES or (event is Event.COPY and len(meta.shape) not in (4, 5)):
                self._state[meta.storage] = self._culprit_of(call, event) if event else self._inherited(call, meta)
            else:
                self._state[meta.storage] = None

    def _culprit_of(self, call: Call, event: Event) -> Origin:
        """Passing an earlier loss on takes no blame, asking for the copy does."""
        earlier = self.cause(call)
        if earlier is not None and event is not Event.COPY:
            return Origin(earlier, True)
        return Origin(call.index, True)

    def _inherited(self, call: Call, meta: TensorMeta) -> Origin:
        origin = self.origin(call)
        if origin is not None:
            return origin
        forward = self._forward_twin(call, meta)
        if forward is not None and forward in self._state:
            return self._state[forward] or Origin(call.index, False)
        return Origin(call.index, False)

    def _follow_view(self, call: Call) -> None:
        for meta in call.outputs:
            if self._state.get(meta.storage) is None and order_of(meta) is Order.PLANES:
                forward = self._forward_twin(call, meta)
                known = self._state.get(forward) if forward is not None else None
                if known is not None:
                    self._state[meta.storage] = known

    def _forward_twin(self, call: Call, meta: TensorMeta) -> int | None:
        """Storage of the forward activation, itself lying plane by plane, whose gradient ``meta`` is."""
        if call.forward is None:
            return None
        forward = self.trace.calls[call.forward]
        for tensor in (*forward.inputs, *forward.outputs):
            if tensor.shape == meta.shape and order_of(tensor) is Order.PLANES:
                return tensor.storage
        return None

    def _copy_event(self, call: Call) -> Event | None:
        source, target = copy_ends(call)
        if source is None or target is None or source.shape != target.shape:
            return None
        before, after = order_of(source), order_of(target)
        if before is Order.PIXELS and after is Order.PLANES:
            return Event.COPY
        if before is Order.PLANES and after is Order.PIXELS:
            return Event.COPY
        if before is Order.OTHER and self._tokens_to_planes(source, target):
            return Event.COPY
        # a copy that asks for contiguous would lose the format by itself, had an earlier culprit not lost it already
        if (
            before is Order.PLANES
            and after is Order.PLANES
            and len(source.shape) == 5
            and permutes(source, target)
            and (origin := self._state.get(source.storage)) is not None
            and origin.culprit
        ):
            self.forced.add(call.index)
            return Event.COPY
        return None

    def _tokens_to_planes(self, source: TensorMeta, target: TensorMeta) -> bool:
        """Tokens, whose channels (dimension 1) lie side by side, copied plane by plane and seen as an image then."""
        if self._images.get(target.storage) is not Order.PLANES or len(source.shape) < 3:
            return False
        dims = physical_order(source.shape, source.strides)
        space = [dim for dim in dims if dim > 1 and source.strides[dim] != 0]
        tokens = all(source.strides[1] < source.strides[dim] for dim in space)
        planes = all(target.strides[dim] < target.strides[1] for dim in space)
        return bool(space) and 1 in dims and source.strides[1] != 0 and tokens and planes

    def _event(self, call: Call, orders: list[Order]) -> Event | None:
        if call.name.startswith(_FACTORIES) and not call.mutates:
            return None
        if call.name == "stack":  # images without a batch: (C, H, W) joined to (N, C, H, W)
            orders = [order_of(_with_batch(meta)) for meta in call.inputs]
        written = [*self._fresh(call), *(call.inputs[position] for position in call.mutates)]
        planes = [meta for meta in written if order_of(meta) is Order.PLANES]
        if not planes:
            return None
        activations = [
            (meta, order)
            for position, (meta, order) in enumerate(zip(call.inputs, orders, strict=True))
            if not (call.name in CONVOLUTIONS and self._is_weight_operand(call, position))
        ]
        if call.name in CONVOLUTIONS and call.phase is Phase.FORWARD:
            # were the strides canonical, a channels-last input alone would make the output channels last
            if self._misled(activations):
                return Event.STRIDES
            weight_is_pixels = any(
                order in (Order.PIXELS, Order.EITHER)
                for position, order in enumerate(orders)
                if self._is_weight_operand(call, position)
            )
            if self.expected and weight_is_pixels and not any(order is Order.PLANES for _, order in activations):
                return Event.LOSS
            return None
        pixels = [meta for meta, order in activations if order is Order.PIXELS]
        if pixels:
            if any(order is Order.PLANES for _, order in activations):
                return Event.MIXED
            return self._misled(activations) or Event.LOSS
        return self._gradient_event(call, orders, planes)

    def _misled(self, activations: list[tuple[TensorMeta, Order]]) -> Event | None:
        """STRIDES where every channels-last operand has a batch of one whose stride is not canonical."""
        pixels = [meta for meta, order in activations if order is Order.PIXELS]
        if pixels and all(_batch_stride_is_odd(meta) for meta in pixels):
            return Event.STRIDES
        return None

    def _gradient_event(self, call: Call, orders: list[Order], planes: list[TensorMeta]) -> Event | None:
        if call.forward is None or any(order is Order.PLANES for order in orders):
            return None
        forward = self.trace.calls[call.forward]
        for meta in planes:
            for tensor in (*forward.inputs, *forward.outputs):
                if tensor.shape == meta.shape and order_of(tensor) is Order.PIXELS and not self.is_parameter(tensor):
                    return Event.GRADIENT
        return None

    def _fresh(self, call: Call) -> list[TensorMeta]:
        """What the call wrote anew: outputs that are no alias of an input, and no gradients of parameters.

        Nor places (of maxima, of channels) beside values: who reads them with an image in the other format is told so.
        """
        known = {meta.storage for meta in call.inputs}
        fresh = [meta for meta in call.outputs if meta.storage not in known]
        if call.name == "convolution_backward":
            fresh = [meta for meta in fresh if meta.shape == call.inputs[1].shape and meta is not call.outputs[-1]][:1]
        elif call.phase is Phase.BACKWARD:
            images = {meta.shape for meta in call.inputs if not self.is_parameter(meta)}
            weights = {meta.shape for meta in call.inputs if self.is_parameter(meta)} - images
            fresh = [meta for meta in fresh if meta.shape not in weights]
        return [meta for meta in fresh if not _is_integer(meta)] or fresh

    def _is_weight_operand(self, call: Call, position: int) -> bool:
        return position == (2 if call.name == "convolution_backward" else 1)

    def _is_weight(self, call: Call, copy: InnerCopy) -> bool:
        """Whether a copy inside a convolution is of its weight, or of the gradient of its weight."""
        if call.name not in CONVOLUTIONS:
            return False
        position = 2 if call.name == "convolution_backward" else 1
        if position >= len(call.inputs):
            return False
        weight = call.inputs[position]
        if copy.source.storage >= 0:
            return copy.source.storage == weight.storage
        return copy.source.shape == weight.shape

    def _find_image_aliases(self) -> None:
        """Storages that some call sees as an image lying plane by plane, whatever rank they were made with."""
        for call in self.trace.calls:
            for meta in (*call.inputs, *call.outputs):
                if len(meta.shape) in (4, 5) and order_of(meta) is Order.PLANES:
                    self._images[meta.storage] = Order.PLANES


def _is_integer(meta: TensorMeta) -> bool:
    return meta.dtype.removeprefix("torch.").startswith(("int", "uint"))


def _with_batch(meta: TensorMeta) -> TensorMeta:
    return replace(meta, shape=(1, *meta.shape), strides=(1, *meta.strides))


def _belong_together(culprit: Call, forward: Call) -> bool:
    if culprit.phase is not Phase.FORWARD or culprit.module != forward.module:
        return False
    if culprit.caller == forward.caller and caller_name(forward) != forward.name:
        return caller_name(forward) not in EXPLICIT_CALLERS and culprit.source == forward.source
    one, other = culprit.source, forward.source
    if one is None or other is None:
        return False
    own_function = bool(one.function) and one.function.rpartition(".")[2] not in ("forward", "<module>")
    return (one.file, one.line) == (other.file, other.line) or (
        own_function and (one.file, one.function) == (other.file, other.function)
    )


def copy_ends(call: Call) -> tuple[TensorMeta | None, TensorMeta | None]:
    """(source, target) of a copying operator."""
    if call.name in ("copy_", "copy") and len(call.inputs) >= 2:
        return call.inputs[1], call.inputs[0]
    if call.inputs and call.outputs:
        return call.inputs[0], call.outputs[0]
    return None, None


def is_pure_conversion(call: Call) -> bool:
    """Whether a copy does nothing but change the format of a dense image: in one format it would not be needed."""
    source, target = copy_ends(call)
    if call.name not in COPIES or source is None or target is None or source.dtype != target.dtype:
        return False
    return (
        call.name != "copy_"
        and len(source.shape) in (4, 5)
        and _is_dense(source)
        and order_of(source) is not order_of(target)
    )


def caller_name(call: Call) -> str:
    """The operator as the user called it: "instance_norm" for the clone inside instance_norm."""
    return (call.caller or call.operator).rpartition("::")[2].split(".")[0] if "::" in call.caller else call.name


def is_hidden(call: Call) -> bool:
    """Whether a copying operator was called by a composite operator rather than by the user."""
    return call.name in COPIES and caller_name(call) not in EXPLICIT_CALLERS


def _is_dense(meta: TensorMeta) -> bool:
    step = 1
    for size, stride in sorted(zip(meta.shape, meta.strides, strict=True), key=lambda pair: (pair[1], pair[0])):
        if size == 1:
            continue
        if stride != step:
            return False
        step *= size
    return True


def _changes_format(source: TensorMeta, target: TensorMeta) -> bool:
    return {order_of(source), order_of(target)} == {Order.PIXELS, Order.PLANES}


def _reorders_weight(source: TensorMeta, target: TensorMeta) -> bool:
    """Into a memory format from any other order: a weight may be a permuted view."""
    before, after = order_of(source), order_of(target)
    return before is not after and before is not Order.EITHER and after in (Order.PIXELS, Order.PLANES)


def _batch_stride_is_odd(meta: TensorMeta) -> bool:
    channels_last = channels_last_for(len(meta.shape))
    if channels_last is None or meta.shape[0] != 1:
        return False
    return meta.strides[0] != strides_for(meta.shape, channels_last)[0]
