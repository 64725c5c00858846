"""Settings of the search, with their reasons.

Those of a start, of the windows and of exact inference stand beside their algorithms.
"""

from dagp.inference.train import BLOCK, STOCHASTIC_BLOCK
from dagp.model.process import Deepening

# --------------------------------------------------------------------- associations and margins

UNUSED = 0.01
"""A process with at least this share of the data is in use."""
NEEDED = 10.0
"""One with less is in use if the others explain its data worse by this log likelihood."""
SAME, IDENTICAL = 0.95, 0.99
"""Share of equally assigned data from which two solutions are the same association, up to rows
that several processes explain; and from which they are one solution, found twice."""
FEW = 500
"""Least number of data points assumed in margins of the ELBO: with fewer, trials are cheap."""
GAIN = 2e-3
"""Least gain of a move, per data point: more than a few steps of training would gain."""
HOPELESS = 0.2
"""A proposal this far below, per data point, after these steps is rejected."""

# ---------------------------------------------------------------------- the race and its rounds

FIRST_STEPS = BLOCK
"""Steps of every start before the finalists are chosen."""
FINALISTS = 2
"""Starts of a race that are trained further and improved by moves: the second one shows how far
ahead the best one is."""
BEHIND = 0.1
"""A finalist this far behind, per data point, is not improved by moves."""
ROUNDS = 3
"""Most rounds of starts."""
UNDECIDED = 5 * GAIN
"""Two improved finalists that differ by less, per data point, are equally good: another round would
not decide between them."""
SEARCH_INDUCING = 48
"""Inducing inputs while associations are compared, which costs their number squared. The best one
is trained with all of them."""
SUBSAMPLE_STEPS = 4 * BLOCK
"""Most steps of the solution of a subsample before it is trained on all rows."""
CONCRETE_TRIAL = 8 * STOCHASTIC_BLOCK
"""Steps of every start of the paper's scheme before the best one is chosen."""

# -------------------------------------------------------------------------- trials of proposals

PROBE_STEPS = 6
"""Natural-gradient steps on a proposal before its ELBO is compared."""
RETURNED, ROWS_ALIKE = 0.3, 1.5
"""A proposal is back where it came from when less than this part of the rows that it moved are
still elsewhere, or fewer than so many rows."""
ATTEMPTS = 4
"""Proposals that are trained before all others are tried again."""
MOVE_STEPS, PATIENT_STEPS = 2 * BLOCK, 8 * BLOCK
"""Most training steps of a move, and of what is trained until its ELBO levels off."""
GATE_RATE = 0.05
"""Learning rate with which a gate goes on alone."""

# ---------------------------------------------------------------------------------------- moves

AGREE, NEAR = 2.0, 4.0
"""Two functions agree where they are closer than this many noise standard deviations, and meet
where they come closer than this many."""
MEETINGS = 12
"""Closest meetings tried per pair: functions that run side by side meet very often."""
GAPS, WIDE = 3, 10.0
"""Most gaps of a single input, and their least width in medians of the distances of neighbours."""
NEAREST = 8
"""Neighbours of a point in the graph that is cut into parts."""
LEFT_OUT = (0.1, 0.2, 0.3, 0.4)
"""Shares of the points, closest to a meeting of the functions, that are left out in turn."""
CUTS = 3
"""Normalised cuts that are looked at."""
MOST_POINTS = 3000
"""With more points the parts are found among some of them, and the others join the nearest."""
ALIKE = 0.9
"""Share of the points from which two parts are the same."""
BEYOND = 1 + 1e-9
"""Just above all eigenvalues of a normalised graph."""

# ------------------------------------------------------------------------------------ finishers

PARSIMONY = 0.2
"""Loss of the ELBO accepted for each point at which the gate has one process instead of two.

Where two functions coincide, one process or two explain the data equally well, and the ELBO differs
by less than its gap to the evidence. The simpler solution is preferred."""
WORTH = 3.0
"""What a process must add to the ELBO to be kept: odds of 20 to 1."""
MOST_COST = 2e9
"""Most inducing inputs squared times rows times functions; a step then takes about a second."""
LEFT = 0.02
"""Loss of the ELBO per data point from which more inducing inputs are used."""
DEEP_STEPS = 4 * PATIENT_STEPS
"""Most steps of a finalist with noise GPs or layers before the best one is chosen."""
MORE = "inducing inputs"
"""In the names of proposals with more of them."""
DEEPENINGS = (
    Deepening(stretch=5.0, variance=0.02, std=0.03),
    Deepening(stretch=10.0, variance=0.1, std=1.0),
)
"""Initialisations of deep GPs. Both stretch the length scales of the last layer, so that the inner
layers model the rapid variation: from almost certain inner values, or from those of the prior."""

# ---------------------------------------------------------------------------------- the verdict

SLOPE, OFFSET = 1.6, 4.7
"""Log odds of the best association: OFFSET less SLOPE times the log of the percentage of data that
the next start assigns differently. Fitted to 86 fits of `benchmarks/recovery.py sheets`, with seeds
below 100."""
DOUBTED = 0.9
"""Confidence below which a fit is warned about."""
MOST_ROWS = 3
"""Rows whose labels are asked for."""
LARGE_JITTER = 1e-4
"""Jitter, as a share of the variance, from which a covariance is nearly singular."""
CLOSE, PROMISING = 5.0, 20.0
"""A solution whose ELBO is further below the best one has a weight of less than 1 %; and the same
before it has been trained to convergence."""
RIVALS, MOST_RIVALS = 8, 3
"""Most exchanges that are trained, and most solutions that are kept beside the best one: each is
averaged over hyperparameters too."""
BORDERS, MOST_FEATURES = 24, 200
"""Values of a single input at which an exchange is looked at, evenly and in the widest gaps; and
most inducing inputs, whose number squared each of them costs."""
