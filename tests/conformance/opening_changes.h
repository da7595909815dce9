// SPDX-License-Identifier: BSD-2-Clause
// The changes of an fi_info that opening.h tries: every member, with values around the one that is
// there.
//
// Example:
//     void change_one(fi_info &info, size_t which, size_t value) {
//       const opening::Change &change = opening::changes().at(which);
//       change.apply(info, value % change.values);
//     }
//
// Addresses, names, handle and nic are not among them: an application may set those as it likes.
#ifndef WEFT_TESTS_CONFORMANCE_OPENING_CHANGES_H
#define WEFT_TESTS_CONFORMANCE_OPENING_CHANGES_H

#include <rdma/fabric.h>

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

namespace weft::conformance::opening {

struct Change {
  std::string member;
  size_t values;  // how many there are
  std::function<void(fi_info &info, size_t value)> apply;
  bool of_transmits = false, of_receives = false;  // a member of tx_attr, of rx_attr
};

const std::vector<Change> &changes();

}  // namespace weft::conformance::opening

#endif
