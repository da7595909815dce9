// SPDX-License-Identifier: BSD-2-Clause
// What a library has that makes devices inside of a test process. WEFT_TEST_DEVICES names it; the
// programs of the conformance suite open it before their first test, and ask it after each one.
//
// Example:
//    // The devices are there as long as the library is.
//    extern "C" const char *weft_test_devices_trouble() { return ""; }
//
// tests/verbs/inside.cc is one. Not for tests that change the devices: tests/verbs/network.h.
#ifndef WEFT_TESTS_CONFORMANCE_DEVICES_H
#define WEFT_TESTS_CONFORMANCE_DEVICES_H

// What the last test left behind, or did wrong, in words; empty where all is well. Valid until the
// next call.
extern "C" __attribute__((visibility("default"))) const char *weft_test_devices_trouble();

#endif
