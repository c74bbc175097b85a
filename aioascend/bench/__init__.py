# SPDX-License-Identifier: Apache-2.0
"""The benchmarks of `aioascend bench`: this runtime beside every other way to wait for an NPU in an asyncio program."""
