# SPDX-License-Identifier: Apache-2.0
"""What the console, the reports and the samples share: colours, and how numbers are written.

In every chart, tile and sentence blue is the generator and orange the discriminator. Where runs are
compared, each group has a colour (`GROUPS`); the first, grey, is what the others are compared with.

The hues differ for colour-blind readers too, and no meaning depends on a hue alone: lines are
labelled, and outcomes have their own marks. `LIGHT` and `DARK` have the same names. The style sheet
(`templates/base.css.j2`) turns them into CSS variables, so a page and its charts follow the
reader's setting.
"""

import math

LIGHT = {
    "page": "#f7f7f5",
    "card": "#ffffff",
    "ink": "#1a1c1f",
    "muted": "#62676e",
    "line": "#e1e2e0",
    "grid": "#ececea",
    "generator": "#0067a5",
    "discriminator": "#c74e00",
    "shared": "#00775a",
    "good": "#00775a",
    "bad": "#b3261e",
    "belief": "#c2c7cd",
    "caught": "#93d7b1",
    "missed": "#f6b1aa",
    "alarm": "#f5d95a",
    "first": "#5b6168",
    "second": "#0067a5",
    "third": "#c74e00",
    "fourth": "#00775a",
    "fifth": "#8a3ea8",
    "sixth": "#957200",
    "seventh": "#c2407f",
}
DARK = {
    "page": "#131517",
    "card": "#1c1f22",
    "ink": "#eceef0",
    "muted": "#9aa1a9",
    "line": "#31363b",
    "grid": "#282c30",
    "generator": "#5fb4ee",
    "discriminator": "#f5914f",
    "shared": "#45c39c",
    "good": "#45c39c",
    "bad": "#ff8a80",
    "belief": "#585f67",
    "caught": "#1d6b48",
    "missed": "#8f3a33",
    "alarm": "#85690a",
    "first": "#b4bbc3",
    "second": "#5fb4ee",
    "third": "#f5914f",
    "fourth": "#45c39c",
    "fifth": "#c78cec",
    "sixth": "#d9b84a",
    "seventh": "#f08fb6",
}
# Colours of the groups in a comparison of runs, in their order.
GROUPS = ("first", "second", "third", "fourth", "fifth", "sixth", "seventh")

# The names are in single quotes, so that the list can be part of an HTML attribute.
FONT = "Inter, 'Segoe UI', system-ui, -apple-system, Roboto, 'Helvetica Neue', Arial, sans-serif"


def count(number: float) -> str:
    """1234 -> `1,234`; 1234567 -> `1.23M`: three digits are enough for a large count."""
    for size, letter in ((1e12, "T"), (1e9, "B"), (1e6, "M")):
        if abs(number) >= 0.9995 * size:
            return f"{number / size:#.3g}".rstrip(".") + letter
    return f"{number / 1e3:#.3g}".rstrip(".") + "k" if abs(number) >= 9999.5 else f"{number:,.0f}"


def duration(seconds: float) -> str:
    """75 -> `1m15s`, 3720 -> `1h02m`, 100000 -> `1d03h`: the two largest units."""
    seconds = round(seconds)
    if seconds < 60:
        return f"{seconds}s"
    if seconds < 3600:
        return f"{seconds // 60}m{seconds % 60:02d}s"

    minutes = round(seconds / 60)
    if minutes < 24 * 60:
        return f"{minutes // 60}h{minutes % 60:02d}m"
    hours = round(seconds / 3600)
    return f"{hours // 24}d{hours % 24:02d}h"


def metric(name: str, value: float | None) -> str:
    """The value of a metric in its usual unit: shares in percent, losses in nats.

    Returns `-` for null and for values that are not finite.
    """
    stem = name.partition("/")[0]
    if value is None or not math.isfinite(value):
        return "-"

    if is_share(stem):
        return f"{100 * value:.2f}%"
    if "learning_rate" in stem:
        return f"{value:.2e}"
    if stem in ("tokens_seen", "tokens_per_second", "skipped_steps"):
        return count(value)
    if stem == "step_seconds":
        return f"{value:.3g}s"

    if 0 < abs(value) < 0.001:
        return f"{value:.1e}"
    return f"{value:.2f}" if abs(value) >= 100 else f"{value:.3f}"


def difference(name: str, amount: float) -> str:
    """The distance between two values of a metric; in percentage points for a share."""
    return f"{100 * amount:.2f} points" if is_share(name) else metric(name, amount)


def is_share(name: str) -> bool:
    """Whether a metric is a share and is written in percent."""
    stem = name.partition("/")[0]
    endings = (
        "_accuracy", "_rate", "_majority", "_precision", "_recall", "_recall_at_2", "mfu",
        "_chance", "progress",
    )  # fmt: skip
    return stem.endswith(endings) and "learning" not in stem
