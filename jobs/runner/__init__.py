"""The runner: a spec, carried out batch after batch.

Owns the loop around a job and the choice of the path that its rows take. Must never remember
anything: the position is in the ledger, so the job can be killed and started again at any point.
"""
