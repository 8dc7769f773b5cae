# SPDX-License-Identifier: Apache-2.0
"""The look that the console, the report and the view share: colours, one stylesheet, numbers.

Hue says whose it is (blue: generator, orange: discriminator), in every chart, tile and sentence;
where runs are compared it says which group's (`GROUPS`), and the first, grey, is what others are
held against.
The hues are apart for colour-blind eyes, and no meaning hangs on a hue alone: lines are labelled,
outcomes have a mark of their own. `LIGHT` and `DARK` hold the same names; the stylesheet turns
them into CSS variables, so a page follows the reader's setting, charts included.
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
    "belief": "#ffa64d",
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
    "belief": "#9c5410",
    "first": "#b4bbc3",
    "second": "#5fb4ee",
    "third": "#f5914f",
    "fourth": "#45c39c",
    "fifth": "#c78cec",
    "sixth": "#d9b84a",
    "seventh": "#f08fb6",
}
GROUPS = ("first", "second", "third", "fourth", "fifth", "sixth", "seventh")  # of runs compared

# Names in single quotes, so that it may stand inside an attribute of the page.
FONT = "Inter, 'Segoe UI', system-ui, -apple-system, Roboto, 'Helvetica Neue', Arial, sans-serif"

_SHEET = """
* { box-sizing: border-box; }
body { margin: 0; background: var(--page); color: var(--ink); font: 15px/1.5 FONT;
  -webkit-text-size-adjust: 100%; }
main { max-width: 1240px; margin: 0 auto; padding: 36px 24px 64px; }
h1 { font-size: 26px; line-height: 1.2; letter-spacing: -.015em; margin: 0; font-weight: 650; }
h2 { font-size: 17px; letter-spacing: -.01em; margin: 44px 0 14px; font-weight: 650; }
p { margin: 0; }
.muted, .note { color: var(--muted); }
.note { font-size: 13.5px; max-width: 76ch; }
.card { background: var(--card); border: 1px solid var(--line); border-radius: 10px; }

.key { display: flex; flex-wrap: wrap; gap: 6px 22px; font-size: 13.5px; color: var(--muted);
  margin: 0 0 14px; align-items: baseline; }
.key .w { color: var(--ink); }
.key .scale { display: inline-block; width: 84px; height: 11px; border-radius: 3px;
  background: linear-gradient(90deg, transparent, var(--belief)); border: 1px solid var(--line); }
.sample { padding: 16px 20px 12px; margin: 0 0 14px; }
.sample .text { font-size: 16px; line-height: 2.3; overflow-wrap: anywhere; max-width: 92ch; }
.sample .counts { font-size: 13px; color: var(--muted); margin-top: 8px; }
.w { position: relative; padding: 1px 0; border-radius: 3px; text-decoration-thickness: 2px;
  text-underline-offset: 4px; text-decoration-skip-ink: none;
  background: color-mix(in srgb, var(--belief) calc(var(--p, 0) * 100%), transparent); }
.w.chosen { cursor: help; }
.w.caught { text-decoration: underline solid 2.5px var(--good); }
.w.missed { text-decoration: underline wavy 1.5px var(--bad); }
.w.replaced { text-decoration: underline solid 2px var(--muted); }
.w.lucky { text-decoration: underline dotted 2px var(--generator); }
.w rt { font-size: 10.5px; line-height: 1; color: var(--muted); font-weight: 400;
  letter-spacing: 0; padding: 0 3px; user-select: none; transform: translateY(-2px); }
.special { color: var(--muted); font-size: 11.5px; }
"""


def stylesheet() -> str:
    """The CSS of a page: both palettes as variables, then the rules that pages share."""
    light, dark = (
        "".join(f"--{name}:{colour};" for name, colour in palette.items())
        for palette in (LIGHT, DARK)
    )
    return (
        f":root{{color-scheme:light dark;{light}}}\n"
        f"@media (prefers-color-scheme:dark){{:root{{{dark}}}}}" + _SHEET.replace("FONT", FONT)
    )


def count(number: float) -> str:
    """1234 -> `1,234`; 1234567 -> `1.23M`: three digits are enough to read a large count."""
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
    """The value of a metric in its usual unit: a share in percent, a loss in nats, `-` if null."""
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
    """How far two values of a metric are apart; shares differ in percentage points."""
    return f"{100 * amount:.2f} points" if is_share(name) else metric(name, amount)


def is_share(name: str) -> bool:
    """True for the metrics that are shares of tokens and are written in percent."""
    stem = name.partition("/")[0]
    endings = ("_accuracy", "_rate", "_majority", "_precision", "_recall", "mfu", "progress")
    return stem.endswith(endings) and "learning" not in stem
