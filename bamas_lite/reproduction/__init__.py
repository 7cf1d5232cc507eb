"""Reproduce the paper: published figures, a calibrated simulator, every system run, and what each number is worth.

The modules in the order in which they build on each other: `published` (figures typed from the paper), `expected` and
`calibration` (the simulator fitted to the baseline rows), `outcomes` (episodes in arrays), `systems` (the full run),
`code_variant` and `switches` (the paper against its code), `draws` (what no row identifies, drawn), `studies`,
`streams` and `loss_study`, `findings` (claims and their status). Nothing outside this package imports it.
"""
