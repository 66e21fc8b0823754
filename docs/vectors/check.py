#!/usr/bin/env python3
"""Exact JSON in Python, and a run of the vectors beside this file. Standard library only.

An implementation of docs/exact-json.md that shares nothing with the Rust one; its use is to be read and to disagree.
"""

import hashlib
import json
import pathlib
import re
import struct
import sys

MAX_DEPTH = 64
TOKEN = re.compile(
    r'(?P<space>[ \t\n\r]+)'
    r'|(?P<string>"(?:[^"\\\x00-\x1f]|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*")'
    r"|(?P<number>-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?)"
    r"|(?P<word>true|false|null)"
    r"|(?P<mark>[{}\[\],:])"
)
SHORT = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}
ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|(.))")


class Refused(Exception):
    def __init__(self, kind, path=()):
        super().__init__(kind)
        self.kind = kind
        self.path = "".join("/" + str(s).replace("~", "~0").replace("/", "~1") for s in path)


class Value:
    """A value that passed: its tree, and its text without insignificant white space."""

    def __init__(self, node, compact):
        self.node, self.compact = node, compact
        self.canonical = canonical(node)
        self.digest = "sha256:" + hashlib.sha256(self.canonical.encode()).hexdigest()


def parse(source, gate="arguments"):
    """The value of a text or of bytes. A node is a pair of a kind and its content."""
    if isinstance(source, bytes):
        try:
            source = source.decode("utf-8")
        except UnicodeDecodeError:
            raise Refused("utf8") from None
    tokens = [t for t in tokens_of(source) if t[0] != "space"]
    problems = []
    node = read(tokens, gate, problems)
    # Only now: a text that is not JSON is that before anything else.
    if problems:
        raise problems[0]
    return Value(node, "".join(text for _, text in tokens))


def tokens_of(source):
    at = 0
    while at < len(source):
        match = TOKEN.match(source, at)
        if match is None:
            raise Refused("syntax")
        yield match.lastgroup, match.group()
        at = match.end()


def read(tokens, gate, problems):
    # Each open container is [kind, content, key]; `want` is what may stand next.
    result, stack, want = None, [], "value"

    def path():
        return [key if kind == "object" else len(content) for kind, content, key in stack]

    def put(node):
        nonlocal result
        if not stack:
            result = node
        elif stack[-1][0] == "object":
            stack[-1][1].setdefault(stack[-1][2], node)
        else:
            stack[-1][1].append(node)

    for kind, text in tokens:
        if want == "value" or (want == "value or ]" and text != "]"):
            if text in ("{", "["):
                if len(stack) == MAX_DEPTH:
                    problems.append(Refused("too-deep"))
                stack.append(["object", {}, None] if text == "{" else ["array", [], None])
                want = "key or }" if text == "{" else "value or ]"
                continue
            if kind == "string":
                put(("string", characters(text, path, problems)))
            elif kind == "number":
                if gate == "arguments" and not interoperable(text):
                    problems.append(Refused("number", path()))
                put(("number", text))
            elif kind == "word":
                put(("word", text))
            else:
                raise Refused("syntax")
            want = "comma"
        elif kind == "string" and want in ("key", "key or }"):
            key = characters(text, path, problems)
            stack[-1][2] = key
            if key in stack[-1][1]:
                problems.append(Refused("duplicate-key", path()))
            if key == "__proto__":
                problems.append(Refused("proto-key", path()))
            want = "colon"
        elif want == "colon" and text == ":":
            want = "value"
        elif want == "comma" and stack and text == ",":
            want = "key" if stack[-1][0] == "object" else "value"
        elif stack and text == ("}" if stack[-1][0] == "object" else "]") and want in ("comma", "key or }", "value or ]"):
            closed = stack.pop()
            put((closed[0], closed[1]))
            want = "comma"
        else:
            raise Refused("syntax")
    if stack or want != "comma":
        raise Refused("syntax")
    return result


def characters(text, path, problems):
    def one(match):
        unit, short = match.groups()
        return chr(int(unit, 16)) if unit else SHORT.get(short, short)

    raw = ESCAPE.sub(one, text[1:-1])
    # Escaped pairs are two surrogates now; UTF-16 joins them and finds those that have no partner.
    try:
        return raw.encode("utf-16-le", "surrogatepass").decode("utf-16-le")
    except UnicodeDecodeError:
        problems.append(Refused("lone-surrogate", path()))
        return raw


def decimal(text):
    """A number as (sign, digits, exponent), digits x 10^exponent without outer zeros. None if the exponent is huge."""
    sign, text = ("-", text[1:]) if text[0] == "-" else ("", text)
    mantissa, _, power = text.lower().partition("e")
    whole, _, fraction = mantissa.partition(".")
    digits = (whole + fraction).lstrip("0")
    if not digits:
        return "", "", 0
    short = digits.rstrip("0")
    magnitude = power.lstrip("+-").lstrip("0")
    if len(magnitude) > 17:
        return None
    power = int(magnitude or "0") * (-1 if power.startswith("-") else 1)
    return sign, short, power - len(fraction) + len(digits) - len(short)


def interoperable(text):
    value = decimal(text)
    if value is None:
        return False
    sign, digits, exponent = value
    if not digits:
        return True
    if len(digits) > 17 or not -400 < exponent < 400:
        return False
    nearest = float(f"{sign}{digits}e{exponent}")
    return nearest not in (float("inf"), float("-inf")) and decimal(repr(nearest)) == value


def print_number(text):
    """The layout of ECMAScript's Number::toString over a number's own digits."""
    value = decimal(text)
    if value is None:
        return text
    sign, digits, exponent = value
    k, n = len(digits), len(digits) + exponent
    if k == 0:
        return "0"
    if k <= n <= 21:
        return sign + digits + "0" * (n - k)
    if 0 < n <= 21:
        return sign + digits[:n] + "." + digits[n:]
    if -6 < n <= 0:
        return sign + "0." + "0" * -n + digits
    return sign + digits[0] + ("." + digits[1:] if k > 1 else "") + f"e{n - 1:+d}"


def canonical(node):
    kind, content = node
    if kind == "object":
        keys = sorted(content, key=lambda key: key.encode("utf-16-be"))
        return "{" + ",".join(canonical(("string", key)) + ":" + canonical(content[key]) for key in keys) + "}"
    if kind == "array":
        return "[" + ",".join(map(canonical, content)) + "]"
    if kind == "string":
        return json.dumps(content, ensure_ascii=False)
    return print_number(content) if kind == "number" else content


def equal(a, b):
    if a[0] != b[0]:
        return False
    kind, x, y = a[0], a[1], b[1]
    if kind == "object":
        return x.keys() == y.keys() and all(equal(x[key], y[key]) for key in x)
    if kind == "array":
        return len(x) == len(y) and all(map(equal, x, y))
    if kind == "number":
        return x == y or (decimal(x) is not None and decimal(x) == decimal(y))
    return x == y


# The vectors.


def text_of(case, name):
    text = case[name]
    return text if isinstance(text, str) else "".join(part * count for part, count in text)


def accepted(case):
    value = parse(text_of(case, "text"), case.get("gate", "arguments"))
    return [
        name
        for name, got in (("compact", value.compact), ("canonical", value.canonical), ("digest", value.digest))
        if got != text_of(case, name)
    ]


def refused(case):
    source = bytes.fromhex(case["hex"]) if "hex" in case else text_of(case, "text")
    try:
        parse(source, case.get("gate", "arguments"))
    except Refused as refusal:
        wrong = [] if refusal.kind == case["kind"] else ["kind " + refusal.kind]
        return wrong + (["path " + refusal.path] if refusal.path != case.get("path", refusal.path) else [])
    return ["passed"]


def pair(case, same):
    a, b = (parse(text_of(case, name), case.get("gate", "arguments")) for name in "ab")
    answers = {"equality": equal(a.node, b.node), "canonical": a.canonical == b.canonical, "digest": a.digest == b.digest}
    return [name for name, answer in answers.items() if answer != same]


def double(case):
    value = struct.unpack(">d", bytes.fromhex(case["bits"]))[0]
    if case["text"] is None:
        return [] if repr(value) in ("nan", "inf", "-inf") else ["is a number"]
    right = print_number(repr(value)) == case["text"] == parse(case["text"]).canonical
    return [] if right else ["printed " + print_number(repr(value))]


def main():
    checks = {
        "accepted.json": accepted,
        "refused.json": refused,
        "equal.json": lambda case: pair(case, True),
        "different.json": lambda case: pair(case, False),
        "numbers.json": double,
    }
    passed = failed = 0
    for name, check in checks.items():
        path = pathlib.Path(__file__).with_name(name)
        for case in json.loads(path.read_text("utf-8"))["cases"]:
            try:
                wrong = check(case)
            except Refused as refusal:
                wrong = ["refused: " + refusal.kind]
            passed, failed = passed + (not wrong), failed + bool(wrong)
            if wrong:
                print(f"{name}: {case['name']}: {', '.join(wrong)}")
    print(f"{passed} passed, {failed} failed")
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
