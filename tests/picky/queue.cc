// SPDX-License-Identifier: BSD-2-Clause
// Completion queues: what the provider beneath tells is read whole, checked, and told with the
// contexts of the caller.
#include <algorithm>
#include <cstring>

#include "tests/picky/picky.h"

namespace weft::picky {
namespace {

constexpr size_t kBatch = 16;

size_t size_of(enum fi_cq_format format) {
  switch (format) {
    case FI_CQ_FORMAT_MSG:
      return sizeof(fi_cq_msg_entry);
    case FI_CQ_FORMAT_DATA:
      return sizeof(fi_cq_data_entry);
    case FI_CQ_FORMAT_TAGGED:
      return sizeof(fi_cq_tagged_entry);
    default:
      return sizeof(fi_cq_entry);
  }
}

// Whether it is the context of an endpoint, which errors of calls have that had completed
// (fi_cq.3).
bool is_of_an_endpoint(const Domain &domain, const void *context) {
  return std::ranges::any_of(World::all().endpoints, [&](const auto &each) {
    return each.second.domain == &domain && each.second.fid->fid.context == context;
  });
}

// Takes the call of a completion off the list. False: it is not to be told.
bool land(Queue &queue, Told &told) {
  if (told.entry.op_context == nullptr) return true;
  Domain &domain = *queue.domain;
  if (told.error && is_of_an_endpoint(domain, told.entry.op_context)) return true;
  const auto it = domain.numbers.find(told.entry.op_context);
  if (it == domain.numbers.end()) {
    violation(domain, "the provider beneath completes a call that was not made");
    return false;
  }
  const std::unique_ptr<Op> op = remove(domain, it->second);
  if (op->used_by_data || op->endpoint == nullptr) return false;
  told.entry.op_context = op->context;
  if (op->kind == Kind::kRecv && !told.error) told.entry.len += op->prefix_size;
  if (const char *wrong = check_end(domain, *op)) {
    violation(domain, "%s", wrong);
    told.error = true;
    told.entry.err = told.entry.prov_errno = FI_EINVAL;
  }
  return true;
}

// Lets remote data use the oldest receive that it may (FI_RX_CQ_DATA).
void use_receives(Queue &queue) {
  Domain &domain = *queue.domain;
  for (Told &told : queue.told) {
    if (!told.wants_receive) continue;
    const auto it = std::find_if(domain.calls.begin(), domain.calls.end(), [&](const auto &call) {
      const Op &op = *call.second;
      return may_take(op, queue) && fi_cancel(&op.endpoint->fid->fid, call.second.get()) == 0;
    });
    if (it == domain.calls.end()) return;
    Op &op = *it->second;
    op.used_by_data = true;
    told.wants_receive = false;
    told.entry.op_context = op.context;
    if (const char *wrong = check_end(domain, op)) {
      violation(domain, "%s", wrong);
      told.error = true;
      told.entry.err = told.entry.prov_errno = FI_EINVAL;
    }
    give_back(domain, op);
    ++World::all().data_receives;
  }
}

void take(Queue &queue, const fi_cq_tagged_entry &read, fi_addr_t source) {
  Told told;
  told.entry.op_context = read.op_context;
  told.entry.flags = read.flags;
  told.entry.len = read.len;
  told.entry.buf = read.buf;
  told.entry.data = read.data;
  told.entry.tag = read.tag;
  told.entry.src_addr = source;
  told.wants_receive = read.op_context == nullptr && (read.flags & FI_REMOTE_WRITE) != 0 &&
                       (read.flags & FI_REMOTE_CQ_DATA) != 0;
  if (land(queue, told)) queue.told.push_back(std::move(told));
}

bool take_error(Queue &queue) {
  Told told;
  if (queue.cq.below->readerr(queue.fid, &told.entry, 0) != 1) return false;
  told.error = true;
  if (told.entry.err_data_size != 0)
    told.err_data.assign(static_cast<const char *>(told.entry.err_data), told.entry.err_data_size);
  if (land(queue, told)) queue.told.push_back(std::move(told));
  return true;
}

void fill(Queue &queue, size_t count) {
  while (queue.told.size() < count) {
    fi_cq_tagged_entry read[kBatch];
    fi_addr_t sources[kBatch];
    const ssize_t n = queue.cq.below->readfrom(
        queue.fid, read, std::min(kBatch, count - queue.told.size()), sources);
    if (n == -FI_EAVAIL) {
      if (!take_error(queue)) break;
      continue;
    }
    if (n <= 0) break;
    for (ssize_t i = 0; i < n; ++i) take(queue, read[i], sources[i]);
  }
  use_receives(queue);
}

// With the lock held.
ssize_t tell(Queue &queue, void *buf, size_t count, fi_addr_t *sources) {
  fill(queue, std::max<size_t>(count, 1));
  size_t n = 0;
  const size_t size = size_of(queue.format);
  while (n < count && !queue.told.empty()) {
    const Told &told = queue.told.front();
    if (told.wants_receive) break;
    if (told.error) return n != 0 ? ssize_t(n) : -FI_EAVAIL;
    const fi_cq_err_entry &e = told.entry;
    const fi_cq_tagged_entry all{e.op_context, e.flags, e.len, e.buf, e.data, e.tag};
    std::memcpy(static_cast<char *>(buf) + n * size, &all, size);
    if (sources != nullptr) sources[n] = e.src_addr;
    ++n;
    queue.told.pop_front();
  }
  return n != 0 ? ssize_t(n) : -FI_EAGAIN;
}

Queue &queue_of(fid_cq *cq) {
  return World::all().queues.at(&cq->fid);
}

ssize_t readfrom(fid_cq *cq, void *buf, size_t count, fi_addr_t *sources) {
  std::lock_guard guard(World::all().lock);
  return tell(queue_of(cq), buf, count, sources);
}
ssize_t read(fid_cq *cq, void *buf, size_t count) {
  return readfrom(cq, buf, count, nullptr);
}

ssize_t readerr(fid_cq *cq, fi_cq_err_entry *out, uint64_t) {
  std::lock_guard guard(World::all().lock);
  Queue &queue = queue_of(cq);
  if (queue.told.empty() || !queue.told.front().error) return -FI_EAGAIN;
  Told told = std::move(queue.told.front());
  queue.told.pop_front();
  void *const room = out->err_data;
  const size_t size = out->err_data_size;
  queue.err_data = std::move(told.err_data);
  *out = told.entry;
  if (size != 0) {
    out->err_data = room;
    out->err_data_size = std::min(size, queue.err_data.size());
    std::memcpy(room, queue.err_data.data(), out->err_data_size);
  } else {
    out->err_data = queue.err_data.empty() ? nullptr : queue.err_data.data();
    out->err_data_size = queue.err_data.size();
  }
  return 1;
}

ssize_t sreadfrom(fid_cq *cq, void *buf, size_t count, fi_addr_t *sources, const void *cond,
                  int timeout) {
  Queue *queue;
  {
    std::lock_guard guard(World::all().lock);
    queue = &queue_of(cq);
    if (const ssize_t n = tell(*queue, buf, count, sources); n != -FI_EAGAIN) return n;
  }
  fi_cq_tagged_entry one;
  fi_addr_t source = FI_ADDR_NOTAVAIL;
  const ssize_t n = queue->cq.below->sreadfrom(cq, &one, 1, &source, cond, timeout);
  if (n != 1 && n != -FI_EAVAIL) return n;
  std::lock_guard guard(World::all().lock);
  if (n == 1) take(*queue, one, source);
  return tell(*queue, buf, count, sources);
}
ssize_t sread(fid_cq *cq, void *buf, size_t count, const void *cond, int timeout) {
  return sreadfrom(cq, buf, count, nullptr, cond, timeout);
}

int close(struct fid *fid) {
  World &world = World::all();
  std::lock_guard guard(world.lock);
  Queue &queue = world.queues.at(fid);
  auto *const cq = reinterpret_cast<fid_cq *>(fid);
  fid->ops = queue.ops.below;
  cq->ops = queue.cq.below;
  if (const int rc = fi_close(fid); rc != 0) {
    queue.ops.put(fid->ops);
    queue.cq.put(cq->ops);
    return rc;
  }
  for (const auto &[id, op] : queue.domain->calls)
    if (op->queue == &queue) op->queue = nullptr;
  world.queues.erase(fid);
  return 0;
}

}  // namespace

void adopt(fid_cq *cq, Domain &domain, enum fi_cq_format format) {
  Queue &queue = World::all().queues[&cq->fid];
  queue.domain = &domain;
  queue.fid = cq;
  queue.format = format;
  queue.ops.take(cq->fid.ops);
  queue.ops.ours.close = close;
  queue.ops.put(cq->fid.ops);
  queue.cq.take(cq->ops);
  queue.cq.ours.read = read;
  queue.cq.ours.readfrom = readfrom;
  queue.cq.ours.readerr = readerr;
  queue.cq.ours.sread = sread;
  queue.cq.ours.sreadfrom = sreadfrom;
  queue.cq.put(cq->ops);
}

}  // namespace weft::picky
