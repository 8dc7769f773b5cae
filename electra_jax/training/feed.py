# SPDX-License-Identifier: Apache-2.0
"""From prepared rows to arrays on the devices.

    records -> pipeline.Order (shuffled rows) -> a thread that loads ahead -> arrays on the mesh

Each process reads only the rows that its own devices hold.
"""

import jax
from jax.sharding import Mesh

from electra_jax.core import sharding
from electra_jax.data import pipeline, streaming

AnyOrder = pipeline.Order | streaming.StreamedOrder


class Feed:
    """Iterates over batches {'ids': [B, L], 'marks': [B, L]} on the mesh.

    The first batch begins with row number `rows_seen` of the run.
    """

    def __init__(self, order: AnyOrder, mesh: Mesh, rows_seen: int, batch_size: int, length: int):
        self._where = sharding.rows(mesh)
        self._prefetch = None
        self.turn_to(order, rows_seen, batch_size, length)

    def turn_to(self, order: AnyOrder, rows_seen: int, batch_size: int, length: int) -> None:
        """Continues with other rows or from another position; drops what was loaded ahead."""
        if self._prefetch is not None:
            self.close()

        self._order, self._rows_seen = order, rows_seen
        self._shape = (batch_size, length)
        self._prefetch = pipeline.Prefetch(self._load, 0)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self) -> None:
        """Ends the loading thread, also if it waits for rows that are not prepared yet."""
        self._order.close()
        self._prefetch.close()

    def is_ready(self, seconds: float) -> bool:
        """Waits at most so long; returns whether the next batch, or an error, is there by then."""
        return self._prefetch.is_ready(seconds)

    def __next__(self):
        return next(self._prefetch)

    def _load(self, number: int) -> dict[str, jax.Array]:
        """Batch `number`, counted from the position at which the feed was started."""
        size = self._shape[0]
        first = self._rows_seen + number * size

        # Several devices may hold the same rows, and both lanes need them: they are read once.
        read: dict[tuple[int, int], pipeline.Rows] = {}

        def rows(index):
            start, end, _ = index[0].indices(size)
            if (start, end) not in read:
                read[start, end] = self._order.take(first + start, end - start)
            return read[start, end]

        def lane(name):
            return jax.make_array_from_callback(
                self._shape, self._where, lambda index: getattr(rows(index), name)
            )

        return {"ids": lane("ids"), "marks": lane("marks")}
