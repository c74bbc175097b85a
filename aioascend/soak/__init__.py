# SPDX-License-Identifier: Apache-2.0
"""`aioascend soak`: random work with random faults on the simulator, and a check of everything that comes of it.

From the bottom up: `contents` says what bytes must be where, `plan` makes up the work from a seed, `ledger` notes what
was submitted and what became of it, `lane` does one lane's share of the plan, `audit` judges a round by the ledger and
by what the simulator knows, with `failures` and `aborts` for what reached whom, `balance` looks for what is left over,
`rounds` puts them together.
"""
