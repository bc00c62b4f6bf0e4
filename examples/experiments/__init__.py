"""Experiments on what conditioning does, against controls, and their analysis."""
