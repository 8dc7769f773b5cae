# SPDX-License-Identifier: Apache-2.0
"""The networks: embeddings, encoder, generator and discriminator.

Only this subpackage uses `flax.linen`. Others call the plain functions of `networks`, `task_heads`
and `accounting`, and read the shapes in `encoder_config`; a few also use `layers` and
`attention.refused`. Data goes from a `Batch` through embeddings and encoder layers to a head.

Reading order: `encoder_config.py`, `embeddings.py`, `attention.py` and `feed_forward.py`,
`encoder.py`, `generator.py` and `discriminator.py`, then `networks.py`.
"""
