"""Samples as metrics: what is measured under which name, in which unit, with which labels.

Knows samples and reports and no wire format: `prometheus_text` and `otlp`, beside
this package, write the same page of numbers in theirs.
"""
