"""Reproduce the paper: published figures, a calibrated simulator, every system run, and what each number is worth.

The modules in the order in which they build on each other: `published` (figures typed from the paper), `expected` and
`calibration` (the simulator fitted to the baseline rows), `outcomes` (episodes in arrays), `systems` (the full run),
`code_variant` and `switches` (the paper against its code), `predicates` and `findings` (claims and their status),
`draws` (what no row identifies, drawn) and `prediction` (intervals from them), `studies`, `streams` and `loss_study`,
`summary` (what README.md says). `results`, `tables` and `checks` read and check what is handed in. Nothing outside this
package imports it.
"""
