"""Sorts as Go's sort.Slice does: pattern-defeating quicksort, which leaves equal keys in an order of its own.

``sortBy`` in a selector shows that order for more than twelve elements, so it has to be the same here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

_LONGEST_INSERTION = 12
_SHORTEST_NINTHER = 50
_SHORTEST_SHIFTING = 50
_MOST_SWAPS = 12
_MOST_SHIFTS = 5


def sorted_order(keys: tuple[Any, ...], less: Callable[[Any, Any], bool]) -> list[int]:
    """The positions of the keys in ascending order."""
    sorting = Sorting(keys, less)
    sorting.sort(0, len(keys), len(keys).bit_length())
    return sorting.order


class Sorting:
    """The positions being sorted; parts are given as ``[first, end)``."""

    def __init__(self, keys: tuple[Any, ...], less: Callable[[Any, Any], bool]) -> None:
        self.order = list(range(len(keys)))
        self._keys = keys
        self._less_key = less

    def _less(self, i: int, j: int) -> bool:
        return self._less_key(self._keys[self.order[i]], self._keys[self.order[j]])

    def _swap(self, i: int, j: int) -> None:
        self.order[i], self.order[j] = self.order[j], self.order[i]

    def sort(self, first: int, end: int, bad_choices_left: int) -> None:
        """Sorts a part; after so many bad choices of a pivot by heap sort, lest it takes quadratic time."""
        balanced = partitioned = True
        while end - first > _LONGEST_INSERTION:
            length = end - first
            if bad_choices_left == 0:
                self.heap_sort(first, end)
                return
            if not balanced:
                self._break_patterns(first, end)
                bad_choices_left -= 1
            pivot, swaps = self._choose_pivot(first, end)
            if swaps == _MOST_SWAPS:
                self.order[first:end] = self.order[first:end][::-1]
                pivot = (end - 1) - (pivot - first)
                swaps = 0
            if balanced and partitioned and swaps == 0 and self._insert_few(first, end):
                return
            if first > 0 and not self._less(first - 1, pivot):
                first = self._partition_equal(first, end, pivot)
                continue
            middle, partitioned = self._partition(first, end, pivot)
            left, right = middle - first, end - middle
            balanced = min(left, right) >= length // 8
            if left < right:
                self.sort(first, middle, bad_choices_left)
                first = middle + 1
            else:
                self.sort(middle + 1, end, bad_choices_left)
                end = middle
        self._insertion_sort(first, end)

    def _insertion_sort(self, first: int, end: int) -> None:
        for i in range(first + 1, end):
            j = i
            while j > first and self._less(j, j - 1):
                self._swap(j, j - 1)
                j -= 1

    def _sift_down(self, root: int, end: int, first: int) -> None:
        while (child := 2 * root + 1) < end:
            if child + 1 < end and self._less(first + child, first + child + 1):
                child += 1
            if not self._less(first + root, first + child):
                return
            self._swap(first + root, first + child)
            root = child

    def heap_sort(self, first: int, end: int) -> None:
        """Sorts a part, slower on average but never quadratically."""
        length = end - first
        for i in range((length - 1) // 2, -1, -1):
            self._sift_down(i, length, first)
        for i in range(length - 1, -1, -1):
            self._swap(first, first + i)
            self._sift_down(0, i, first)

    def _scan(
        self, i: int, j: int, low: Callable[[int], bool], high: Callable[[int], bool]
    ) -> tuple[int, int]:
        while i <= j and low(i):
            i += 1
        while i <= j and high(j):
            j -= 1
        return i, j

    def _partition(self, first: int, end: int, pivot: int) -> tuple[int, bool]:
        """Moves what is less than the pivot before it; gives its position, and whether all was so already."""
        self._swap(first, pivot)
        i, j, untouched = first + 1, end - 1, True
        while True:
            i, j = self._scan(i, j, lambda k: self._less(k, first), lambda k: not self._less(k, first))
            if i > j:
                break
            self._swap(i, j)
            i, j, untouched = i + 1, j - 1, False
        self._swap(j, first)
        return j, untouched

    def _partition_equal(self, first: int, end: int, pivot: int) -> int:
        """Moves what equals the pivot to the front, nothing being less; gives where the rest begins."""
        self._swap(first, pivot)
        i, j = first + 1, end - 1
        while True:
            i, j = self._scan(i, j, lambda k: not self._less(first, k), lambda k: self._less(first, k))
            if i > j:
                return i
            self._swap(i, j)
            i, j = i + 1, j - 1

    def _insert_few(self, first: int, end: int) -> bool:
        """Tries to sort what is nearly sorted with a few shifts; whether that did it."""
        i = first + 1
        for _ in range(_MOST_SHIFTS):
            while i < end and not self._less(i, i - 1):
                i += 1
            if i == end:
                return True
            if end - first < _SHORTEST_SHIFTING:
                return False
            self._swap(i, i - 1)
            if i - first >= 2:
                self._shift(range(i - 1, 0, -1))
            if end - i >= 2:
                self._shift(range(i + 1, end))
        return False

    def _shift(self, positions: range) -> None:
        for j in positions:
            if not self._less(j, j - 1):
                return
            self._swap(j, j - 1)

    def _break_patterns(self, first: int, end: int) -> None:
        length = end - first
        random, modulus = length, 1 << length.bit_length()
        middle = first + length // 4 * 2
        for i in range(middle - 1, middle + 2):
            random ^= random << 13 & 0xFFFFFFFFFFFFFFFF
            random ^= random >> 7
            random ^= random << 17 & 0xFFFFFFFFFFFFFFFF
            other = random & (modulus - 1)
            self._swap(i, first + (other - length if other >= length else other))

    def _choose_pivot(self, first: int, end: int) -> tuple[int, int]:
        """A position of a middling key, and how many of the keys looked at were out of order."""
        quarter, swaps = (end - first) // 4, 0
        candidates = [first + quarter, first + 2 * quarter, first + 3 * quarter]
        if end - first >= _SHORTEST_NINTHER:
            for which, position in enumerate(candidates):
                candidates[which], more = self._median(position - 1, position, position + 1)
                swaps += more
        pivot, more = self._median(*candidates)
        return pivot, swaps + more

    def _median(self, a: int, b: int, c: int) -> tuple[int, int]:
        swaps = 0
        if self._less(b, a):
            a, b, swaps = b, a, swaps + 1
        if self._less(c, b):
            b, c, swaps = c, b, swaps + 1
        if self._less(b, a):
            a, b, swaps = b, a, swaps + 1
        return b, swaps
