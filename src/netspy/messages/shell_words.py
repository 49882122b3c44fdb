"""The words of one bash command: quoting is undone, anything else that a shell would do is refused."""

from __future__ import annotations

import re
from typing import NoReturn

from netspy.errors import RequestError

_tokens = re.compile(
    r"""(?P<space>(?:\s|\\\r?\n)+)
    | \$'(?P<ansi>(?:[^'\\]|\\.)*)'
    | '(?P<single>[^']*)'
    | \$?"(?P<double>(?:[^"\\]|\\.)*)"
    | \\(?P<escaped>.)
    | (?P<plain>[^\s\\'"$`|<>;()]+ | \$(?![\w({'"]))
    | (?P<shell>.)""",
    re.VERBOSE | re.DOTALL,
).finditer
_expands = re.compile(r"(?<!\\)(?:\\\\)*(?:\$[\w({]|`)").search
_double_escape = re.compile(r"\\(\n|[\\\"$`])").sub
_ansi_escapes = re.compile(
    r"\\(?:x(?P<hex>[0-9A-Fa-f]{1,2})|(?P<oct>[0-7]{1,3})|[uU](?P<uni>[0-9A-Fa-f]{1,8})|(?P<char>.))"
    r"|(?P<text>[^\\]+|\\)",
    re.DOTALL,
).finditer
_CHARS = dict(zip("ntrabeEfv\\'\"?", "\n\t\r\a\b\x1b\x1b\f\v\\'\"?", strict=True))


def split_command(command: str) -> list[str]:
    """The words, `$'…'` included. Raises RequestError for variables, pipes, redirections and open quotes.

    An `&` is taken as it is: it comes from a URL that nobody quoted.
    """
    text = command.strip()
    if '^"' in text or "^\n" in text or "^\r" in text:
        raise RequestError('this is "Copy as cURL (cmd)"; choose "Copy as cURL (bash)" in the browser')
    words: list[str] = []
    word: str | None = None
    for found in _tokens(text):
        kind = str(found.lastgroup)
        part = found[kind]
        if kind == "space":
            if word is not None:
                words.append(word)
            word = None
            continue
        if kind == "ansi":
            part = _ansi(part)
        elif kind == "double":
            if _expands(part):
                _refuse(part)
            part = _double_escape(lambda match: "" if match[1] == "\n" else match[1], part)
        elif kind == "shell":
            _refuse(text[found.start() :])
        word = (word or "") + part
    if word is not None:
        words.append(word)
    return words


def _refuse(text: str) -> NoReturn:
    if text.startswith(("'", '"', "$'")):
        raise RequestError(f"the curl command has a quote that doesn't end: {text!r:.60}")
    raise RequestError(
        f"the curl command has something for a shell to do at {text!r:.60}; put the value there, quoted"
    )


def _ansi(text: str) -> str:
    r"""The content of `$'…'`. As in bash, `\xHH` and `\NNN` are bytes of UTF-8, `\uHHHH` is a character."""
    out: list[str] = []
    raw = bytearray()
    for found in _ansi_escapes(text):
        kind = str(found.lastgroup)
        part = found[kind]
        if kind in {"hex", "oct"}:
            raw.append(int(part, 16 if kind == "hex" else 8) & 255)
            continue
        out.append(raw.decode("utf-8", "replace"))
        raw.clear()
        if kind == "uni":
            # \u takes up to four digits, \U up to eight.
            digits = part[:4] if found[0][1] == "u" else part
            number = int(digits, 16)
            out.append((chr(number) if number < 0x110000 else "\ufffd") + part[len(digits) :])
        elif kind == "char":
            out.append(_CHARS.get(part, "\\" + part))
        else:
            out.append(part)
    out.append(raw.decode("utf-8", "replace"))
    # Browsers write a character beyond U+FFFF as two escapes, the halves of its surrogate pair.
    return "".join(out).encode("utf-16", "surrogatepass").decode("utf-16", "replace")
