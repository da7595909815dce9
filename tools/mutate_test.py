#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Tests of tools/mutants.py."""
import itertools
import unittest

from mutants import draw, is_production, mutants_of, record_of, shown, summary


def changes(text):
    """Every line that a mutant makes of a text of one line."""
    return [text[:m.start] + m.after + text[m.start + len(m.before):] for m in mutants_of(text)]


class Mutants(unittest.TestCase):
    def test_operators(self):
        self.assertEqual(changes("x = a == b;"), ["x = a != b;"])
        self.assertEqual(changes("x = a < b;"), ["x = a <= b;", "x = a >= b;"])
        self.assertEqual(changes("x = a >= b && c;"), ["x = a > b && c;", "x = a >= b || c;"])
        self.assertEqual(changes("x = a + b - c;"), ["x = a - b - c;", "x = a + b + c;"])
        self.assertEqual(changes("x += a << b | c;"), ["x -= a << b | c;", "x += a >> b | c;", "x += a << b & c;"])
        self.assertEqual(changes("++x, y--;"), ["--x, y--;", "++x, y++;"])

    def test_constants(self):
        self.assertEqual(changes("x = 0;"), ["x = 1;"])
        self.assertEqual(changes("x = 0xffu;"), ["x = 0x100u;"])
        self.assertEqual(changes("x = 1'000;"), ["x = 1001;"])
        self.assertEqual(changes("x = 0777;"), ["x = 01000;"])
        self.assertEqual(changes("x = 5ms;"), ["x = 6ms;"])
        self.assertEqual(changes("x = 0.5;"), [])
        self.assertEqual(changes("x = true;"), ["x = false;"])

    def test_conditions(self):
        self.assertEqual(changes("if (f(a)) g();"), ["if (!(f(a))) g();"])
        self.assertEqual(changes("if (auto e = f(); e.bad()) g();"), ["if (auto e = f(); !(e.bad())) g();"])
        self.assertEqual(changes("if (a != b) g();"), ["if (a == b) g();"])  # its negation is the same
        self.assertEqual(changes("if (const auto *e = f()) g();"), [])
        self.assertIn("if (!(a && b)) g();", changes("if (a && b) g();"))

    def test_what_is_no_expression(self):
        for text in ("// a == 1", "/* a\n== 1 */", 'f("a == 1 \\" + 2");', "x = '1';", 'x = R"(1 " == 2)";', "#define A (1 + 2)", "#if A == \\\n1",
                     "static_assert(sizeof(x) == 8);", "std::array<int, 4> x;", "template <int n = 3> struct A;", "void f(const T &a, T &&b);",
                     "T &&f() && {", "bool operator==(const T &) const;", "virtual void f() = 0;", "std::map<int, std::array<int, 2>> x;",
                     'warn("{} of {}", a + b);', "x = *p;", "x = &y;", "x = -y;", "[[nodiscard]] int f();", "p->x = a::b;", 'x = "a" + b;'):
            self.assertEqual(changes(text), [], text)

    def test_position(self):
        text = "int a;\n  bool b = a == a;\n"
        record = record_of("f.cc", text, mutants_of(text)[0])
        self.assertEqual(shown(record), "f.cc:2:14: == -> !=")

    def test_draw_takes_the_files_in_turn_and_repeats_itself(self):
        texts = {"a.cc": "x = 1 + 2 + 3 + 4;", "b.cc": "y = 1;", "c.cc": "z = 1 + 2;", "d.cc": "int a;"}
        drawn = list(draw(texts, "7"))
        self.assertEqual(drawn, list(draw(dict(reversed(texts.items())), "7")))
        self.assertEqual({file for file, _ in drawn[:3]}, {"a.cc", "b.cc", "c.cc"})
        self.assertEqual(len(drawn), len(set(drawn)))
        self.assertEqual(len(drawn), 7 + 1 + 3)
        self.assertNotEqual(drawn, list(draw(texts, "8")))
        alone = [mutant for _, mutant in draw({"a.cc": texts["a.cc"]}, "7")]  # other files change nothing for a file
        self.assertEqual(alone, [mutant for file, mutant in drawn if file == "a.cc"])

    def test_production(self):
        self.assertTrue(is_production("core/base/names.cc"))
        for path in ("core/a_test.cc", "core/a_fuzz.cc", "core/test_a.h", "plugins/rxm/protocol/fuzz/side.cc", "tests/a.h", "core/a.md"):
            self.assertFalse(is_production(path), path)

    def test_summary(self):
        verdicts = ["quick", "quick", "quick", "long", "survived", "same code", "does not compile"]
        records = [{"file": "a/b.cc", "line": n, "column": 1, "verdict": v} for n, v in zip(itertools.count(1), verdicts)]
        found = summary(records)
        self.assertEqual(found["folders"]["a/"], {"mutants": 5, "quick": 3, "long": 1, "survived": 1, "same code": 1, "quick/(quick+long)": 0.75})
        self.assertEqual(found["folders"]["total"], found["folders"]["a/"])
        self.assertEqual([r["line"] for r in found["survived"] + found["long"]], [5, 4])


if __name__ == "__main__":
    unittest.main()
