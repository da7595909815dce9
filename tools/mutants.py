# SPDX-License-Identifier: BSD-2-Clause
"""The mutants of C++ sources, for tools/mutate: text in, text out.

  texts = {"a.cc": "bool f(int x) { return x < 7; }"}
  for file, mutant in draw(texts, seed="1"):
      print(shown(record_of(file, texts[file], mutant)))  # a.cc:1:26: < -> <=
"""
import collections
import os
import random
import re

COUNTED = ("quick", "long", "survived")
TOKEN = re.compile(r"""
    (?P<comment>//(?:[^\n\\]|\\.)*|/\*.*?\*/)
  | (?P<directive>^[ \t]*\#(?:[^\n\\]|\\.)*)
  | (?P<string>(?:u8|[uUL])?(?:R"([^()\\\s]{0,16})\(.*?\)\4"|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])+'))
  | (?P<number>\.?\d(?:[eEpP][+-]|'?[\w.])*)
  | (?P<word>[A-Za-z_]\w*)
  | (?P<operator><=>|<<=|>>=|\.\.\.|->\*?|\+\+|--|&&|\|\||::|[-+*/%&|^!=<>]=|<<|>>|[^\s\w])
  """, re.X | re.S | re.M)
Token = collections.namedtuple("Token", "kind text start end")
Mutant = collections.namedtuple("Mutant", "start before after")
BINARY = {"==": ["!="], "!=": ["=="], "<": ["<=", ">="], "<=": ["<"], ">": [">=", "<="], ">=": [">"], "&&": ["||"], "||": ["&&"],
          "+": ["-"], "-": ["+"], "+=": ["-="], "-=": ["+="], "<<": [">>"], ">>": ["<<"], "&": ["|"], "|": ["&"]}
OTHER = {"++": ["--"], "--": ["++"], "true": ["false"], "false": ["true"]}
OPPOSITE = {"==", "!=", "<", ">"}  # BINARY has the opposite of these comparisons
NO_OPERAND = {"{", ";", ")", ",", "=", "const", "noexcept"}  # behind them no expression begins: `&&` before one of them is a type's
# The arguments of these are no behaviour, or only text.
ASIDE = re.compile(r"static_assert|assert|alignas|decltype|noexcept|\w*log|log_\w+|fi_log\w*|\w*LOG\w*|warn|warning|"
                   r"StrCat|StrFormat|format|printf|fprintf")
INTEGER = re.compile(r"(0[xX][\da-fA-F']+|0[bB][01']+|\d[\d']*)([uUlLzZ]*|[hms]|[mun]s)")
PAIRS = {"(": ")", "[": "]", "{": "}"}


def tokens_of(text):
    """The tokens of C++ without comments."""
    return [Token(m.lastgroup, m.group(), *m.span()) for m in TOKEN.finditer(text) if m.lastgroup != "comment"]


def closing(tokens, at):
    """The index of the bracket that closes the one at `at`, or of the last token."""
    depth = 0
    for i in range(at, len(tokens)):
        if tokens[i].kind == "operator":
            depth += (tokens[i].text in PAIRS) - (tokens[i].text in PAIRS.values())
            if depth == 0:
                return i
    return len(tokens) - 1


def closing_angle(tokens, at):
    """The index of the > that closes a list of template arguments, or None if the < at `at` opens none."""
    depth, i = 0, at
    while i < len(tokens):
        text = tokens[i].text
        if text in (";", "{", "}", ")"):
            return None
        if text in ("(", "["):
            i = closing(tokens, i)
        depth += (text == "<") - (text == ">") - 2 * (text == ">>")
        if depth <= 0:
            return i
        i += 1
    return None


def left_out(tokens):
    """The indices of tokens that stay as they are."""
    out = {i for i, token in enumerate(tokens) if token.kind in ("string", "directive")}
    for i, token in enumerate(tokens[:-1]):
        following, last = tokens[i + 1], None
        if following.text == "(" and ASIDE.fullmatch(token.text):
            last = closing(tokens, i + 1)
        elif token.kind == "word" and following.text == "<" and (token.text == "template" or token.end == following.start):
            last = closing_angle(tokens, i + 1)
        elif token.text == "=" and following.text == "0" and tokens[i - 1].text in (")", "const", "noexcept", "override"):
            last = i + 1  # pure virtual
        if last is not None:
            out.update(range(i, last + 1))
    return out


def next_integer(text):
    """A list of an integer of C++ plus one, or an empty one."""
    match = INTEGER.fullmatch(text)
    if not match:
        return []
    digits = match[1].replace("'", "").lower()
    octal = re.fullmatch("0[0-7]+", digits)
    number = int(digits, 8 if octal else 0) + 1
    return [(f"0{number:o}" if octal else f"0x{number:x}" if "x" in digits else str(number)) + match[2]]


def negated_condition(text, tokens, at):
    """The negated condition of the `if` at `at`. None if it declares something, or if another mutant is the same."""
    if tokens[at + 1].text != "(":
        return []
    first, last, top = at + 2, closing(tokens, at + 1), []
    i = first
    while i < last:
        top.append(tokens[i].text)
        i = closing(tokens, i) + 1 if tokens[i].text in PAIRS else i + 1
        if top[-1] == ";":  # an initialisation was before it
            first, top = i, []
    if not top or "=" in top or top in (["true"], ["false"]) or (OPPOSITE & set(top) and not {"&&", "||", "?"} & set(top)):
        return []
    before = text[tokens[first].start:tokens[last - 1].end]
    return [Mutant(tokens[first].start, before, f"!({before})")]


def mutants_of(text):
    """Every mutant of a source."""
    tokens, found = tokens_of(text), []
    out = left_out(tokens)
    for i, token in enumerate(tokens):
        if i in out:
            continue
        others = next_integer(token.text) if token.kind == "number" else OTHER.get(token.text, [])
        if token.text == "if":
            found += negated_condition(text, tokens, i)
        elif token.text in BINARY and 0 < i < len(tokens) - 1:
            # The formatter puts blanks around a binary operator, and none between a type and its < > & or &&.
            apart = text[token.start - 1].isspace() and text[token.end].isspace()
            if apart and "string" not in (tokens[i - 1].kind, tokens[i + 1].kind) and tokens[i + 1].text not in NO_OPERAND:
                others = BINARY[token.text]
        found += [Mutant(token.start, token.text, other) for other in others]
    return found


def record_of(file, text, mutant):
    """A mutant as it stands in the results, without a verdict."""
    return {"file": file, "line": text.count("\n", 0, mutant.start) + 1, "column": mutant.start - text.rfind("\n", 0, mutant.start),
            "before": mutant.before, "after": mutant.after}


def shown(record):
    before, after = (" ".join(record[key].split()) for key in ("before", "after"))
    what = f"if ({before}) -> if (!(...))" if after == f"!({before})" else f"{before} -> {after}"
    return f"{record['file']}:{record['line']}:{record['column']}: {what}"


def draw(texts, seed):
    """Yields (file, mutant), from each file in turn, in an order that the seed decides."""
    left = {file: mutants_of(texts[file]) for file in sorted(texts)}
    for file, mutants in left.items():
        random.Random(f"{seed}:{file}").shuffle(mutants)
    files = list(left)
    random.Random(str(seed)).shuffle(files)
    while any(left.values()):
        yield from [(file, left[file].pop()) for file in files if left[file]]


def is_production(path):
    *folders, name = path.split("/")
    return name.endswith((".cc", ".h")) and not name.endswith(("_test.cc", "_fuzz.cc")) and not name.startswith(("test_", "fuzz_", "simulation", "stock_simulation")) \
        and not {"fuzz", "tests", "bench", "examples"} & set(folders)


def summary(records):
    """Figures for each folder and in total, and the mutants that no quick test killed."""
    folders = {}
    for record in records:
        for folder in (os.path.dirname(record["file"]) + "/", "total"):
            row = folders.setdefault(folder, dict.fromkeys(("mutants", *COUNTED, "same code", "quick/(quick+long)"), 0))
            if record["verdict"] in row:
                row[record["verdict"]] += 1
                row["mutants"] += record["verdict"] in COUNTED
    for row in folders.values():
        killed = row["quick"] + row["long"]
        row["quick/(quick+long)"] = round(row["quick"] / killed, 3) if killed else None
    order = sorted(records, key=lambda r: (r["file"], r["line"], r["column"]))
    return {"folders": dict(sorted(folders.items(), key=lambda item: (item[0] == "total", item[0]))),
            **{verdict: [r for r in order if r["verdict"] == verdict] for verdict in ("survived", "long")}}
