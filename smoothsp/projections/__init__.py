"""Differentiable projections of batches of vectors onto convex sets.

Most functions search for one multiplier per row. The derivative is that of the linear
piece that contains the projection.
"""

from smoothsp.projections.box import project_box_equality, project_capped_simplex
from smoothsp.projections.chain_marginals import project_chain_marginals
from smoothsp.projections.elastic_net import (
    project_elastic_net_ball,
    project_l1_ball,
    prox_elastic_net,
)
from smoothsp.projections.entropic import project_capped_simplex_kl
from smoothsp.projections.simplex import project_simplex, project_weston_watkins

__all__ = [
    "project_box_equality",
    "project_capped_simplex",
    "project_capped_simplex_kl",
    "project_chain_marginals",
    "project_elastic_net_ball",
    "project_l1_ball",
    "project_simplex",
    "project_weston_watkins",
    "prox_elastic_net",
]
