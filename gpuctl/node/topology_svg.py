"""Draws how the GPUs of a node reach each other, as SVG: NVLinks above them, PCIe below, and the matrix."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import combinations, groupby

from gpuctl.node.picture import GpuFacts
from gpuctl.node.topology_matrix import LEGEND, Cell, Matrix, Path, label, used_legend
from gpuctl.svg.drawing import LINE, Drawing, fitted

_MARGIN, _GPU, _GAP, _HIGH = 20, 88, 14, 44
_CELL_WIDTH, _CELL_HIGH = 62, 24
_LEAST_WIDTH = 480
_NEARNESS: dict[Path, str] = {"NV": "near", "PIX": "near", "PXB": "middle", "PHB": "middle", "NODE": "middle"}


def topology_svg(node: str, matrix: Matrix) -> str:
    """The node's GPUs in a row, by NUMA node, PCIe root and switch."""
    cells = {
        (one.device, other.device): cell
        for one, row in zip(matrix.gpus, matrix.cells, strict=True)
        for other, cell in zip(matrix.gpus, row, strict=True)
    }
    gpus = _side_by_side(matrix.gpus)
    count = len(gpus)
    width = max(
        _LEAST_WIDTH,
        2 * _MARGIN + count * (_GPU + _GAP),
        2 * _MARGIN + 80 + count * _CELL_WIDTH,
    )
    drawing = Drawing(width, f"How the GPUs of {node} reach each other", _described(matrix))
    drawing.words(_MARGIN, 28, f"{node}: {count} x {gpus[0].product or 'GPU'}", "words head")
    y = _nvlinks(drawing, gpus, cells, 44)
    for number, gpu in enumerate(gpus):
        _gpu(drawing, gpu, _left(number), y)
    y = _brackets(drawing, gpus, y + _HIGH + 6)
    y = _table(drawing, matrix, y + 22)
    for path, meaning in used_legend(matrix).items():
        y += LINE
        drawing.words(_MARGIN, y, path, "words head")
        drawing.words(_MARGIN + 60, y, meaning, "faint")
    return drawing.text(y + _MARGIN)


def _described(matrix: Matrix) -> str:
    pairs = [
        f"{label(one)} to {label(other)} {matrix.cells[first][second]}"
        for (first, one), (second, other) in combinations(enumerate(matrix.gpus), 2)
    ]
    return "; ".join(pairs) or "one GPU alone"


def _side_by_side(gpus: Sequence[GpuFacts]) -> list[GpuFacts]:
    """The GPUs in the order in which they are drawn: those of one NUMA node, root and switch side by side."""
    first: dict[object, int] = {}
    for number, gpu in enumerate(gpus):
        for common in _commons(gpu):
            first.setdefault(common, number)
    return sorted(gpus, key=lambda gpu: [first[common] for common in _commons(gpu)])


def _commons(gpu: GpuFacts) -> list[object]:
    """What a GPU can have in common with others, from far to near."""
    numa, root, switches = gpu.numa_node, gpu.pcie_root, gpu.pcie_switches
    return [(numa,), (numa, root), (numa, root, switches)]


def _left(number: int) -> float:
    return _MARGIN + number * (_GPU + _GAP)


def _gpu(drawing: Drawing, gpu: GpuFacts, x: float, y: float) -> None:
    drawing.box(x, y, _GPU, _HIGH, "card", hint=gpu.device, round_=6)
    drawing.words(x + _GPU / 2, y + 19, fitted(label(gpu), _GPU - 6), "words head", anchor="middle")
    drawing.words(x + _GPU / 2, y + 35, gpu.pci or "", "faint small", anchor="middle")


def _nvlinks(
    drawing: Drawing, gpus: Sequence[GpuFacts], cells: dict[tuple[str, str], Cell], y: float
) -> float:
    """Draw NVLinks, and return the y at which GPUs begin.

    An island has a bar if every pair in it has as many links; else each pair has an arc.
    """
    arcs: list[tuple[int, int, Cell]] = []
    islands: dict[str, list[int]] = {}
    for number, gpu in enumerate(gpus):
        if gpu.nvlink_island:
            islands.setdefault(gpu.nvlink_island, []).append(number)
    bars = []
    for members in islands.values():
        pairs = [
            (one, other, cells[gpus[one].device, gpus[other].device])
            for one, other in combinations(members, 2)
        ]
        if len(members) > 2 and len({str(cell) for _, _, cell in pairs}) == 1 and pairs[0][2].path == "NV":
            bars.append((members, pairs[0][2]))
        else:
            arcs += [pair for pair in pairs if pair[2].path == "NV"]
    rise = max((14 + 15 * (other - one) for one, other, _ in arcs), default=0)
    top = y + rise + (40 if bars else 0)
    for members, cell in bars:
        left, right = _left(members[0]), _left(members[-1]) + _GPU
        drawing.box(left, y + rise, right - left, 22, "near", hint=f"{cell} between all of them")
        words = f"{cell} between each two of {len(members)} GPUs"
        drawing.words((left + right) / 2, y + rise + 15, words, "words", anchor="middle")
        for one in members:
            x = _left(one) + _GPU / 2
            drawing.curve(f"M{x:g} {y + rise + 22:g}V{top:g}", "nvlink", width=3)
    for one, other, cell in arcs:
        _arc(drawing, (one, other), cell, top, f"{label(gpus[one])} to {label(gpus[other])}: {cell}")
    return top


def _arc(drawing: Drawing, ends: tuple[int, int], cell: Cell, y: float, hint: str) -> None:
    """Draw an arc, wider for more links; the ends are spread so that the arcs of a GPU do not coincide."""
    one, other = ends
    spread = _GPU * 0.36
    start = _left(one) + _GPU / 2 + spread * (other - one) / 8
    end = _left(other) + _GPU / 2 - spread * (other - one) / 8
    high = (14 + 15 * (other - one)) * 4 / 3  # a cubic curve rises by three quarters of its handles
    width = 1.5 * min(cell.nvlinks or 1, 6)
    drawing.curve(
        f"M{start:g} {y:g}C{start:g} {y - high:g} {end:g} {y - high:g} {end:g} {y:g}",
        "nvlink",
        width=width,
        hint=hint,
    )
    if other - one == 1:
        drawing.words((start + end) / 2, y - 6, str(cell), "faint small", anchor="middle")


def _brackets(drawing: Drawing, gpus: Sequence[GpuFacts], y: float) -> float:
    """What GPUs have in common, from near to far: PCIe switch, PCIe root, NUMA node with its CPUs."""
    levels: list[tuple[Callable[[GpuFacts], object], Callable[[GpuFacts], str]]] = [
        (
            lambda gpu: (gpu.pcie_root, gpu.pcie_switches) if gpu.pcie_switches else None,
            lambda gpu: f"switch {gpu.pcie_switches[-1]}",
        ),
        (lambda gpu: gpu.pcie_root, lambda gpu: str(gpu.pcie_root)),
        (lambda gpu: gpu.numa_node, _numa_words),
    ]
    for common, words in levels:
        runs = list(_runs(gpus, common))
        for first, last in runs:
            left, right = _left(first), _left(last) + _GPU
            drawing.curve(f"M{left:g} {y:g}V{y + 6:g}H{right:g}V{y:g}", "edge")
            text = fitted(words(gpus[first]), right - left + _GAP, small=True)
            drawing.words((left + right) / 2, y + 20, text, "faint small", anchor="middle")
        y += 28 if runs else 0
    return y


def _numa_words(gpu: GpuFacts) -> str:
    cpus = f", CPUs {gpu.cpu_affinity}" if gpu.cpu_affinity else ""
    return f"NUMA {gpu.numa_node}{cpus}"


def _runs(gpus: Sequence[GpuFacts], common: Callable[[GpuFacts], object]) -> Iterator[tuple[int, int]]:
    """The first and last of neighbouring GPUs with the same ``common``, except None."""
    for value, members in groupby(range(len(gpus)), key=lambda number: common(gpus[number])):
        numbers = list(members)
        if value is not None:
            yield numbers[0], numbers[-1]


def _table(drawing: Drawing, matrix: Matrix, y: float) -> float:
    names = [label(gpu) for gpu in matrix.gpus]
    for column, name in enumerate(names):
        x = _MARGIN + 80 + column * _CELL_WIDTH
        drawing.words(
            x + _CELL_WIDTH / 2, y, fitted(name, _CELL_WIDTH, small=True), "faint small", anchor="middle"
        )
    y += 8
    for name, row in zip(names, matrix.cells, strict=True):
        drawing.words(_MARGIN, y + 16, fitted(name, 76, small=True), "faint small")
        for column, cell in enumerate(row):
            x = _MARGIN + 80 + column * _CELL_WIDTH
            kind = "card" if cell.path == "X" else _NEARNESS.get(cell.path, "far")
            hint = f"{name} to {names[column]}: {LEGEND[cell.path]}; over PCIe {cell.pcie}"
            drawing.box(x, y, _CELL_WIDTH - 2, _CELL_HIGH - 2, kind, hint=hint, round_=2)
            drawing.words(x + _CELL_WIDTH / 2 - 1, y + 16, str(cell), "words", anchor="middle")
        y += _CELL_HIGH
    return y + 4
