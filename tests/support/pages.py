# SPDX-License-Identifier: Apache-2.0
"""Checks that every HTML page of the package has to pass: closed tags, titled charts."""

import html
import html.parser
import re


def charts(page):
    """{title: inline SVG} in their order."""
    drawn = re.findall("<svg.*?</svg>", page, re.DOTALL)
    titles = (re.search('aria-label="([^"]*)"', svg) for svg in drawn)
    return {html.unescape(title[1]): svg for title, svg in zip(titles, drawn, strict=True)}


def unclosed(page):
    """Tags that are opened and not closed, or closed and not opened."""
    bad, stack = [], []

    class Tags(html.parser.HTMLParser):
        def handle_starttag(self, tag, attrs):
            if tag != "meta":
                stack.append(tag)

        def handle_startendtag(self, tag, attrs):
            pass

        def handle_endtag(self, tag):
            if not stack or stack.pop() != tag:
                bad.append(tag)

    Tags().feed(page)
    return bad + stack
