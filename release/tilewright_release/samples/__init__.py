"""A call for every bundled kernel and signature, with what it must give: one place for all.

`dev validate` runs them on a GPU, `dev audit` finds by them what no operation ever launches, and
the proofs of schedules take their launches.
"""

from __future__ import annotations

from tilewright_release.samples.sample import Sample as Sample
from tilewright_release.samples.sample import SampleLaunch as SampleLaunch
from tilewright_release.samples.sample import launched_by as launched_by
from tilewright_release.samples.table import all_samples as all_samples
