"""Points nearest to a vector under constraints, differentiable, a batch at a time.

Most find one number a row, the multiplier of an equation or of an inequality; the
derivative is that of the piece on which the point lies.
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
