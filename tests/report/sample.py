"""Reports as the recorder and the rules would make them, built without torch: one for each thing a report must say."""

from __future__ import annotations

from dataclasses import replace

from nhwc.model import (
    Call,
    Environment,
    Finding,
    InnerCopy,
    Measurement,
    OptimizerStateMeta,
    ParameterMeta,
    Phase,
    RankLayout,
    Reorder,
    Report,
    Severity,
    Source,
    StepError,
    TensorMeta,
    Trace,
)
from nhwc.strides import strides_for

ENVIRONMENT = Environment("2.14.1", "3.11.9", "cpu", "AMD EPYC 7763 (AVX2)", 2, "0.1.0")
PACKAGES = "/opt/venv/lib/python3.11/site-packages/"
SHUFFLE = Source(
    f"{PACKAGES}torchvision/models/shufflenetv2.py",
    29,
    "    x = torch.transpose(x, 1, 2).contiguous()",
    "channel_shuffle",
)
LAST, FIRST = "channels_last", "contiguous"


class Step:
    """Writes the operator calls of one step; tensors get canonical strides and storages of their own."""

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self.storage = 0

    def tensor(self, shape: tuple[int, ...], memory_format: str = LAST, name: str | None = None) -> TensorMeta:
        self.storage += 1
        known = memory_format if len(shape) == 4 or memory_format != LAST else FIRST
        return TensorMeta(shape, strides_for(shape, known), "float32", "cpu", self.storage, 0, 4, name)

    def call(
        self,
        operator: str,
        module: str,
        kind: str,
        inputs: tuple[TensorMeta, ...],
        shape: tuple[int, ...],
        memory_format: str = LAST,
        source: Source | None = None,
        ms: float | None = 0.4,
        **fields: object,
    ) -> TensorMeta:
        output = self.tensor(shape, memory_format)
        if fields.get("view"):
            output = replace(output, storage=inputs[0].storage)
        self.calls.append(
            Call(
                index=len(self.calls),
                operator=f"aten.{operator}.default",
                caller=f"aten::{operator}",
                inputs=inputs,
                outputs=(output,),
                module=module,
                module_type=kind,
                source=source
                or Source(f"{PACKAGES}torchvision/models/net.py", 10 + len(self.calls) % 90, "x = self.layer(x)"),
                ms=ms,
                **{"phase": Phase.FORWARD, **fields},
            )
        )
        return output

    def block(self, path: str, x: TensorMeta, channels: int, stride: int = 1, memory_format: str = LAST) -> TensorMeta:
        """Convolution, batch norm, ReLU."""
        n, _, h, w = x.shape
        shape = (n, channels, h // stride, w // stride)
        weight = self.tensor((channels, x.shape[1], 3, 3), LAST, f"{path}.conv.weight")
        x = self.call("convolution", f"{path}.conv", "Conv2d", (x, weight), shape, memory_format, ms=1.9)
        x = self.call("native_batch_norm", f"{path}.bn", "BatchNorm2d", (x,), shape, memory_format, ms=0.6)
        return self.call("relu_", f"{path}.relu", "ReLU", (x,), shape, memory_format, ms=0.2, mutates=(0,))

    def trace(self, target: str, **fields: object) -> Trace:
        layers = dict.fromkeys((call.module, call.module_type) for call in self.calls if call.module)
        whole = sum(call.ms or 0.0 for call in self.calls)
        return Trace(
            **{
                "target": target,
                "mode": "eager",
                "training": False,
                "environment": ENVIRONMENT,
                "calls": tuple(self.calls),
                "inputs": (self.tensor((8, 3, 224, 224), LAST, "input"),),
                "layers": tuple(layers),
                "conversion": "model and inputs to channels_last; 62 weights restrided or copied",
                "step": Measurement(whole, whole / 40, 7),
                **fields,
            }
        )


def finding(call: Call, number: int, **fields: object) -> Finding:
    """A finding on one call, a copy by default."""
    return Finding(
        **{
            "id": f"F{number}",
            "code": "L101",
            "kind": "copy",
            "severity": Severity.WARNING,
            "operator": call.operator,
            "module": call.module,
            "source": call.source,
            "phase": call.phase,
            "shapes": tuple(tensor.shape for tensor in (*call.inputs[:1], *call.outputs)),
            "strides": tuple(tensor.strides for tensor in (*call.inputs[:1], *call.outputs)),
            "bytes": call.outputs[0].nbytes,
            "message": f"{call.name} writes a contiguous copy of a channels-last tensor",
            "advice": "Call torch.channel_shuffle(x, groups): its kernel keeps channels last.",
            "call_indices": (call.index,),
            "ms": call.ms,
            "ms_spread": None if call.ms is None else round(call.ms / 20, 3),
            **fields,
        }
    )


def with_shares(report: Report) -> Report:
    step = report.trace.step
    if step is None:
        return report
    shared = [each if each.ms is None else replace(each, share=each.ms / step.median_ms) for each in report.findings]
    return Report(report.trace, shared)


def clean_resnet() -> Report:
    step = Step()
    x = step.block("stem", step.tensor((8, 3, 224, 224)), 64, 2)
    for stage, channels in enumerate((64, 128, 256, 512), 1):
        for block in range(2):
            x = step.block(f"layer{stage}.{block}", x, channels, 2 if block == 0 and stage > 1 else 1)
            x = step.call("add_", f"layer{stage}.{block}", "BasicBlock", (x, x), x.shape, mutates=(0,))
    x = step.call("mean", "avgpool", "AdaptiveAvgPool2d", (x,), (8, 512, 1, 1))
    x = step.call("view", "", "ResNet", (x,), (8, 512), view=True)
    step.call("addmm", "fc", "Linear", (x,), (8, 1000))
    note = finding(
        step.calls[0],
        1,
        code="L601",
        kind="risk",
        severity=Severity.NOTE,
        bytes=46_800_000,
        calls=20,
        ms=None,
        ms_spread=None,
        message="oneDNN packs 20 weights again at every call: eager mode does not keep them packed",
        advice="For inference, freeze the model or use nhwc.engine: it packs each weight once.",
    )
    return Report(step.trace("resnet18"), [note])


def shufflenet(ms: bool = True) -> Report:
    """Sixteen shuffles on one line, each followed by a split that reads its contiguous output."""
    step, findings = Step(), []
    x = step.block("conv1", step.tensor((8, 3, 224, 224)), 24, 4)
    for stage, (channels, repeats) in enumerate(((116, 4), (232, 8), (464, 4)), 2):
        for block in range(repeats):
            path = f"stage{stage}.{block}"
            stride = 2 if block == 0 else 1
            y = step.block(f"{path}.branch2", x, channels // 2, stride)
            joined = step.call("cat", path, "InvertedResidual", (y, y), (y.shape[0], channels, *y.shape[2:]), ms=0.3)
            n, c, h, w = joined.shape
            group = step.call("view", path, "InvertedResidual", (joined,), (n, 2, c // 2, h, w), FIRST, view=True)
            group = step.call(
                "clone", path, "InvertedResidual", (group,), (n, c // 2, 2, h, w), FIRST, SHUFFLE, 0.9 - stage / 10
            )
            findings.append(finding(step.calls[-1], len(findings) + 1))
            x = step.call("view", path, "InvertedResidual", (group,), (n, c, h, w), FIRST, view=True)
            if block == 1:
                x = step.call("add", path, "InvertedResidual", (x, x), x.shape, FIRST, ms=0.11)
                findings.append(
                    finding(
                        step.calls[-1],
                        len(findings) + 1,
                        code="L201",
                        kind="loss",
                        cause=findings[-1].id,
                        message="add writes contiguous because its input is",
                        advice="",
                    )
                )
    x = step.block("conv5", x, 1024)
    x = step.call("mean", "", "ShuffleNetV2", (x,), (8, 1024))
    step.call("addmm", "fc", "Linear", (x,), (8, 1000))
    trace = step.trace("shufflenet_v2_x1_0")
    return with_shares(Report(trace, findings))


def static_shufflenet() -> Report:
    """The same on fake tensors: no time, fewer levels."""
    measured = shufflenet()
    calls = tuple(replace(call, ms=None) for call in measured.trace.calls)
    limits = (
        "A static trace runs on fake tensors: copies inside kernels and libraries cannot be seen.",
        "Fake tensors predict contiguous for group_norm and channel_shuffle where eager keeps channels last.",
    )
    trace = replace(measured.trace, mode="static", calls=calls, step=None, limits=limits)
    return Report(trace, [replace(each, ms=None, ms_spread=None, share=None) for each in measured.findings])


def training() -> Report:
    """A training step: a gradient that arrives contiguous, a hidden copy in a norm, a weight gradient."""
    step, findings = Step(), []
    x = step.block("features.0", step.tensor((8, 3, 224, 224)), 32, 2)
    layers = []
    for block in range(1, 12):
        x = step.block(f"features.{block}", x, 32 + 16 * block, 2 if block % 3 == 0 else 1)
        layers.append((f"features.{block}", x))
    silu = step.call("silu", "features.12", "SiLU", (x,), x.shape)
    silu_index = step.calls[-1].index
    norm = step.call("native_batch_norm", "head.norm", "InstanceNorm2d", (silu,), x.shape, FIRST, ms=2.6)
    hidden = InnerCopy("aten::clone", silu, norm, 0.8)
    step.calls[-1] = replace(step.calls[-1], caller="aten::instance_norm", copies=(hidden,))
    findings.append(
        finding(
            step.calls[-1],
            1,
            code="L102",
            operator="aten::instance_norm",
            ms=0.8,
            message="instance_norm copies its channels-last input to contiguous inside its kernel",
            advice="Enable nhwc.kernels.instance_norm, or use group_norm with one group for each channel.",
        )
    )
    step.call("mean", "head.pool", "AdaptiveAvgPool2d", (norm,), (*norm.shape[:2], 1, 1))
    back = {"phase": Phase.BACKWARD}
    grad = step.call("div", "head.pool", "AdaptiveAvgPool2d", (norm,), norm.shape, FIRST, ms=0.1, **back)
    grad = step.call(
        "silu_backward", "features.12", "SiLU", (grad, silu), x.shape, FIRST, ms=1.3, forward=silu_index, **back
    )
    findings.append(
        finding(
            step.calls[-1],
            2,
            code="L202",
            kind="loss",
            message="silu_backward writes contiguous: the gradient from global average pooling is contiguous",
            advice="Put .contiguous(memory_format=torch.channels_last) on the gradient in a hook after the pooling.",
        )
    )
    for path, output in reversed(layers):
        grad = step.call("convolution_backward", f"{path}.conv", "Conv2d", (grad, output), output.shape, ms=3.1, **back)
        if path == "features.11":
            findings.append(
                finding(
                    step.calls[-1],
                    3,
                    code="L103",
                    cause="F2",
                    ms=0.4,
                    message="convolution_backward reorders the contiguous gradient",
                    advice="",
                )
            )
    weight = step.tensor((208, 192, 3, 3), LAST, "features.11.conv.weight")
    findings.append(
        finding(
            step.calls[-1],
            4,
            code="L401",
            kind="risk",
            severity=Severity.NOTE,
            ms=None,
            ms_spread=None,
            bytes=0,
            message="the gradient of features.11.conv.weight has other strides than the parameter",
            advice="Call optimizer.zero_grad(set_to_none=True) once after converting.",
        )
    )
    reorder = Reorder("onednn", "weights", "acdb", "AcdB16a", (208, 192, 3, 3), 1_437_696, 0.05)
    step.calls[0] = replace(step.calls[0], reorders=(reorder,), arguments=({"tensor": 0}, [1, 1], float("inf")))
    trace = step.trace(
        "efficientnet_b0 (training step)",
        training=True,
        parameters=(ParameterMeta("features.11.conv.weight", weight, step.tensor(weight.shape, FIRST), "Conv2d"),),
        confusions=("features.12 is one module used in two places: its calls carry the first path.",),
    )
    return with_shares(Report(trace, findings))


def fused_optimizer() -> Report:
    """The worst fault: a fused optimizer whose state has other strides than its parameter."""
    report = training()
    conv = report.trace.parameters[0].tensor
    fused = Call(
        index=len(report.trace.calls),
        operator="aten._fused_adam_.default",
        caller="aten::_fused_adam_",
        inputs=(conv,),
        outputs=(),
        phase=Phase.OPTIMIZER,
        module="",
        module_type="",
        source=Source("/home/kim/project/train.py", 88, "    optimizer.step()", "train_one_epoch"),
        mutates=(0,),
        keywords=(("lr", 0.001),),
        ms=1.1,
    )
    wrong = finding(
        replace(fused, outputs=(conv,)),
        9,
        code="L001",
        kind="numerics",
        severity=Severity.ERROR,
        ms=None,
        ms_spread=None,
        bytes=0,
        calls=12,
        module="features.11.conv",
        message="fused Adam reads exp_avg of features.11.conv.weight in another memory order than the parameter, "
        "so its updates are wrong",
        advice="Convert with nhwc.convert(model, optimizer=optimizer), or build the optimizer after converting.",
    )
    state = OptimizerStateMeta(
        "Adam", True, "features.11.conv.weight", "exp_avg", conv.strides, strides_for(conv.shape, FIRST), conv.shape
    )
    ranks = (RankLayout(0, ((conv.name or "", conv.shape, conv.strides),)),)
    trace = replace(report.trace, calls=(*report.trace.calls, fused), optimizer_states=(state,), ranks=ranks)
    return with_shares(Report(trace, [wrong, *report.findings]))


def raising() -> Report:
    """A model that views what is no longer contiguous."""
    step = Step()
    x = step.block("features.0", step.tensor((8, 3, 224, 224)), 64, 4)
    step.call(
        "view",
        "head",
        "Head",
        (x,),
        (8, 64 * 56 * 56),
        view=True,
        source=Source("/home/kim/project/model.py", 41, "        x = x.view(x.size(0), -1)", "forward"),
    )
    message = (
        "view size is not compatible with input tensor's size and stride (at least one dimension spans across two "
        "contiguous subspaces). Use .reshape(...) instead."
    )
    trace = step.trace("project.model:build", error=StepError("RuntimeError", message, step.calls[-1].index), step=None)
    return Report(trace, [])


HOSTILE = "</script><script>alert(1)</script>[bold red]\"'&<b>\u202e\x1b[31m;{{ 7*7 }}\ud800"


def hostile() -> Report:
    """Strings that try to leave their place, in every field that a user's code can fill."""
    step = Step()
    x = step.call("convolution", HOSTILE, HOSTILE, (step.tensor((8, 3, 32, 32), LAST, HOSTILE),), (8, 8, 32, 32))
    source = Source(f"/tmp/{HOSTILE}/model.py", 7, f"x = x.contiguous()  # {HOSTILE}", HOSTILE)
    step.call("clone", f"{HOSTILE}.block", HOSTILE, (x,), x.shape, FIRST, source)
    loss = finding(step.calls[-1], 1, message=HOSTILE, advice=HOSTILE, ms=0.4, operator=f"{HOSTILE}::op")
    note = finding(step.calls[0], 2, message=HOSTILE, advice=HOSTILE, severity=Severity.NOTE, kind="risk", ms=None)
    trace = step.trace(HOSTILE, limits=(HOSTILE,), confusions=(HOSTILE,), conversion=HOSTILE)
    environment = replace(ENVIRONMENT, processor=HOSTILE)
    return with_shares(Report(replace(trace, environment=environment), [loss, note]))


def large(calls: int) -> Report:
    """A training step of a deep model, for sizes."""
    step, findings = Step(), []
    x = step.block("stem", step.tensor((8, 3, 224, 224)), 64, 4)
    block = 0
    while len(step.calls) < calls // 2:
        path = f"backbone.body.layer{block // 20 + 1}.{block % 20}"
        x = step.block(path, x, 64)
        x = step.call("add_", path, "Bottleneck", (x, x), x.shape, mutates=(0,))
        if block % 10 == 3:
            x = step.call("clone", path, "Bottleneck", (x,), x.shape, FIRST, SHUFFLE)
            findings.append(finding(step.calls[-1], len(findings) + 1))
        block += 1
    for call in tuple(reversed(step.calls)):
        step.call(
            f"{call.name}_backward",
            call.module,
            call.module_type,
            (*call.outputs, *call.inputs),
            call.outputs[0].shape,
            phase=Phase.BACKWARD,
            forward=call.index,
            source=call.source,
        )
    return with_shares(Report(step.trace("deep", training=True), findings))


SAMPLES = {
    "clean_resnet": clean_resnet,
    "shufflenet": shufflenet,
    "static_shufflenet": static_shufflenet,
    "training": training,
    "fused_optimizer": fused_optimizer,
    "raising": raising,
    "hostile": hostile,
}
