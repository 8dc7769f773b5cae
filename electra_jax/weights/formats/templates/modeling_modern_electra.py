# SPDX-License-Identifier: Apache-2.0
"""ELECTRA with modern layers and other heads, for transformers: code of the folder it lies in.

    from transformers import AutoModel, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(FOLDER, trust_remote_code=True)
    encoder = AutoModel.from_pretrained(FOLDER, trust_remote_code=True)

transformers' ELECTRA has learned positions, a norm after each residual, a plain feed-forward and a
classifier of two layers. This one has what config.json names:

    positions          "rotary": queries and keys are rotated by position (arXiv:2104.09864)
    norm_place         "pre": x + f(norm(x)), and one more norm at the end (arXiv:2002.04745)
    norm_kind          "rms": no mean and no bias (arXiv:1910.07467)
    feed_forward_kind  "geglu": out(GELU(gate(x)) * in(x)) (arXiv:2002.05202)
    biases             false: none in attention and feed-forward
    local_window       the number of tokens visible on either side, but for layers 0, global_every,
                       2 global_every, ...; 0: all layers see whole rows (arXiv:2412.13663)
    discriminator_head "cls_context": the head hears [CLS] beside each token (arXiv:2111.09543)
    classifier_head    "linear": one layer on [CLS]; "mean": on the mean of all tokens;
                       "matched_means": on u, v, |u - v| and u v of the means of both texts
                       (arXiv:1705.02364)

All else is of transformers' classes, and so are the names of the tensors, beside which there are
`encoder.norm`, `encoder.layer.N.intermediate.gate` and `discriminator_predictions.norm`. Attention
is PyTorch's, which does not return its probabilities.

    B batch    L tokens    D width    H heads    K size of a head    M keys    C classes
"""

import torch
from torch import nn
from torch.nn import functional
from transformers import (
    ElectraConfig,
    ElectraForMaskedLM,
    ElectraForPreTraining,
    ElectraForQuestionAnswering,
    ElectraForSequenceClassification,
    ElectraForTokenClassification,
    ElectraPreTrainedModel,
)
from transformers.modeling_layers import GradientCheckpointingLayer
from transformers.modeling_outputs import BaseModelOutput, SequenceClassifierOutput
from transformers.models.electra.modeling_electra import ElectraDiscriminatorPredictions


class ModernElectraConfig(ElectraConfig):
    """ELECTRA's fields, and those that are named above."""

    model_type = "modern_electra"


def _norm(config):
    kind = nn.RMSNorm if config.norm_kind == "rms" else nn.LayerNorm
    return kind(config.hidden_size, eps=config.layer_norm_eps)


class ModernElectraEmbeddings(nn.Module):
    """Token and type, and the position where it has a table: normed, [B, L, embedding size]."""

    def __init__(self, config):
        super().__init__()
        size = config.embedding_size
        self.word_embeddings = nn.Embedding(config.vocab_size, size, config.pad_token_id)
        self.token_type_embeddings = nn.Embedding(config.type_vocab_size, size)
        self.position_embeddings = None
        if config.positions == "learned":
            self.position_embeddings = nn.Embedding(config.max_position_embeddings, size)
        self.LayerNorm = nn.LayerNorm(size, eps=config.layer_norm_eps)
        self.dropout = nn.Dropout(config.hidden_dropout_prob)

    def forward(self, tokens_BLE, types_BL, positions_BL):
        summed_BLE = tokens_BLE + self.token_type_embeddings(types_BL)
        if self.position_embeddings is not None:
            summed_BLE = summed_BLE + self.position_embeddings(positions_BL)
        return self.dropout(self.LayerNorm(summed_BLE))


class ModernElectraAttention(nn.Module):
    """Self-attention of one layer; the layer adds residual, norm and dropout."""

    def __init__(self, config):
        super().__init__()

        def dense():
            return nn.Linear(config.hidden_size, config.hidden_size, bias=config.biases)

        self.self = nn.ModuleDict({name: dense() for name in ("query", "key", "value")})
        self.output = nn.ModuleDict({"dense": dense(), "LayerNorm": _norm(config)})
        self.heads = config.num_attention_heads
        self.dropout = config.attention_probs_dropout_prob

    def forward(self, x_BLD, mask_BHLM, rotation):
        query_BHLK, key_BHLK, value_BHLK = (
            self.self[name](x_BLD).unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for name in ("query", "key", "value")
        )
        if rotation is not None:
            query_BHLK, key_BHLK = _rotate(query_BHLK, *rotation), _rotate(key_BHLK, *rotation)

        dropout = self.dropout if self.training else 0.0
        mixed_BHLK = functional.scaled_dot_product_attention(
            query_BHLK, key_BHLK, value_BHLK, attn_mask=mask_BHLM, dropout_p=dropout
        )
        return self.output["dense"](mixed_BHLK.transpose(1, 2).flatten(-2))


class ModernElectraLayer(GradientCheckpointingLayer):
    """Attention and feed-forward, each with its residual, norm and dropout."""

    def __init__(self, config):
        super().__init__()
        wide, width = config.intermediate_size, config.hidden_size
        self.attention = ModernElectraAttention(config)
        self.intermediate = nn.ModuleDict({"dense": nn.Linear(width, wide, bias=config.biases)})
        if config.feed_forward_kind == "geglu":
            self.intermediate["gate"] = nn.Linear(width, wide, bias=config.biases)
        out = nn.Linear(wide, width, bias=config.biases)
        self.output = nn.ModuleDict({"dense": out, "LayerNorm": _norm(config)})
        self.dropout = nn.Dropout(config.hidden_dropout_prob)
        self.norm_first = config.norm_place == "pre"

    def forward(self, x_BLD, mask_BHLM, rotation):
        def attend(x_BLD):
            return self.attention(x_BLD, mask_BHLM, rotation)

        x_BLD = self._with_residual(attend, self.attention.output["LayerNorm"], x_BLD)
        return self._with_residual(self._feed_forward, self.output["LayerNorm"], x_BLD)

    def _with_residual(self, branch, norm, x_BLD):
        if self.norm_first:
            return x_BLD + self.dropout(branch(norm(x_BLD)))
        return norm(x_BLD + self.dropout(branch(x_BLD)))

    def _feed_forward(self, x_BLD):
        wide = self.intermediate["dense"](x_BLD)
        if "gate" in self.intermediate:
            wide = functional.gelu(self.intermediate["gate"](x_BLD)) * wide
        else:
            wide = functional.gelu(wide)
        return self.output["dense"](wide)


class ModernElectraEncoder(nn.Module):
    """The layers, and the norm at the end if norms come first."""

    def __init__(self, config):
        super().__init__()
        self.config = config
        self.layer = nn.ModuleList(
            ModernElectraLayer(config) for _ in range(config.num_hidden_layers)
        )
        self.norm = _norm(config) if config.norm_place == "pre" else nn.Identity()

    def forward(self, x_BLD, mask_BL, positions_BL):
        """Returns the states after the embeddings and after each layer, the last one normed."""
        rotation = None
        if self.config.positions == "rotary":
            rotation = _rotation(self.config, positions_BL)

        everywhere = _mask(mask_BL, x_BLD.dtype)
        nearby = everywhere
        if window := self.config.local_window:
            distance_BLM = (positions_BL[:, :, None] - positions_BL[:, None, :]).abs()
            nearby = _mask(_over_pairs(mask_BL) * (distance_BLM <= window), x_BLD.dtype)

        states = [x_BLD]
        for number, layer in enumerate(self.layer):
            is_global = number % self.config.global_every == 0
            states.append(layer(states[-1], everywhere if is_global else nearby, rotation))
        return [*states[:-1], self.norm(states[-1])]


def _over_pairs(mask):
    """A mask by token, [B, L], or by pairs of tokens, [B, L, L], as one that has both axes."""
    return mask[:, None, :] if mask.dim() == 2 else mask


def _mask(mask, dtype):
    """What is added to the scores of attention, [B, 1, L or 1, L]: 0 where a token is seen."""
    hidden = 1.0 - _over_pairs(mask)[:, None].to(dtype)
    return hidden * torch.finfo(dtype).min


def _rotation(config, positions_BL):
    """Cosine and sine of position x base^(-2i / K), [B, 1, L, K / 2] each, in float32."""
    size = config.hidden_size // config.num_attention_heads
    halves = torch.arange(0, size, 2, dtype=torch.float32, device=positions_BL.device)
    rates = config.rotary_base ** (-halves / size)
    angles = positions_BL[:, None, :, None].float() * rates
    return angles.cos(), angles.sin()


def _rotate(x_BHLK, cosine, sine):
    """Rotates channel i and channel i + K / 2 by the angle of their position."""
    first, second = x_BHLK.to(torch.promote_types(x_BHLK.dtype, torch.float32)).chunk(2, -1)
    turned = first * cosine - second * sine, second * cosine + first * sine
    return torch.cat(turned, -1).to(x_BHLK.dtype)


class ModernElectraModel(ElectraPreTrainedModel):
    """The encoder. Its rows may be as long as fits where positions are rotary."""

    config_class = ModernElectraConfig
    _no_split_modules = ["ModernElectraLayer"]
    _supports_flash_attn = False
    _supports_flex_attn = False
    _supports_attention_backend = False

    def __init__(self, config):
        super().__init__(config)
        self.embeddings = ModernElectraEmbeddings(config)
        if config.embedding_size != config.hidden_size:
            self.embeddings_project = nn.Linear(config.embedding_size, config.hidden_size)
        self.encoder = ModernElectraEncoder(config)
        self.post_init()

    def get_input_embeddings(self):
        return self.embeddings.word_embeddings

    def set_input_embeddings(self, value):
        self.embeddings.word_embeddings = value

    def forward(
        self,
        input_ids=None,
        attention_mask=None,
        token_type_ids=None,
        position_ids=None,
        inputs_embeds=None,
        output_hidden_states=None,
        return_dict=None,
        **kwargs,
    ):
        del kwargs  # those of decoders, and attention probabilities, which are not returned
        if (input_ids is None) == (inputs_embeds is None):
            raise ValueError("give either input_ids or inputs_embeds")

        x = self.get_input_embeddings()(input_ids) if inputs_embeds is None else inputs_embeds
        rows, length = x.shape[:2]
        if attention_mask is None:
            attention_mask = torch.ones((rows, length), device=x.device)
        if token_type_ids is None:
            token_type_ids = torch.zeros((rows, length), dtype=torch.long, device=x.device)
        if position_ids is None:
            position_ids = torch.arange(length, device=x.device)[None]

        x = self.embeddings(x, token_type_ids, position_ids)
        if hasattr(self, "embeddings_project"):
            x = self.embeddings_project(x)
        states = self.encoder(x, attention_mask, position_ids)

        if output_hidden_states is None:
            output_hidden_states = self.config.output_hidden_states
        found = BaseModelOutput(
            last_hidden_state=states[-1],
            hidden_states=tuple(states) if output_hidden_states else None,
        )
        return found.to_tuple() if return_dict is False else found


class _WithModernEncoder:
    """Puts the encoder above into one of transformers' classes, in the place of its own."""

    def __init__(self, config):
        super().__init__(config)
        self.electra = ModernElectraModel(config)
        self.post_init()


class ModernElectraForMaskedLM(_WithModernEncoder, ElectraForMaskedLM):
    config_class = ModernElectraConfig


class ModernElectraForPreTraining(_WithModernEncoder, ElectraForPreTraining):
    """A logit per token, above 0 where it was replaced, if that is what was trained."""

    config_class = ModernElectraConfig

    def __init__(self, config):
        super().__init__(config)
        if config.discriminator_head == "cls_context":
            self.discriminator_predictions = _PredictionsThatHearCls(config)
            self.post_init()


class _PredictionsThatHearCls(ElectraDiscriminatorPredictions):
    """The head of transformers, on norm(h + h of [CLS])."""

    def __init__(self, config):
        super().__init__(config)
        self.norm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)

    def forward(self, states_BLD):
        return super().forward(self.norm(states_BLD + states_BLD[:, :1]))


class ModernElectraForSequenceClassification(_WithModernEncoder, ElectraForSequenceClassification):
    """Scores of each row; with `classifier_head="two_layer"` those of transformers' class."""

    config_class = ModernElectraConfig

    def __init__(self, config):
        super().__init__(config)
        if config.classifier_head != "two_layer":
            self.classifier = _ClassifierOfOneLayer(config)
            self.post_init()

    def forward(
        self, input_ids=None, attention_mask=None, token_type_ids=None, labels=None, **kwargs
    ):
        given = dict(attention_mask=attention_mask, token_type_ids=token_type_ids, **kwargs)
        if self.config.classifier_head == "two_layer":
            return super().forward(input_ids, labels=labels, **given)

        as_tuple = given.pop("return_dict", None) is False
        encoded = self.electra(input_ids, **given)
        logits_BC = self.classifier(encoded.last_hidden_state, attention_mask, token_type_ids)
        loss = None
        if labels is not None:  # transformers' own, by `problem_type` or by the labels
            loss = self.loss_function(labels, logits_BC, self.config)
        found = SequenceClassifierOutput(loss, logits_BC, encoded.hidden_states)
        return found.to_tuple() if as_tuple else found


class _ClassifierOfOneLayer(nn.Module):
    """Dropout and one layer, on what `classifier_head` says."""

    def __init__(self, config):
        super().__init__()
        self.kind = config.classifier_head
        width = config.hidden_size * (4 if self.kind == "matched_means" else 1)
        rate = config.classifier_dropout
        self.dropout = nn.Dropout(config.hidden_dropout_prob if rate is None else rate)
        self.out_proj = nn.Linear(width, config.num_labels)

    def forward(self, states_BLD, mask_BL, types_BL):
        if mask_BL is None:
            mask_BL = torch.ones(states_BLD.shape[:2], device=states_BLD.device)
        if types_BL is None:
            types_BL = torch.zeros_like(mask_BL)

        if self.kind == "linear":
            read = states_BLD[:, 0]
        elif self.kind == "mean":
            read = _mean(states_BLD, mask_BL)
        else:  # [CLS] belongs to neither text, a [SEP] to the text before it
            text_BL = mask_BL * (torch.arange(mask_BL.shape[1], device=mask_BL.device) > 0)
            u_BD, v_BD = (_mean(states_BLD, text_BL * (types_BL == text)) for text in (0, 1))
            read = torch.cat([u_BD, v_BD, (u_BD - v_BD).abs(), u_BD * v_BD], -1)
        return self.out_proj(self.dropout(read))


def _mean(states_BLD, counted_BL):
    """The mean of the tokens that count; 0 where none does."""
    counted_BL1 = counted_BL[..., None].to(states_BLD.dtype)
    return (states_BLD * counted_BL1).sum(1) / counted_BL1.sum(1).clamp(min=1)


class ModernElectraForTokenClassification(_WithModernEncoder, ElectraForTokenClassification):
    config_class = ModernElectraConfig


class ModernElectraForQuestionAnswering(_WithModernEncoder, ElectraForQuestionAnswering):
    config_class = ModernElectraConfig
