# SPDX-License-Identifier: Apache-2.0
"""Files of other programs: names, layouts and bytes of tensors, tokenizers and model cards.

Modules of `weights` import them; nothing else needs to, except fine-tuning, which writes the same
files. They turn files into dicts of numpy arrays by path and back, and know nothing of runs.

    hugging_face          names, layouts and config.json of transformers' ELECTRA, both ways, and
                          of its BERT, reading only
    google                names and layouts of google-research/electra, reading only
    arrays                what every array of theirs must be
    tensor_files          model.safetensors both ways, in one file or several
    pytorch_files         pytorch_model.bin, reading only
    tensorflow_bundle     checkpoints of TensorFlow's Saver, reading only
    checksums             the CRC-32C in them
    tokenizer_files       vocab.txt, tokenizer.json and their settings, both ways
    orbax_export          parameters as an orbax checkpoint, both ways
    stablehlo             the encoder as a program, writing only
    card                  the README.md of a network
    readme                the README.md of any export, from the files in `templates/`
    json_files            reading a file that holds a JSON object
"""
