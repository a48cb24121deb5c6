r"""The masking of secrets in foreign texts such as library errors, in every usual spelling.

A secret is a name, a separator and a value. Names and values may be quoted, in JSON, in JSON within JSON (`\"`), or
percent-encoded; an XML element, an option of a command line, and a pair of name and value are other spellings. Masked
JSON stays valid JSON. Tokens, private keys and passwords in URLs need no name.
"""

from __future__ import annotations

import re
from typing import Final

MASK: Final = "***"

_ENCODED: Final = "%(?:25)*"
"""The start of a percent-encoded character, encoded once or more."""
_SPACE: Final = rf"(?:\s|{_ENCODED}20)"
_AND, _SEMICOLON = rf"(?:&|{_ENCODED}26)", rf"(?:;|{_ENCODED}3B)"
_QUOTE: Final = (
    rf"(?:(?:\\|{_ENCODED}5C)*(?:['\"]|{_ENCODED}2[27]|u002[27])"
    rf"|{_AND}(?:quot|apos|(?:#|{_ENCODED}23)3[49]){_SEMICOLON})"
)
_LESS: Final = rf"(?:<|{_AND}lt{_SEMICOLON}|(?:\\|{_ENCODED}5C)+u003c|{_ENCODED}3C)"
_GREATER: Final = rf"(?:>|{_AND}gt{_SEMICOLON}|(?:\\|{_ENCODED}5C)+u003e|{_ENCODED}3E)"
_WORD_BEGINS: Final = r"(?:(?<![A-Za-z0-9])|(?<=%[2-7][0-9A-F])|(?<=%25[2-7][0-9A-F]))"
_TOKEN_BEGINS: Final = _WORD_BEGINS.replace("A-Za-z0-9", "A-Za-z0-9_-")
_NAMES: Final = (
    r"(?:primary|secondary|shared[._ -]?access|account|master|signing|subscription|functions)[._ -]?key(?![._ -]?name)"
    r"|SharedAccessSignature|account\.key\.[\w.-]{1,200}"
    r"|client[_-]?secret|secret[._-]?(?:access[._-]?)?key|client[_-]?assertion|api[_-]?key"
    r"|(?:access|refresh|id|session|security|sas)[._-]?token|password|passwd"
    rf"|{_WORD_BEGINS}(?:pwd|sig)"
)
_OPENED: Final = rf"(?:b?{_QUOTE}(?![\s,;:)\]}}]))?"
"""A quote after an unquoted name; before a sign such as a comma it ends an enclosing text instead."""
_SIGN: Final = rf"(?:=>|[=:]|{_ENCODED}3[AD])"
_VALUE_OF_PAIR: Final = (
    rf"{_QUOTE}{_SPACE}*(?:,|{_ENCODED}2C)?{_SPACE}*{_QUOTE}?value{_QUOTE}?{_SPACE}*{_SIGN}{_SPACE}*b?{_QUOTE}"
)
"""Between name and value of `{"name": "primaryKey", "value": "…"}` or of `<add key="…" value="…"/>`."""
_SEPARATOR: Final = (
    rf"(?:{_QUOTE}{_SPACE}*{_SIGN}{_SPACE}*(?:\[{_SPACE}*)?(?:b?{_QUOTE})?|{_SPACE}*{_SIGN}{_SPACE}*{_OPENED}"
    rf"|{_VALUE_OF_PAIR})"
)
_SCHEME: Final = rf"(?:(?:SharedAccessSignature|Bearer|Basic|Digest)(?:{_SPACE}|\+)+)?"
_VALUE: Final = r"(?:[^\s;&'\",\\]|\\+(?![\\\"'nrt]))+"
"""A value up to its certain end: a backslash ends it only before a quote or a line break."""
_IN_QUOTES: Final = r"(?<=\")[^\"\\\n]+(?=\")|(?<=')[^'\\\n]+(?=')"
"""A value between two quotes, which may contain spaces and commas."""

_NOTHING: Final = r"(?:null|None|true|false)(?:[\s,;}\])]|\Z)"
"""No value of a secret, and no text in JSON."""

_NAMED: Final = re.compile(rf"(?i)((?:{_NAMES}){_SEPARATOR}{_SCHEME})(?!{_NOTHING})(?:{_IN_QUOTES}|{_VALUE})")
_BRACKET: Final = rf"(?:\[|{_ENCODED}5B)"
_ELEMENT: Final = re.compile(
    rf"(?i)({_LESS}(?:[\w.-]{{1,40}}(?::|{_ENCODED}3A))?[\w.-]{{0,40}}?(?:{_NAMES})(?:{_SPACE}[^<>]{{0,200}}?)?(?<!/)"
    rf"{_GREATER}(?:{_LESS}(?:!|{_ENCODED}21){_BRACKET}CDATA{_BRACKET})?)"
    rf"(?:(?!{_LESS}|(?:\]|{_ENCODED}5D){{2}}|[\"'\\]).)+"
)
_OPTION: Final = re.compile(rf"(?i)(--(?:{_NAMES}){_SPACE}+)(?!-){_VALUE}")
_HEADER: Final = re.compile(
    rf"(?i)(Authorization(?:{_SEPARATOR}|{_QUOTE}{_SPACE}*(?:,|{_ENCODED}2C){_SPACE}*b?{_QUOTE}){_SCHEME}"
    rf"|{_WORD_BEGINS}Bearer(?:{_SPACE}|\+)+){_VALUE}"
)
_TOKENS: Final = re.compile(rf"{_TOKEN_BEGINS}eyJ[A-Za-z0-9_-]{{4,}}(?:\.[A-Za-z0-9_-]*){{1,4}}")
_PASSWORDS: Final = re.compile(
    rf"(?i)((?:://|{_ENCODED}3A{_ENCODED}2F{_ENCODED}2F)[^/\s:@'\"%\\]*(?::|{_ENCODED}3A))"
    rf"[^/\s'\"\\]{{1,256}}(?=@|{_ENCODED}40)"
)
_PRIVATE_KEYS: Final = re.compile(
    rf"(-----BEGIN(?:[A-Z +]|{_ENCODED}20)*PRIVATE(?:[ +]|{_ENCODED}20)KEY(?:[ +]BLOCK)?-----)"
    r"[^\"']*?(?=-----END|[\"']|\Z)"
)


def masked(text: str) -> str:
    """Replace keys, signatures, tokens, client secrets and passwords in URLs by the mask."""
    for pattern in (_PRIVATE_KEYS, _TOKENS, _ELEMENT, _NAMED, _OPTION, _HEADER, _PASSWORDS):
        text = pattern.sub(_mask_match, text)
    return text


MAX_SHOWN_CHARS: Final = 80


def shown(value: object) -> str:
    """Return a value as a message may show it: a secret may be in the wrong place, and a value may be long."""
    text = masked(repr(value)[: 4 * MAX_SHOWN_CHARS])
    return text if len(text) <= MAX_SHOWN_CHARS else f"{text[: MAX_SHOWN_CHARS - 3]}..."


def _mask_match(match: re.Match[str]) -> str:
    return f"{match[1] if match.re.groups else ''}{MASK}"
