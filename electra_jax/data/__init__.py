# SPDX-License-Identifier: Apache-2.0
"""Text to rows of token ids, prepared once and read as batches; nothing here imports jax.

Other subpackages call `preparation.prepare` with `planning.DataSettings`, read the result with
`records` and `pipeline`, load a `vocabulary`, and read text for evaluation with `evaluation_text`.
A run that trains while its text is prepared calls `background.open_rows` and reads with
`streaming`. `downloads` tells how much of a source is on this machine, `servers` asks servers
within a time limit, and `hub_errors` says why the Hugging Face Hub gives no files. Most other
modules are the stages of preparation, whose last is `shard_writer`; `staged_shards` keeps rows that
are in a bucket on this machine while `pipeline` reads them.

Data goes text -> vocabulary -> segments -> records while preparing, and records -> pipeline while
training.
"""
