"""cuDNN's layout kernels, told by name, from made-up profiler events."""

from dataclasses import dataclass
from types import SimpleNamespace

from nhwc.recorder.cuda import layout_kernels
from nhwc.recorder.inner import look_inside


@dataclass
class Event:
    kernel: str
    launcher: int
    nanoseconds: int = 2_000_000

    def name(self) -> str:
        return self.kernel

    def linked_correlation_id(self) -> int:
        return self.launcher

    def duration_ns(self) -> int:
        return self.nanoseconds


def test_kernels_before_and_after_a_convolution_become_reorders_of_its_launcher() -> None:
    events = [
        Event("void cudnn::ops::nchwToNhwcKernel<__half, __half, float, false, true>(cudnn::ops::nchw2nhwc_params)", 7),
        Event("sm80_xmma_fprop_implicit_gemm_f16f16_f16f32_f32_nhwckrsc_nhwc_tilesize128x128x32", 7),
        Event(
            "void cudnn::ops::nhwcToNchwKernel<__half, __half, float, true, false>(cudnn::ops::nhwc2nchw_params)",
            7,
            500_000,
        ),
    ]
    found = layout_kernels(events)
    assert list(found) == [7]
    before, after = found[7]
    assert (before.library, before.operand, before.source_format, before.target_format) == (
        "cuDNN",
        "src",
        "nchw",
        "nhwc",
    )
    assert (after.operand, after.source_format, after.target_format) == ("dst", "nhwc", "nchw")
    assert (before.ms, after.ms) == (2.0, 0.5)


def test_kernels_without_a_launcher_or_without_a_change_of_layout_are_left_out() -> None:
    events = [
        Event("void cudnn::ops::nchwToNhwcKernel<float>", 0),
        Event("void at::native::vectorized_elementwise_kernel<4>", 3),
        Event("cudnn_infer_ampere_scudnn_winograd_128x128_nchw", 3),
    ]
    assert layout_kernels(events) == {}


def test_a_kernel_belongs_to_the_call_that_launched_it() -> None:
    launcher = SimpleNamespace(
        name="aten::cudnn_convolution", children=[], correlation_id=7, duration_time_ns=1_000_000
    )
    call = SimpleNamespace(name="aten::convolution", children=[launcher], correlation_id=6, duration_time_ns=1_500_000)
    marked = SimpleNamespace(name="nhwc#0", children=[call])
    kernels = layout_kernels(
        [Event("cudnn::ops::nchwToNhwcKernel<float>", 7), Event("cudnn::ops::nchwToNhwcKernel<float>", 9)]
    )
    inside = look_inside(marked, "aten::conv2d", kernels)
    assert [reorder.operand for reorder in inside.reorders] == ["src"]
    assert look_inside(marked, "aten::conv2d").reorders == []
