"""Tables of potentials, as compiled loops take them."""

import array
from collections.abc import Sequence

from torch import Tensor


class Table:
    """Arrays as kernels take them, which it keeps alive, and where answers go.

    ``at`` is where the table lies, and how many arrays it has.
    """

    def __init__(
        self,
        own: Sequence[Tensor],
        shared: Sequence[Tensor],
        targets: Sequence[Tensor | None] | None = None,
    ) -> None:
        n = len(own)
        B = max(own[0].shape[0], 1)
        self.kept, numbers = [], array.array("q")
        for i, x in enumerate((*own, *shared)):
            if not x.is_contiguous():
                x = x.contiguous()
            self.kept.append(x)
            target = None if targets is None else targets[i]
            place = 0 if target is None else target.data_ptr()
            size = x.numel()
            numbers.extend((x.data_ptr(), size // B if i < n else size, i >= n, place))
        self._numbers = numbers
        self.at = numbers.buffer_info()[0], len(self.kept)
