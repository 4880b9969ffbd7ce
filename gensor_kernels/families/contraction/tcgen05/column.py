"""Columns of contraction_tcgen05 in addition to the common ones (contraction/column.py)."""

from __future__ import annotations

from gensor_kernels.families.core.columns import Column

ROOM = Column("room", "iterations whose short sums have room in tensor memory")
SCALING = Column("scaling", "clocks in which a warp copies an iteration's scales")
SCALES_AGAIN = Column("scales_again", "bytes of an iteration's scales that the other blocks of a cluster read, too")
MULTICAST = Column("multicast", "share of an iteration's tiles that another pair of the cluster requests")
PLACED = Column("placed", "share of the multiprocessors on which whole clusters find room")
PLACES = Column("places", "tiles whose sums have room in tensor memory")
ADDING = Column("adding", "clocks in which the storing warps add an iteration's short sums")
