// SPDX-License-Identifier: BSD-2-Clause
// The headers that most tests include, compiled once for all of them (weft_precompile_test in
// cmake/WeftTest.cmake). A test still includes what it uses.
#ifndef WEFT_TESTS_PRECOMPILED_H
#define WEFT_TESTS_PRECOMPILED_H

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <set>
#include <sstream>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#endif
