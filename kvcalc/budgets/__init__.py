"""Budgets: `kvcalc.yaml`, what it asks for, and whether that holds.

file.py ── Budget(request, limits, place in the file) ──▶ evaluate.py ── Verdict(checks, remedies) ──▶ render, exit code
                                                              │ remedies.py: changes that meet every limit
                                                              └ baseline.py: the figures of an earlier run, for growth
"""
