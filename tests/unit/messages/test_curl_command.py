"""curl commands as browsers copy them become requests; what can't be carried over is named."""

import pytest

from netspy.errors import RequestError
from netspy.messages.curl_command import form_content, parse_curl
from netspy.messages.request import Request
from netspy.messages.shell_words import split_command

CHROME = r"""curl 'https://example.com/api/search?q=a%20b&x=$1' \
  -H 'accept: application/json, text/plain, */*' \
  -H 'accept-language: zh-CN,zh;q=0.9' \
  -b 'sid=abc=; theme=dark' \
  -H 'content-type: application/json;charset=UTF-8' \
  -H $'x-quote: it\'s \u4e2d\ud83d\ude00' \
  --data-raw $'{"name":"it\'s","n":"\u0021\\n"}' \
  --compressed --insecure
"""


def test_a_browsers_copy_becomes_the_same_request() -> None:
    request = Request.from_curl(CHROME)
    assert request.url == "https://example.com/api/search?q=a%20b&x=$1"
    assert request.method == "POST"
    assert request.requests_kwargs == {
        "headers": {
            "accept": "application/json, text/plain, */*",
            "accept-language": "zh-CN,zh;q=0.9",
            "content-type": "application/json;charset=UTF-8",
            "x-quote": "it's 中😀",
        },
        "cookies": {"sid": "abc=", "theme": "dark"},
        "data": '{"name":"it\'s","n":"!\\n"}',
        "verify": False,
    }


FORM = {"Content-Type": "application/x-www-form-urlencoded"}


@pytest.mark.parametrize(
    ("command", "keywords"),
    [
        ("curl e.com", {"url": "http://e.com"}),
        ("/usr/bin/curl -sSL -- https://e.com/?a=1&b=2", {"url": "https://e.com/?a=1&b=2", "follow_redirects": True}),
        ("curl --url e.com/x -o out.html -w '%{http_code}' -s", {"url": "http://e.com/x"}),
        ("curl -XPUT e.com -d a=1 -d 'b=2'", {"method": "PUT", "data": "a=1&b=2", "headers": FORM}),
        ("curl -d '' e.com", {"method": "POST", "data": "", "headers": FORM}),
        ("curl -G e.com/?z=0 -d a=1 --data-urlencode 'q=x y&'", {"url": "http://e.com/?z=0&a=1&q=x+y%26"}),
        ("curl -I e.com", {"method": "HEAD"}),
        ("curl --data-raw @x --data-urlencode =a=b e.com", {"method": "POST", "data": "@x&a%3Db", "headers": FORM}),
        ("curl -d x -H Content-Type: e.com", {"method": "POST", "data": "x"}),
        ("curl -d x -H 'content-type: text/plain' e.com", {"method": "POST", "data": "x", "headers": {"content-type": "text/plain"}}),
        (
            """curl --json '{"a":' --json '1}' e.com""",
            {"method": "POST", "data": '{"a":1}', "headers": {"Content-Type": "application/json", "Accept": "application/json"}},
        ),
        ("curl -u me:p:w -A 'My UA' -e 'http://r/;auto' -r 0-9 e.com",
         {"auth": ("me", "p:w"), "headers": {"User-Agent": "My UA", "Referer": "http://r/", "Range": "bytes=0-9"}}),
        ("curl -x proxy:3128 -U 'u:p@ss' -m 2.5 --oauth2-bearer T e.com",
         {"proxy": "http://u:p%40ss@proxy:3128", "timeout": 2.5, "headers": {"Authorization": "Bearer T"}}),
        ("curl -x socks5h://h:1 e.com", {"proxy": "socks5h://h:1"}),
        ("curl -F a=1 -F 'b=2;type=text/plain' --form-string 'c=@x;type=y' e.com",
         {"method": "POST", "files": [("a", (None, "1")), ("b", (None, "2", "text/plain")), ("c", (None, "@x;type=y"))]}),
        ("curl -H 'X-Empty;' -H ':authority: e.com' -H 'Content-Length: 5' e.com", {"headers": {"X-Empty": ""}}),
        ("curl.exe e.com", {}),
    ],
)  # fmt: skip
def test_options_become_keywords(command: str, keywords: dict) -> None:
    assert parse_curl(command) == {"url": "http://e.com", "method": "GET"} | keywords
    Request.from_curl(command)


@pytest.mark.parametrize(
    ("content", "part"),
    [
        ('"red tea"', (None, "red tea")),
        ("  red tea ", (None, "red tea")),
        ('"  red tea "', (None, "  red tea ")),
        ("x;y", (None, "x")),
        ('"x;y"', (None, "x;y")),
        (r'"q\"uo\\te\n"', (None, r'q"uo\te\n')),
        ('"unclosed', (None, '"unclosed')),
        (r'"abc\"', (None, r'"abc\"')),
        ('x"y"z', (None, 'x"y"z')),
        ('"x" trailing;type=a/b', (None, "x", "a/b")),
        ("1;type=text/plain; charset=utf-8", (None, "1", "text/plain; charset=utf-8")),
        ("1; foo=bar; TYPE=text/css", (None, "1", "text/css")),
        ('{};type=application/json;filename="a;b.json"', ("a;b.json", "{}", "application/json")),
        ("1;type=text/plain;x=1;filename=q;y", ("q", "1", "text/plain;x=1")),
        ("1;;;", (None, "1")),
        ("", (None, "")),
        ('""', (None, "")),
        ("type=text/plain", (None, "type=text/plain")),
        ('"' + "\\" * 61, (None, '"' + "\\" * 61)),
    ],
)
def test_a_form_field_is_read_as_curl_reads_it_hp_09(content: str, part: tuple) -> None:
    """case HP-09. Each was sent by curl 7.88, too, with the same body."""
    assert form_content(content) == part


@pytest.mark.parametrize("content", ["(x", "1;type=bad", "1;headers=X: y", "1; encoder=base64"])
def test_form_fields_of_other_kinds_are_named(content: str) -> None:
    with pytest.raises(RequestError, match="curl option -F"):
        form_content(content)


def test_postmans_export_hp_09() -> None:
    """case HP-09"""
    command = "curl --location 'http://e.com' --form 'q=\"red tea\"' -H 'X-A: 1' -H 'X-A: 2' -H 'B: 3'"
    kwargs = Request.from_curl(command).requests_kwargs
    assert kwargs["files"] == [("q", (None, "red tea"))]
    assert kwargs["headers"] == [("X-A", "1"), ("X-A", "2"), ("B", "3")]


@pytest.mark.parametrize(
    ("options", "keywords"),
    [
        ("-H 'X-A: 1' -H 'x-a: 2'", {"headers": [("X-A", "1"), ("x-a", "2")]}),
        ("-H 'Accept:' -H 'X:  ' -H 'Y;  '", {"headers": {"Accept": None, "X": None}}),
        ("-H 'Accept: a/b' -H 'accept:'", {"headers": {"Accept": "a/b"}}),
        ("-A '' -e ''", {"headers": {"User-Agent": None, "Referer": None}}),
        ("-A me -H 'user-agent: you' -r 0-1 -H 'Range: x'", {"headers": {"user-agent": "you", "Range": "x"}}),
        ("--oauth2-bearer T -H 'authorization: x'", {"headers": {"authorization": "x"}}),
        ("-b 'a=1; b=2' -b ''", {"cookies": {"a": "1", "b": "2"}}),
        ("-b 'a=1; b=2' -b c=3", {"headers": {"Cookie": "a=1; b=2;c=3"}}),
        ("-b 'a=1; a=2'", {"headers": {"Cookie": "a=1; a=2"}}),
        ("-b 'a=1;b=2;'", {"headers": {"Cookie": "a=1;b=2;"}}),
        ("-b 'f; a=1'", {"headers": {"Cookie": "f; a=1"}}),
        ("-b a=1 -H 'cookie: z=9'", {"headers": {"cookie": "z=9"}}),
        ("-d '' -d b=2", {"method": "POST", "data": "&b=2", "headers": FORM}),
        ("--json {} -d x=1", {"method": "POST", "data": "{}&x=1", "headers": {"Accept": "application/json", "Content-Type": "application/json"}}),
        ("-d x=1 --json {} -H 'content-type: a/b' -H Accept:", {"method": "POST", "data": "x=1{}", "headers": {"content-type": "a/b", "Accept": None}}),
        ("--url-query 'a=b c' --url-query '+d=%20' -d e=1", {"url": "http://e.com?a=b+c&d=%20", "method": "POST", "data": "e=1", "headers": FORM}),
        ("-G --url-query a=1 -d b=2", {"url": "http://e.com?b=2"}),
    ],
)  # fmt: skip
def test_options_meet_as_in_curl_hp_09(options: str, keywords: dict) -> None:
    """case HP-09: what curl 7.88 sends for the same line."""
    assert parse_curl(f"curl e.com {options}") == {"url": "http://e.com", "method": "GET"} | keywords


@pytest.mark.parametrize(
    ("command", "told"),
    [
        ("", "not a curl command"),
        ("wget e.com", "not a curl command"),
        ("curl", "no URL"),
        ("curl -s", "no URL"),
        ("curl e.com f.com", "two URLs"),
        ("curl e.com -H", "-H needs a value"),
        ("curl e.com -H nonsense", "no colon"),
        ("curl e.com --upload-file x", "--upload-file isn't understood"),
        ("curl e.com -T x", "-T isn't understood"),
        ("curl e.com --data=x", "--data=x isn't understood"),
        ("curl e.com -d @file", "reads a file"),
        ("curl e.com -F 'a=@file'", "reads a file"),
        ("curl e.com --data-urlencode name@file", "reads a file"),
        ("curl e.com -b jar.txt", "names a file"),
        ("curl e.com -m soon", "no number"),
        ("curl e.com -F novalue", "no '='"),
        ("curl e.com -F =v", "no name"),
        ("curl e.com --form-string novalue", "no name=value"),
        ("curl e.com -F 'a=<file'", "reads a file"),
        ("curl e.com -F a=1 -d b=2", "one body"),
        ("curl e.com -H @file", "reads a file"),
        ("curl e.com --url-query q@file", "reads a file"),
        ("curl e.com | jq .", "'| jq .'"),
        ("curl e.com > out", "something for a shell"),
        ('curl "e.com/$ID"', "something for a shell"),
        ("curl e.com/$ID", "something for a shell"),
        ("curl `cat url`", "something for a shell"),
        ("curl 'e.com", "a quote that doesn't end"),
        ('curl "https://e.com" -H ^"a: b^"', "cURL (bash)"),
    ],
)  # fmt: skip
def test_what_cannot_be_carried_over_is_named(command: str, told: str) -> None:
    with pytest.raises(RequestError) as caught:
        parse_curl(command)
    assert told in str(caught.value)


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (r"a\ b 'c d'e\'", ["a b", "c de'"]),
        ('"a\\"b\\\\\\$c\\n" $', ['a"b\\$c\\n', "$"]),
        (r"$'\x41\x4\101\e\u00e9\xc3\xa9\U0001F600\q\\'", ["A\x04A\x1b\u00e9\u00e9\U0001f600\\q\\"]),
        ("a \\\n  b\\\r\n c", ["a", "b", "c"]),
        ("'' \"\"", ["", ""]),
        (r"$'\ud83d' $'\xff'", ["\ufffd", "\ufffd"]),
        ('$"x" #', ["x", "#"]),
    ],
)
def test_words_are_unquoted_as_bash_does(command: str, words: list) -> None:
    assert split_command(command) == words
