"""What Tilewright is measured by: suites, their baselines, recorded results and the gate."""
