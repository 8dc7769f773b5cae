# SPDX-License-Identifier: Apache-2.0
"""What the folder of a run (the workdir) says about it: settings, prepared data, checkpoints.

All of it is JSON that is read without orbax and without starting a device, so every command can
look before it begins; `config`, `data` and `host` are the subpackages that are imported. Data goes
both ways: a run writes its settings once at its start (`saved_config`) and which prepared data it
uses (`prepared_data`), every checkpoint repeats the settings (`metadata`), and commands read them
back.
"""
