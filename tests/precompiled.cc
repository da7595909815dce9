// SPDX-License-Identifier: BSD-2-Clause
// The program that owns the precompiled headers of the tests. Nothing runs it.
int main() {}
