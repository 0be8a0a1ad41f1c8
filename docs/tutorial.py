# # Channels last in PyTorch, from strides to many machines
#
# This page tells what the channels-last memory format is, how a model gets into it and stays there, what it is worth, and how to
# train in it. Every block of code runs, from top to bottom, on a laptop's CPU in about two minutes; the page is also a
# [notebook](tutorial.ipynb) and a [script](tutorial.py). It needs `pip install 'nhwc[vision,demo]'`.
#
# ## What the format is
#
# A batch of pictures is a tensor of shape N, C, H, W: pictures, channels, rows, columns. *Contiguous* memory holds it in just that
# order, one channel's whole plane after the other. *Channels last* keeps the shape, and every index into it, and lays the same
# numbers out as N, H, W, C: pixel by pixel, with the channels of a pixel side by side. Strides say which one it is, and nothing else does:

# +
import torch

import nhwc

pictures = torch.empty(10, 3, 32, 32)
print(tuple(pictures.shape), pictures.stride())

pictures = pictures.to(memory_format=torch.channels_last)
print(tuple(pictures.shape), pictures.stride())

assert pictures.stride() == nhwc.strides_for(pictures.shape, "channels_last") == (3072, 1, 96, 3)
# -

# Volumes and videos have it too, as N, D, H, W, C, which PyTorch calls `channels_last_3d`. What this page says of pictures holds for
# them, and nhwc picks the format by the rank.

clips = nhwc.to_format(torch.empty(2, 3, 8, 32, 32), "channels_last_3d")
print(nhwc.layout_of(clips).kind, clips.stride())

# `torch.empty(..., memory_format=torch.channels_last)` makes a tensor in the format at once, `x.to(memory_format=torch.contiguous_format)`
# brings it back, and `x.is_contiguous(memory_format=torch.channels_last)` asks whether it is in it.
#
# ### The tensors that are both
#
# With one channel, or one pixel, both orders are the same bytes, and both checks say yes. What differs is the strides that are left,
# and operators read those:

grey = torch.empty(4, 1, 8, 8)
print(grey.is_contiguous(), grey.is_contiguous(memory_format=torch.channels_last))
print(grey.contiguous(memory_format=torch.channels_last).stride())  # nothing to do, it finds
print(grey.to(memory_format=torch.channels_last).stride())  # new strides over the same bytes

# `nhwc.to_format` always leaves the canonical strides, without a copy where the bytes already lie right, and `nhwc.layout_of` says
# *ambiguous* of such a tensor and lists the formats that cost nothing:

print(nhwc.layout_of(grey).kind, sorted(nhwc.layout_of(grey).free))
assert nhwc.to_format(grey, "channels_last").data_ptr() == grey.data_ptr()

# ## What keeps it, what prefers it, what loses it
#
# Pointwise operators, clones, casts and the `*_like` functions keep the format of their input:

pictures = torch.randn(2, 8, 16, 16).to(memory_format=torch.channels_last)
for result in (pictures.clone(), pictures.double(), torch.zeros_like(pictures), pictures + pictures, pictures.relu()):
    assert result.is_contiguous(memory_format=torch.channels_last)

# In a convolution channels last wins: one of the input and the weight is enough, and the result is in channels last. That is why a
# converted model restores the format at its next convolution, wherever it was lost:

weight = torch.randn(16, 8, 3, 3)
last = torch.channels_last
for x in (pictures, pictures.contiguous()):
    for w in (weight, weight.to(memory_format=last)):
        result = torch.nn.functional.conv2d(x, w)
        print(
            x.is_contiguous(memory_format=last),
            w.is_contiguous(memory_format=last),
            "->",
            result.is_contiguous(memory_format=last),
        )

# And an operator without support copies its input inside, answers rightly, and hands out contiguous. Nothing says so:

normed = torch.nn.functional.instance_norm(pictures)
print("instance_norm keeps channels last:", normed.is_contiguous(memory_format=last))

# Which operators those are depends on the build of PyTorch. A list written by hand grows old; `nhwc ops` makes
# [the table](ops.md) by running every operator of the installed one.
#
# ## A model in channels last
#
# Two things have to be in the format: the weights, once, and every input. `nhwc.convert` brings the weights of all convolutions, and with
# `inputs=True` whatever the model is called with, so that no loop around it changes. Parameters stay the same objects, so optimizers,
# tied weights and checkpoints stay right, and `nhwc.restore` undoes it all.

# +
import torchvision

torch.manual_seed(0)
model = torchvision.models.shufflenet_v2_x1_0(num_classes=10).eval()
batch = torch.randn(8, 3, 96, 96)
with torch.no_grad():
    before = model(batch)
    nhwc.convert(model, inputs=True)
    after = model(batch)
torch.testing.assert_close(before, after, rtol=1e-4, atol=1e-4)
print(model.conv1[0].weight.stride())
# -

# ## Where it gets lost
#
# The model now starts in channels last. Whether it stays there is another question. The audit runs a step, backward included, watches
# every operator and the copies inside of it, and tells the culprits from those that only suffer from them:

report = nhwc.audit(model, batch, train=True, repeats=2)
print(report)

# Each line names the operator, the module, the line of code, what it costs, and what to do. Here it is the channel shuffle, written as
# view, transpose and view. Where the advice names a kernel, one line switches it on:

with nhwc.kernels.use():
    better = nhwc.audit(model, batch, train=True, repeats=2)
print(repr(better))
assert len(better.culprits) < len(report.culprits)

# ## What it is worth
#
# It depends: on the model, the shapes, the number type and the machine. So it is measured, in pairs that alternate, with an interval
# around the ratio, and a verdict only where the interval allows one:

small = torchvision.models.resnet18(num_classes=10)
measured = nhwc.bench(small, torch.randn(4, 3, 96, 96), budget_s=10)
print(measured)

# PyTorch's own tutorial tells of ResNet-50 in mixed precision on a Volta GPU: 770 pictures a second in contiguous, 1011 in channels last;
# of 8 to 35 % for 28 models there, and of 26 to 76 % for 29 models on a Xeon of the Ice Lake generation. What its 34 models gain on the
# machine where nhwc was written stands in [the README](../README.md#what-it-is-worth); `nhwc bench --suite tutorial` measures them on yours.
#
# ## Whether it is still right
#
# Another order of additions gives other roundings. `nhwc.verify` compares every output and gradient of both formats with float64, and where
# one is worse than roundings explain, finds the operator:

same = nhwc.verify(small, torch.randn(4, 3, 64, 64), train=True)
print(same)
assert same.passed

# ## Training in it
#
# ### Data without a transpose
#
# A decoder writes pixels row by row, three channels each: height, width, channel. That is channels last. The usual path turns each
# picture to channels first, normalises it in three passes, and the model turns it back. `nhwc.data` leaves it as it is.
#
# The data here are patches of four photographs that scikit-image ships, in one folder for each; the model learns which
# photograph a patch comes from.

# +
import tempfile
from pathlib import Path

import skimage
from PIL import Image

folder = Path(tempfile.mkdtemp())
for name in ("astronaut.png", "chelsea.png", "coffee.png", "rocket.jpg"):
    photograph = Image.open(Path(skimage.__file__).parent / "data" / name).convert("RGB")
    for number in range(40):
        left, top = (number % 8) * 40, (number // 8) * 45
        part = folder / ("val" if number % 5 == 0 else "train") / name.partition(".")[0]
        part.mkdir(parents=True, exist_ok=True)
        photograph.crop((left, top, left + 80, top + 80)).save(part / f"{number}.jpg", quality=90)

dataset = nhwc.data.ImageFolder(folder / "train", nhwc.data.train_transform(64))
mean, std = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
loader = nhwc.data.Loader(dataset, batch_size=16, shuffle=True, drop_last=True, mean=mean, std=std)
images, labels = next(iter(loader))
print(tuple(images.shape), images.dtype, nhwc.layout_of(images).kind)
# -

# With a data set, transforms and a DataLoader of your own, `collate_fn=nhwc.data.collate` does the same: see [data](data.md).
#
# ### A loop of your own
#
# Nothing in a training loop changes. Convert the model before the optimizer is made, or hand `convert` the optimizer; both then agree on
# strides, which fused optimizers need to compute the right updates.

torch.manual_seed(0)
model = nhwc.convert(torchvision.models.shufflenet_v2_x1_0(num_classes=4)).train()
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
with nhwc.kernels.use():
    for step, (images, labels) in enumerate(loader):
        loss = torch.nn.functional.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(step, f"{loss.item():.3f}")

# ### The whole program
#
# `nhwc train` is that loop with what a training script needs around it: mixed precision, schedules, averaged weights, evaluation, and
# checkpoints that a killed run resumes from, to the same losses as a run that was not.

# +
from nhwc.training import TextLog

settings = nhwc.TrainSettings(
    str(folder),
    folder / "run",
    size=64,
    epochs=5,
    batch=16,
    lr=0.02,
    warmup_epochs=1,
    print_every=8,
    channels_last="true",
)
trained = nhwc.train(
    lambda classes: torchvision.models.shufflenet_v2_x1_0(num_classes=classes), settings, sinks=[TextLog(print)]
)
# -

# Its lines say what the script of the original tutorial says: the epoch and step, the time of a step and its average, images a second, loss,
# and how often the right class was the first guess, or among the first five. From a shell it is one command, here for ImageNet:
#
# ```console
# nhwc train imagenet --arch resnet50 --amp bf16 --batch 256 --workers 16 --folder runs/resnet50
# nhwc train imagenet --arch resnet50 --amp bf16 --batch 256 --workers 16 --folder runs/resnet50 --resume
# ```
#
# `--channels-last false` trains the same in contiguous, for comparison. More of it is on [its page](train.md).
#
# ### Many devices, many machines
#
# torchrun starts one process for each device; nothing else changes:
#
# ```console
# torchrun --nproc-per-node 8 -m nhwc train imagenet --arch resnet50 --amp bf16 --folder runs/resnet50 --device cuda
# ```
#
# A loop of your own gets the same with two lines. The first makes gradients and buckets agree on their strides, so that nothing is copied
# and nothing is warned of, and checks that all ranks hold the same layouts, since collectives would mix up values silently otherwise.
# The second is for models that are sharded, which torch refuses in channels last:

# +
from nhwc.distributed import data_parallel, fully_shard, joined

with joined("cpu") as here:  # under torchrun: the process group; alone: nothing
    model = nhwc.convert(torchvision.models.resnet18(num_classes=4))
    if here.size > 1:
        model = data_parallel(model)  # or fully_shard(model)
# -

# More is on the page on [distributed training](distributed.md).
