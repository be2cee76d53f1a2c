"""Detail `auto`: light all the time, and full detail in windows.

Pure: `control` decides when a window is open, `pressure` what light sees, `composing` makes one
report of both. `udsprobe/observe/auto.py` has the probes.
"""
