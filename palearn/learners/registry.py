"""The one table of learners: each row names its form and rule, hyper-parameters and source.

A new learner is a row here, a step function (where no rule fits) and an oracle test.

Papers
------
Rosenblatt 1958
    The perceptron, Psychological Review 65.
Cesa-Bianchi, Conconi and Gentile 2005
    A second-order perceptron algorithm, SIAM Journal on Computing 34.
Crammer, Dekel, Keshet, Shalev-Shwartz and Singer 2006
    Online passive-aggressive algorithms, JMLR 7.
Dredze, Crammer and Pereira 2008
    Confidence-weighted linear classification, ICML.
Matsushima, Shimizu, Yoshida, Ninomiya and Nakagawa 2010
    Exact passive-aggressive algorithm for multiclass classification using support class, SDM. (SPA)
Crammer and Lee 2010
    Learning via Gaussian herding, NIPS. (NHERD)
Nguyen, Chang and Hui 2011
    Distribution-aware online classifiers, IJCAI. (PAM)
Duchi, Hazan and Singer 2011
    Adaptive subgradient methods for online learning and stochastic optimization, JMLR 12. (AdaGrad)
Wang, Zhao and Hoi 2012
    Exact soft confidence-weighted learning, ICML. (SCW)
Nguyen, Chang and Hui 2012
    Two-view online learning, PAKDD.
Crammer, Kulesza and Dredze 2013
    Adaptive regularization of weight vectors, Machine Learning 91; first NIPS 2009. (AROW)
Tsai, Tseng, Lee and Pao
    Passive and aggressive algorithm with class mean information. (PAm)
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from palearn.learners.families import (
    AdaGrad,
    AgreeingViews,
    ClassMeans,
    Family,
    Linear,
    Params,
    Rule,
    SecondOrderPerceptron,
)
from palearn.learners.hyperparameters import Parameter
from palearn.learners.step_sizes import (
    CW,
    EXACT,
    NHERD,
    PERCEPTRON,
    PRINTED_PA,
    PRINTED_SPA1,
    PRINTED_SPA2,
    SCW,
    SCW2,
)

TASKS = ("binary", "multiclass")

C = Parameter("C", 1.0, "Aggressiveness: how much one example may move the weights.", above=0)
R = Parameter("r", 1.0, "Regularisation: large values make small, careful steps.", above=0)
A = Parameter("a", 1.0, "The matrix A begins as a times the identity.", above=0)
GAMMA = Parameter("gamma", 0.5, "Penalty on disagreement between views.", at_least=0)
MEAN_GAMMA = Parameter("gamma", 0.5, "Pull towards the difference of the class means.", at_least=0)
ETA = Parameter("eta", 0.9, "Confidence with which an example shall be right.", above=0.5, below=1, optional=True)
PHI = Parameter(
    "phi", None, "The confidence as a number of standard deviations.", above=0, optional=True, replaces="eta"
)
PRINTED = Parameter("as_printed", False, "Repeat the paper's misprinted formula.", truth=True)
CONSTRAINTS = Parameter(
    "constraints",
    1,
    "How many wrong classes take part (multiclass).",
    at_least=1,
    integer=True,
    words=("all",),
)
FORM = Parameter("covariance", "diagonal", "Family of the covariance.", words=("diagonal", "full"))
PROJECTION = Parameter("projection", "covariance", "What a diagonal keeps.", words=("covariance", "precision"))
MOST_FULL = Parameter("max_full_features", 2048, "Most features of a full covariance.", at_least=1, integer=True)
VARIANCE = Parameter("initial_variance", 1.0, "Variance of a feature never seen.", above=0)
SECOND_ORDER = (FORM, PROJECTION, VARIANCE, MOST_FULL)
_AROW_FORM = Parameter(
    "covariance",
    "diagonal",
    "Family of the covariance; joint (multiclass): one over the weights of all classes.",
    words=("diagonal", "full", "joint"),
)
MOST_CLASSES = Parameter(
    "max_classes",
    16,
    "Most classes of a joint covariance; it holds max_full_features / max_classes features.",
    at_least=2,
    integer=True,
)
LOSS = Parameter("loss", "squared_hinge", "Loss of the mean's step.", words=("squared_hinge", "hinge"))
QUEUE = Parameter(
    "queue", 0, "Start from the mean of the weights before the last steps (PAmW).", at_least=0, integer=True
)
FREEZE = Parameter(
    "freeze_mean_after", None, "Only so many labelled examples move the means.", at_least=0, integer=True, optional=True
)


@dataclass(frozen=True)
class Algorithm:
    """A row of the table.

    Parameters
    ----------
    name
        As in ``palearn.make(name)`` and the configuration.
    summary
        One line on what it does.
    source
        Paper, section and equation.
    parameters
        Hyper-parameters with domains and defaults.
    form
        What it keeps and which kernel learns it.
    tasks
        The tasks it can do.
    views
        Whether it learns on views.
    linear
        Whether a score is a product of weights and features, of whatever else is kept.
    """

    name: str
    summary: str
    source: str
    parameters: tuple[Parameter, ...]
    form: Family
    tasks: tuple[str, ...] = TASKS
    views: bool = False
    linear: bool = True


def _printed(params: Params, task: str, which: int) -> int:
    return which if params["as_printed"] and task == "multiclass" else EXACT


def _pa(params: Params, task: str) -> Rule:
    return Rule()


def _pa1(params: Params, task: str) -> Rule:
    return Rule(cap=params["C"])


def _pa2(params: Params, task: str) -> Rule:
    return Rule(q=1.0 / (2.0 * params["C"]))


def _arow(params: Params, task: str) -> Rule:
    r = params["r"]
    if params["loss"] == "hinge":
        return Rule(cap=1.0 / (2.0 * r), r=r, weigh_r=True)
    return Rule(q=r, r=r, weigh_r=True)


def _phi(params: Params) -> float:
    from scipy.special import ndtri  # takes longer to import than a small file to learn

    return float(ndtri(params["eta"])) if params["phi"] is None else float(params["phi"])


def _cw(params: Params, task: str) -> Rule:
    return Rule(CW if params["form"] == "variance" else SCW, phi=_phi(params))


def _linear(rule: int = 0, **constants: Any) -> Linear:
    return Linear(lambda params, task: Rule(rule, **constants))


def _with_misprint(family: Callable[[Params, str], Rule], which: int, *, every: bool = False) -> Linear:
    def rule(params: Params, task: str) -> Rule:
        made = family(params, task)
        return Rule(cap=made.cap, q=made.q, printed=_printed(params, task, which), all_constraints=every)

    return Linear(rule)


_PAM = (*SECOND_ORDER, CONSTRAINTS)
_CONFIDENCE = (PHI, ETA)
_MEANS = (MEAN_GAMMA, QUEUE, FREEZE)

LEARNERS: dict[str, Algorithm] = {
    row.name: row
    for row in (
        Algorithm("perceptron", "Perceptron: moves on a mistake", "Rosenblatt 1958", (), _linear(PERCEPTRON)),
        Algorithm(
            "sop",
            "Second-order perceptron",
            "Cesa-Bianchi et al. 2005, figure 3.1",
            (A, FORM, MOST_FULL),
            SecondOrderPerceptron(),
            tasks=("binary",),
            linear=False,
        ),
        Algorithm("pa", "Passive-aggressive, hard margin", "Crammer et al. 2006, eq. 4 and section 8", (), Linear(_pa)),
        Algorithm(
            "pa1",
            "Passive-aggressive, step capped at C",
            "Crammer et al. 2006, eq. 6 (PA-I); as_printed: Matsushima et al. 2010, table 2",
            (C, PRINTED),
            _with_misprint(_pa1, PRINTED_PA),
        ),
        Algorithm(
            "pa2",
            "Passive-aggressive, squared slack",
            "Crammer et al. 2006, eq. 7 (PA-II); as_printed: Matsushima et al. 2010, table 2",
            (C, PRINTED),
            _with_misprint(_pa2, PRINTED_PA),
        ),
        Algorithm(
            "cw",
            "Confidence-weighted",
            "Dredze et al. 2008, eq. 8-10, Nguyen et al. 2011, section 3.1 (variance); Wang et al. 2012 (stdev)",
            (
                *_CONFIDENCE,
                Parameter("form", "variance", "Of the probability constraint.", words=("variance", "stdev")),
                *SECOND_ORDER,
            ),
            Linear(_cw),
        ),
        Algorithm(
            "pam",
            "PA in Mahalanobis distance, hard margin",
            "Nguyen et al. 2011, section 3.2; multiclass ours",
            _PAM,
            Linear(_pa),
        ),
        Algorithm(
            "pam1",
            "PA-I in Mahalanobis distance",
            "Nguyen et al. 2011, section 3.2; multiclass ours",
            (C, *_PAM),
            Linear(_pa1),
        ),
        Algorithm(
            "pam2",
            "PA-II in Mahalanobis distance",
            "Nguyen et al. 2011, section 3.2; multiclass ours",
            (C, *_PAM),
            Linear(_pa2),
        ),
        Algorithm(
            "arow",
            "Adaptive regularisation of weights",
            "Crammer et al. 2013, figure 1 (squared hinge), section 4 (hinge), eq. 25-30 (multiclass)",
            (R, LOSS, _AROW_FORM, *SECOND_ORDER[1:], MOST_CLASSES, CONSTRAINTS),
            Linear(_arow),
        ),
        Algorithm(
            "pa_mean",
            "PA with class means, hard margin",
            "Tsai et al., section II (PAm, PAmW), inner products corrected",
            _MEANS,
            ClassMeans(),
            tasks=("binary",),
        ),
        Algorithm(
            "pa_mean1",
            "PA-I with class means",
            "Tsai et al., section II (PAm-1), inner products corrected",
            (C, *_MEANS),
            ClassMeans(cap=lambda params: float(params["C"])),
            tasks=("binary",),
        ),
        Algorithm(
            "pa_mean2",
            "PA-II with class means",
            "Tsai et al., section II (PAm-2), inner products corrected",
            (C, *_MEANS),
            ClassMeans(q=lambda params: (1.0 + params["gamma"]) / (2.0 * params["C"])),
            tasks=("binary",),
        ),
        Algorithm(
            "spa",
            "Exact multiclass PA over all wrong classes",
            "Matsushima et al. 2010, section 3.1",
            (),
            Linear(lambda params, task: Rule(all_constraints=True)),
        ),
        Algorithm(
            "spa1",
            "Exact multiclass PA-I",
            "Matsushima et al. 2010, section 3.3, sign of theta corrected",
            (C, PRINTED),
            _with_misprint(_pa1, PRINTED_SPA1, every=True),
        ),
        Algorithm(
            "spa2",
            "Exact multiclass PA-II",
            "Matsushima et al. 2010, section 3.3, denominator corrected",
            (C, PRINTED),
            _with_misprint(_pa2, PRINTED_SPA2, every=True),
        ),
        Algorithm(
            "two_view_pa",
            "Views that must agree, exact solution",
            "Nguyen et al. 2012, section 3, algorithm 1 corrected; more views and classes ours",
            (Parameter("C", 0.1, C.meaning, above=0), GAMMA, PRINTED),
            AgreeingViews(),
            views=True,
            linear=False,
        ),
        Algorithm(
            "adagrad_rda",
            "AdaGrad, regularised dual averaging with L1",
            "Duchi et al. 2011, eq. 24",
            (
                Parameter("eta", 1.0, "Step size.", above=0),
                Parameter("delta", 1.0, "Added to the root of the squares' sum.", at_least=0),
                Parameter("l1", 0.0001, "Strength of the L1 penalty, an example.", at_least=0),
            ),
            AdaGrad(),
        ),
        Algorithm(
            "scw1",
            "Soft confidence-weighted, hinge",
            "Wang et al. 2012, proposition 1 (SCW-I); multiclass ours",
            (C, *_CONFIDENCE, *SECOND_ORDER),
            Linear(lambda params, task: Rule(SCW, cap=params["C"], phi=_phi(params))),
        ),
        Algorithm(
            "scw2",
            "Soft confidence-weighted, squared hinge",
            "Wang et al. 2012, proposition 2 (SCW-II); multiclass ours",
            (C, *_CONFIDENCE, *SECOND_ORDER),
            Linear(lambda params, task: Rule(SCW2, q=1.0 / (2.0 * params["C"]), phi=_phi(params))),
        ),
        Algorithm(
            "nherd",
            "Normal herd",
            "Crammer and Lee 2010; multiclass ours",
            (C, *SECOND_ORDER),
            Linear(lambda params, task: Rule(NHERD, q=1.0 / params["C"])),
        ),
    )
}


def described() -> list[dict[str, Any]]:
    """Return every learner: name, summary, tasks, source and hyper-parameters with domains and defaults."""
    return [
        {
            "name": row.name,
            "summary": row.summary,
            "tasks": list(row.tasks),
            "source": row.source,
            "parameters": [
                {"name": p.name, "default": p.default, "domain": p.domain, "meaning": p.meaning} for p in row.parameters
            ],
        }
        for row in LEARNERS.values()
    ]
