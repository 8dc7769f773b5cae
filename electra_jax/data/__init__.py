# SPDX-License-Identifier: Apache-2.0
"""Text to rows of token ids, prepared once and read as batches; nothing here imports jax.

Other subpackages call `preparation.prepare` with `planning.Settings`, read the result with
`records` and `pipeline`, load a `vocabulary`, and read text for evaluation with `evaluation_text`.
A run that trains while its text is prepared calls `background.open_rows` and reads with
`streaming`. The other modules are the stages of preparation and are used in here alone.

Data goes text -> vocabulary -> segments -> records while preparing, and records -> pipeline while
training.
"""
