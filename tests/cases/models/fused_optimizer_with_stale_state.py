"""pytorch/pytorch#106951: fused optimizers need equal strides of parameter, gradient and state.

Converting in mid-training leaves the state behind (so does resuming a contiguous checkpoint): fused updates are then
silently wrong, foreach and plain loops are right. ``nhwc.convert`` takes the optimizer along, and refuses where it
would be left behind; the audit of a step with stale state calls it an error. (pytorch/pytorch#110758 and #126585 too.)
"""

import torch
from torch import nn

import nhwc

EXPECT = {
    "train": True,
    "observe": {
        "stock": {"adamw_fused": False, "sgd_fused": False, "adamw_foreach": True, "adamw_loop": True},
        "nhwc": {"adamw_fused": True, "sgd_fused": True, "adamw_foreach": True, "adamw_loop": True},
        "stale_strides": (27, 9, 3, 1),
        "followed_strides": (27, 1, 9, 3),
        "refused": True,
        "audit_of_stale_step": [("NH401", "error", "AdamW.step", "optimizer")],
        "audit_of_followed_step": [],
    },
}
MAKERS = {
    "adamw_fused": lambda parameters: torch.optim.AdamW(parameters, 1e-2, fused=True),
    "sgd_fused": lambda parameters: torch.optim.SGD(parameters, 1e-2, momentum=0.9, fused=True),
    "adamw_foreach": lambda parameters: torch.optim.AdamW(parameters, 1e-2, foreach=True),
    "adamw_loop": lambda parameters: torch.optim.AdamW(parameters, 1e-2, foreach=False),
}


def build():
    torch.manual_seed(0)
    return nn.Conv2d(3, 8, 3), (torch.randn(2, 3, 6, 6),)


def stock(model, _optimizer):
    model.to(memory_format=torch.channels_last)


def followed(model, optimizer):
    nhwc.convert(model, optimizer=optimizer)


def trained(make, change=None, steps=4):
    """The model and its optimizer after four steps, changed to channels last after two of them."""
    model, (x,) = build()
    optimizer = make(model.parameters())
    for step in range(steps):
        if step == 2 and change is not None:
            change(model, optimizer)
            x = x.to(memory_format=torch.channels_last)
        optimizer.zero_grad()
        model(x).square().sum().backward()
        optimizer.step()
    return model, optimizer


def right(change):
    return {
        name: torch.allclose(trained(make)[0].weight, trained(make, change)[0].weight, atol=1e-5)
        for name, make in MAKERS.items()
    }


def refused():
    model, optimizer = trained(MAKERS["adamw_fused"])
    try:
        nhwc.convert(model)
    except nhwc.ConversionError:
        return optimizer.state[model.weight]["exp_avg"].stride() == model.weight.stride()
    return False


def culprits_of_step(change):
    model, optimizer = trained(MAKERS["adamw_fused"], steps=2)
    change(model, optimizer)
    x = build()[1][0].to(memory_format=torch.channels_last)

    def step():
        optimizer.zero_grad()
        model(x).square().sum().backward()
        optimizer.step()

    report = nhwc.audit(step, repeats=0)
    return [(f.code, f.severity.value, f.operator, f.phase.value) for f in report.culprits]


def state_strides(change):
    model, optimizer = trained(MAKERS["adamw_fused"], change, steps=3)
    return optimizer.state[model.weight]["exp_avg"].stride()


def observe():
    return {
        "stock": right(stock),
        "nhwc": right(followed),
        "stale_strides": state_strides(stock),
        "followed_strides": state_strides(followed),
        "refused": refused(),
        "audit_of_stale_step": culprits_of_step(stock),
        "audit_of_followed_step": culprits_of_step(followed),
    }
