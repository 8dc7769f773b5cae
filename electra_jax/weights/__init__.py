# SPDX-License-Identifier: Apache-2.0
"""Trained weights on disk: checkpoints of a run, exports, and the formats of other programs.

Everything may be imported from outside; the commands need `checkpoint_series`, `reading`,
`exporting`, `publishing`, `importing` and `warm_start`. Data goes from files through `formats` into
one class, `trained_weights.Weights`, and from there into a run, an encoder to use, or other files.

    write a checkpoint           checkpoint_series     saves, keeps, sets aside
                                 save_time             gives up on one that takes too long
    verify a checkpoint          checkpoint            a digest of every array
    read any trained weights     reading               decides what a path holds, then calls
                                 reading_workdir         a run's checkpoint
                                 reading_foreign         Hugging Face's or Google's files
                                 hub                     downloads hf:OWNER/NAME
    use an encoder               encoding              texts -> ids -> vectors
    ask a discriminator          judging               texts -> tokens with P(replaced)
    convert for others           exporting             Hugging Face, orbax, StableHLO
                                 card_facts              what the model card says
                                 publishing              uploads to the Hugging Face Hub
    convert from others          importing             a workdir that begins with the weights
    begin a run with weights     starting_checks       refuses, before text is prepared
                                 starting_weights      opens what `init.from` names
                                 warm_start            lays it over the fresh state
    resize tables                resizing              another vocabulary, more or fewer positions
"""
