"""Linear models trained to a certified optimum, as scikit-learn estimators.

Needs scikit-learn: ``pip install "smoothsp[linear]"``.
"""

try:
    from smoothsp.linear import scorers
    from smoothsp.linear.comparison.compare import Comparison, compare
    from smoothsp.linear.engines.solution import Certificate
    from smoothsp.linear.estimators.chain_crf import ChainCRF
    from smoothsp.linear.estimators.chain_gp import ChainGP
    from smoothsp.linear.estimators.chain_svm import ChainSVM
    from smoothsp.linear.estimators.crammer_singer_svc import CrammerSingerSVC
    from smoothsp.linear.estimators.hinge_svc import HingeSVC
    from smoothsp.linear.estimators.l1_svc import L1SVC
    from smoothsp.linear.estimators.lp_boost import LPBoostClassifier
    from smoothsp.linear.estimators.multivariate_svc import F1SVC, ROCSVC
    from smoothsp.linear.estimators.structured_svm import StructuredSVM
    from smoothsp.linear.estimators.weston_watkins_svc import WestonWatkinsSVC
except ModuleNotFoundError as error:
    if str(error.name).partition(".")[0] not in ("joblib", "scipy", "sklearn", "tqdm"):
        raise
    raise ModuleNotFoundError(
        "smoothsp.linear: needs scikit-learn, scipy and tqdm: "
        'pip install "smoothsp[linear]"',
        name=error.name,
    ) from error

__all__ = [
    "F1SVC",
    "L1SVC",
    "ROCSVC",
    "Certificate",
    "ChainCRF",
    "ChainGP",
    "ChainSVM",
    "Comparison",
    "CrammerSingerSVC",
    "HingeSVC",
    "LPBoostClassifier",
    "StructuredSVM",
    "WestonWatkinsSVC",
    "compare",
    "scorers",
]
