"""Linear models trained to a certified optimum, as scikit-learn estimators.

Needs scikit-learn: ``pip install "smoothsp[linear]"``.
"""

from smoothsp.linear._certificates import Certificate
from smoothsp.linear.chain_crf import ChainCRF
from smoothsp.linear.chain_svm import ChainSVM
from smoothsp.linear.crammer_singer_svc import CrammerSingerSVC
from smoothsp.linear.hinge_svc import HingeSVC
from smoothsp.linear.multiclass_svm import MulticlassSVM
from smoothsp.linear.weston_watkins_svc import WestonWatkinsSVC

__all__ = [
    "Certificate",
    "ChainCRF",
    "ChainSVM",
    "CrammerSingerSVC",
    "HingeSVC",
    "MulticlassSVM",
    "WestonWatkinsSVC",
]
