"""Draws the forms of a GPU, as SVG: the partitions and shares that it can become, and what of it is held."""

from __future__ import annotations

from collections.abc import Sequence

from gpuctl.fleet.devices import Place
from gpuctl.fleet.gpus import Form, GpuState, Holding
from gpuctl.status.live_picture import holder
from gpuctl.svg.drawing import Drawing, fitted

_WIDTH, _MARGIN, _LABEL, _ROW = 960, 16, 190, 28
_BAR = _WIDTH - 2 * _MARGIN - _LABEL
_LEAST_SHARE = 12
"""Shares that would be narrower are not drawn one by one."""


def forms_svg(gpus: Sequence[tuple[str, GpuState]]) -> str:
    """GPUs below one another, each with its name; forms of one GPU exclude each other where they overlap."""
    description = ". ".join(f"{name}: {_described(gpu)}" for name, gpu in gpus)
    title = "The forms of " + (", ".join(name for name, _ in gpus) or "no GPU")
    drawing = Drawing(_WIDTH, title, description)
    y: float = 12
    for name, gpu in gpus:
        y = _gpu(drawing, name, gpu, y)
    if not gpus:
        drawing.words(_MARGIN, 28, "no GPU is offered")
        y = 40
    return drawing.text(y + 4)


def _described(gpu: GpuState) -> str:
    forms = "; ".join(
        f"{form.devices} x {form.tier}"
        + (f" at memory slices {', '.join(str(start) for start, _ in form.places)}" if form.places else "")
        for form in gpu.forms
    )
    held = ", ".join(map(holder, gpu.holdings)) or "nobody"
    return f"{forms}; held by {held}"


def _gpu(drawing: Drawing, name: str, gpu: GpuState, y: float) -> float:
    about = ", ".join(filter(None, (gpu.product, gpu.pci)))
    drawing.words(_MARGIN, y + 16, name, "words head")
    drawing.words(_WIDTH - _MARGIN, y + 16, about, "faint", anchor="end")
    y += 30
    if gpu.memory_slices:
        slice_width = _BAR / gpu.memory_slices
        for number in range(gpu.memory_slices):
            middle = _MARGIN + _LABEL + (number + 0.5) * slice_width
            drawing.words(middle, y + 8, str(number), "faint small", anchor="middle")
        drawing.words(_MARGIN, y + 8, "memory slice", "faint small")
        y += 16
    for form in sorted(gpu.forms, key=_order):
        y = _form(drawing, gpu, form, y)
    if gpu.takers and len(gpu.forms) > 1:
        drawing.box(_MARGIN, y + 5, 14, 10, "excluded", round_=2)
        drawing.words(_MARGIN + 20, y + 14, "excluded by what is held", "faint small")
        y += 20
    for one in gpu.taints:
        drawing.words(_MARGIN, y + 14, f"tainted {one.taint}", "alarm")
        y += 20
    return y + 16


def _order(form: Form) -> tuple[int, int, str]:
    """Forms that take all of the GPU first, then partitions from large to small."""
    size = max((size for _, size in form.places), default=1 << 16)
    return -size, ("whole", "shared", "machine", "partition").index(form.kind), form.tier


def _form(drawing: Drawing, gpu: GpuState, form: Form, y: float) -> float:
    x = _MARGIN + _LABEL
    count = f"{form.devices} x " if form.devices > 1 else ""
    drawing.words(_MARGIN, y + 15, fitted(count + form.tier, _LABEL - 8))
    held = [one for one in gpu.takers if one.tier == form.tier]
    if not form.places or not gpu.memory_slices:
        drawing.box(x, y, _BAR, 22, _openness(gpu, form), hint=form.tier)
        _shares(drawing, gpu, form, x, y)
        at = float(x)
        for one in held:
            width = max(4.0, one.part * _BAR)
            at += _held(drawing, one, at, y, min(width, x + _BAR - at))
        return y + _ROW
    slice_width = _BAR / gpu.memory_slices
    lanes = _lanes(form.places)
    for lane, places in enumerate(lanes):
        for start, size in places:
            left, width = x + start * slice_width, size * slice_width - 2
            kind = _openness(gpu, form, (start, size))
            drawing.box(left, y + lane * _ROW, width, 22, kind, hint=f"{form.tier} at {start}")
            for one in held:
                if (one.start, one.size) == (start, size):
                    _held(drawing, one, left, y + lane * _ROW, width)
    return y + _ROW * len(lanes)


def _openness(gpu: GpuState, form: Form, place: Place | None = None) -> str:
    """``excluded`` if a claim has another form that overlaps it, else ``free``."""
    for one in gpu.takers:
        if one.tier == form.tier and (place is None or (one.start, one.size) == place):
            continue
        if place is None or one.start is None or one.size is None:
            return "excluded"
        if one.start < place[0] + place[1] and place[0] < one.start + one.size:
            return "excluded"
    return "free"


def _shares(drawing: Drawing, gpu: GpuState, form: Form, x: float, y: float) -> None:
    """Draw where one share ends and the next begins, if they are wide enough."""
    if form.shares * _LEAST_SHARE > _BAR or form.shares < 2:
        return
    width = _BAR / form.shares
    edge = "edge" if _openness(gpu, form) == "free" else "excluded"
    for number in range(1, form.shares):
        drawing.curve(f"M{x + number * width:g} {y:g}v22", edge)
    for number in range(form.shares):
        middle = x + (number + 0.5) * width
        drawing.words(middle, y + 15, fitted("share", width - 8, small=True), "faint small", anchor="middle")


def _held(drawing: Drawing, one: Holding, x: float, y: float, width: float) -> float:
    drawing.box(x, y, width, 22, one.kind, hint=holder(one))
    drawing.words(x + 6, y + 15, fitted(one.claim, width - 12), "on")
    return width


def _lanes(places: Sequence[tuple[int, int]]) -> list[list[tuple[int, int]]]:
    """The places in as few lines as needed, so that those in one line do not overlap."""
    lanes: list[list[tuple[int, int]]] = []
    for start, size in places:
        for lane in lanes:
            if lane[-1][0] + lane[-1][1] <= start:
                lane.append((start, size))
                break
        else:
            lanes.append([(start, size)])
    return lanes
