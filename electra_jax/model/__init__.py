# SPDX-License-Identifier: Apache-2.0
"""The networks. Only this package knows `flax.linen`; above it there are init and apply.

Reading order: `embeddings.py`, `attention.py` and `feed_forward.py`, `encoder.py`,
`generator.py` and `discriminator.py`, then `networks.py`, which is what the floors above call.
"""
