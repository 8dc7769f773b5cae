# SPDX-License-Identifier: Apache-2.0
"""Text to rows of token ids, prepared once and read as batches; nothing here imports jax.

Other wings call `preparation.prepare` with `planning.Settings`, read the result with `records` and
`pipeline`, load a `vocabulary`, and read text for evaluation with `evaluation_text`; the other
modules are the stages of preparation and are used inside this wing.

Data goes text -> vocabulary -> segments -> records while preparing, and records -> pipeline while
training.
"""
