"""What simulated clients do, on the production client alone; what they see goes to the history."""

from barnabas.sim.workload.run import run_workload

__all__ = ["run_workload"]
