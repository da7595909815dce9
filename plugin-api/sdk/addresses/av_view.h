// SPDX-License-Identifier: BSD-2-Clause
// The views of an address vector (av.h, Av::open_view).
//
// Example:
//    #include <algorithm>
//    // Of the lanes that a vector is seen from.
//    size_t lanes(const std::vector<Av *> &views) {
//      return size_t(std::ranges::count_if(views, [](Av *view) { return view->count() != 0; }));
//    }
//
// Locks: the vector's engine, then that of a lane, then `mutex`. What the vector has changes with
// the first and the last of them held, so that a view may read it with its lane's lock and the
// mutex.
#ifndef WEFT_SDK_ADDRESSES_AV_VIEW_H
#define WEFT_SDK_ADDRESSES_AV_VIEW_H

#include <weft/sdk/addresses/av.h>

#include <mutex>
#include <vector>

namespace weft::sdk {

struct Av::Views {
  std::mutex mutex;
  std::vector<Av *> list;
};

}  // namespace weft::sdk

#endif
