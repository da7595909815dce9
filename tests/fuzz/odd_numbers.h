// SPDX-License-Identifier: BSD-2-Clause
// A mutator for formats whose headers are numbers: half of the time it puts a number that a header
// could lie with into an aligned place, mostly near the beginning; else it leaves the change to
// libFuzzer.
//
//   #include "tests/fuzz/odd_numbers.h"     // in the one file of a fuzz target
//
// Without it a field of eight bytes practically never becomes the largest number. Not for formats
// of text.
#ifndef WEFT_TESTS_FUZZ_ODD_NUMBERS_H
#define WEFT_TESTS_FUZZ_ODD_NUMBERS_H

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <random>

// Of libFuzzer; absent where a corpus is only replayed.
extern "C" size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t most) __attribute__((weak));

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t most, unsigned seed);
extern "C" size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t most, unsigned seed) {
  std::minstd_rand random(seed);
  if (size < 8 || random() % 2 == 0) return LLVMFuzzerMutate(data, size, most);
  const size_t width = random() % 2 == 0 ? 4 : 8;
  const uint64_t all = width == 4 ? UINT32_MAX : UINT64_MAX;
  const uint64_t small = random() % 64;
  const uint64_t values[] = {all - small, all / 2 - small, all / 2 + 1 + small,
                             small,       size - small,    uint64_t{1} << (random() % (8 * width))};
  const uint64_t value = values[random() % std::size(values)];
  const size_t places = (size - width) / 4 + 1;
  const size_t near = std::min<size_t>(places, 512);
  const size_t place = 4 * (random() % (random() % 3 != 0 ? near : places));
  std::memcpy(data + place, &value, width);
  return size;
}

#endif
