"""Policies that score arms one by one: what a policy is, those that ship, and the checks that all
must pass.
"""
