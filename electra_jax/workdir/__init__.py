# SPDX-License-Identifier: Apache-2.0
"""What a run's folder says about it: settings, prepared data, metadata of its checkpoints.

All of it is JSON, read without orbax and without starting a device, so that every command can look
before it begins. Settings go in once when a run starts (`saved_config`), every checkpoint repeats
them (`metadata`), and prepared data is found by what the run recorded (`prepared_data`).
"""
