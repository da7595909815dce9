// SPDX-License-Identifier: BSD-2-Clause
#include "tools/stats/segment.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/stat.h>
#include <unistd.h>
#include <weft/abandoned.h>
#include <weft/printable.h>
#include <weft/runtime_dir.h>
#include <weft/sdk/progress/unique_fd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <map>

#include "formats/profile.h"

namespace weft::stats {
namespace fs = std::filesystem;
namespace {

using namespace profile;

// Limits beyond all valid segments, so that a damaged one cannot ask for more memory.
constexpr uint32_t kMaxTypes = 64, kMaxFields = 4096;
constexpr uint32_t kMaxRecord = 1 << 20;
constexpr uint64_t kMaxSegment = uint64_t{1} << 32;
constexpr int kTries = 100;

template <size_t kSize>
std::string text(const char (&from)[kSize]) {
  return printable({from, strnlen(from, kSize)});
}

size_t width(uint32_t type) {
  return type == kU32 ? 4 : type == kU64 ? 8 : 1;
}

uint64_t number_at(const Field &field, const std::vector<char> &record, size_t index) {
  const char *at = record.data() + field.offset + index * width(field.type);
  if (field.type == kU32) {
    uint32_t value;
    std::memcpy(&value, at, sizeof value);
    return value;
  }
  uint64_t value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

class Reader {
 public:
  explicit Reader(const Source &source) : source_(source) {}

  Result<Snapshot> read() {
    if (!get(0, head_) || std::memcmp(head_.magic, kMagic, sizeof kMagic) != 0)
      return fail(FI_EINVAL, "this is no segment of the hook profile");
    if (head_.version != kVersion)
      return fail(FI_ENOSYS,
                  "version %u of the segment is not known here (%u is): use the weft "
                  "of that program",
                  head_.version, kVersion);
    WEFT_CHECK(read_schemas());
    Snapshot snapshot;
    for (int i = 0; i < kTries; ++i) {
      uint64_t before = 0;
      if (!get(offsetof(Header, structure), before)) return ends_early();
      if ((before & 1) != 0) {
        sched_yield();
        continue;
      }
      snapshot = Snapshot{};
      WEFT_CHECK(read_records(snapshot));
      uint64_t after = 0;
      if (!get(offsetof(Header, structure), after)) return ends_early();
      if (before == after) return snapshot;
    }
    // Objects come and go all the time: the last reading is used.
    if (snapshot.pid == 0) WEFT_CHECK(read_records(snapshot));
    snapshot.torn = true;
    return snapshot;
  }

 private:
  template <class T>
  bool get(uint64_t offset, T &to) const {
    return source_(offset, &to, sizeof to);
  }
  static tl::unexpected<Error> ends_early() {
    return fail(FI_EINVAL, "the segment ends before what its header says is there");
  }

  Result<void> read_schemas() {
    if (head_.type_count > kMaxTypes || head_.field_count > kMaxFields ||
        head_.type_size < sizeof(TypeEntry) || head_.field_size < sizeof(FieldEntry) ||
        head_.types > kMaxSegment || head_.fields > kMaxSegment)
      return fail(FI_EINVAL, "the segment's header is damaged");
    for (uint32_t i = 0; i < head_.type_count; ++i) {
      TypeEntry entry;
      if (!get(head_.types + uint64_t{i} * head_.type_size, entry)) return ends_early();
      auto schema = std::make_shared<Schema>();
      schema->name = text(entry.name);
      schema->help = text(entry.help);
      schema->record_size = entry.record_size;
      if (entry.first_field > head_.field_count ||
          entry.field_count > head_.field_count - entry.first_field ||
          entry.record_size < sizeof(Record) || entry.record_size > kMaxRecord)
        return fail(FI_EINVAL, "type %u of the segment is damaged", i);
      // Fields do not overlap, so together they take at most the size of the record.
      uint64_t left = entry.record_size - sizeof(Record);
      for (uint32_t f = 0; f < entry.field_count; ++f) {
        FieldEntry field;
        if (!get(head_.fields + uint64_t{entry.first_field + f} * head_.field_size, field))
          return ends_early();
        if (field.kind < kLabel || field.kind > kHistogram || field.type < kU32 ||
            field.type > kText)
          continue;  // of a newer writer
        const bool fits = field.offset >= sizeof(Record) && field.offset <= entry.record_size &&
                          field.count <= (entry.record_size - field.offset) / width(field.type);
        const bool whole = field.kind == kLabel || field.type != kText;
        const uint64_t taken = fits ? field.count * width(field.type) : 0;
        if (!fits || !whole || field.count == 0 || field.sub_bits > 16 || taken > left)
          return fail(FI_EINVAL, "field %u of type %u of the segment is damaged", f, i);
        left -= taken;
        Field &out = schema->fields.emplace_back();
        out = {text(field.name), text(field.unit), text(field.help), field.kind, field.type,
               field.offset,     field.count,      field.sub_bits,   {}};
        if (field.sum > 0 && field.sum <= entry.field_count) {
          FieldEntry sum;
          if (!get(head_.fields + uint64_t{entry.first_field + field.sum - 1} * head_.field_size,
                   sum))
            return ends_early();
          out.sum = text(sum.name);
        }
      }
      schemas_.push_back(std::move(schema));
    }
    return {};
  }

  Result<void> read_records(Snapshot &snapshot) {
    if (!get(0, head_)) return ends_early();
    snapshot.pid = head_.pid;
    snapshot.program = text(head_.program);
    snapshot.opened_ns = head_.opened_ns;
    snapshot.lost = head_.lost;
    if (head_.used > kMaxSegment || head_.records > head_.used)
      return fail(FI_EINVAL, "the segment's header is damaged");
    for (uint64_t at = head_.records; at < head_.used;) {
      Record record;
      if (!get(at, record)) return ends_early();
      if (record.size < sizeof(Record) || record.size > kMaxRecord || record.size % 8 != 0)
        return fail(FI_EINVAL, "the record at %llu of the segment is damaged",
                    static_cast<unsigned long long>(at));
      if (record.live != 0 && record.type < schemas_.size()) {
        const std::shared_ptr<const Schema> &schema = schemas_[record.type];
        if (schema->record_size > record.size)
          return fail(FI_EINVAL, "the record at %llu of the segment is damaged",
                      static_cast<unsigned long long>(at));
        std::vector<char> bytes(schema->record_size);
        if (!copy(at, bytes, snapshot)) return ends_early();
        snapshot.rows.push_back(row(schema, bytes));
      }
      at += record.size;
    }
    snapshot.rows = merged(std::move(snapshot.rows), {});
    return {};
  }

  // Copies a record as of one moment; after kTries the snapshot is torn.
  bool copy(uint64_t at, std::vector<char> &bytes, Snapshot &snapshot) const {
    const uint64_t place = at + offsetof(Record, sequence);
    for (int i = 0; i < kTries; ++i) {
      uint32_t before = 0, after = 0;
      if (!get(place, before) || !source_(at, bytes.data(), bytes.size()) || !get(place, after))
        return false;
      if (before == after && (before & 1) == 0) return true;
    }
    snapshot.torn = true;
    return true;
  }

  static Row row(const std::shared_ptr<const Schema> &schema, const std::vector<char> &bytes) {
    Row row{schema, {}, {}, {}};
    for (const Field &field : schema->fields) {
      if (field.kind == kLabel && field.type == kText) {
        const char *at = bytes.data() + field.offset;
        row.labels.push_back({field.name, printable({at, strnlen(at, field.count)}), false});
      } else if (field.kind == kLabel) {
        row.labels.push_back({field.name, std::to_string(number_at(field, bytes, 0)), true});
      } else if (field.kind == kHistogram) {
        std::vector<uint64_t> buckets(field.count);
        for (size_t i = 0; i < buckets.size(); ++i) buckets[i] = number_at(field, bytes, i);
        row.histograms.emplace_back(&field, std::move(buckets));
      } else {
        row.values.emplace_back(&field, number_at(field, bytes, 0));
      }
    }
    return row;
  }

  const Source &source_;
  Header head_{};
  std::vector<std::shared_ptr<const Schema>> schemas_;
};

class File {
 public:
  explicit File(const fs::path &path)
      : fd_(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK)) {}
  ~File() {
    if (fd_ >= 0) close(fd_);
  }
  File(const File &) = delete;
  File &operator=(const File &) = delete;
  int fd() const { return fd_; }
  bool is_plain() const {
    struct stat found = {};
    return fd_ >= 0 && fstat(fd_, &found) == 0 && S_ISREG(found.st_mode);
  }

 private:
  const int fd_;
};

}  // namespace

std::string Row::label(std::string_view name) const {
  for (const Label &one : labels) {
    if (one.name == name) return one.text;
  }
  return "";
}

std::optional<uint64_t> Row::value(std::string_view name) const {
  for (const auto &[field, number] : values) {
    if (field->name == name) return number;
  }
  return {};
}

const std::pair<const Field *, std::vector<uint64_t>> *Row::histogram(std::string_view name) const {
  for (const auto &one : histograms) {
    if (one.first->name == name) return &one;
  }
  return nullptr;
}

void Row::add(const Row &other) {
  for (size_t i = 0; i < values.size() && i < other.values.size(); ++i)
    values[i].second += other.values[i].second;
  for (size_t i = 0; i < histograms.size() && i < other.histograms.size(); ++i) {
    std::vector<uint64_t> &mine = histograms[i].second;
    const std::vector<uint64_t> &theirs = other.histograms[i].second;
    for (size_t b = 0; b < mine.size() && b < theirs.size(); ++b) mine[b] += theirs[b];
  }
}

void Row::subtract(const Row &earlier) {
  const auto less = [](uint64_t &now, uint64_t before) { now = now > before ? now - before : 0; };
  for (size_t i = 0; i < values.size() && i < earlier.values.size(); ++i) {
    if (values[i].first->kind == kCounter) less(values[i].second, earlier.values[i].second);
  }
  for (size_t i = 0; i < histograms.size() && i < earlier.histograms.size(); ++i) {
    std::vector<uint64_t> &mine = histograms[i].second;
    const std::vector<uint64_t> &theirs = earlier.histograms[i].second;
    for (size_t b = 0; b < mine.size() && b < theirs.size(); ++b) less(mine[b], theirs[b]);
  }
}

Result<Snapshot> read_segment(const Source &source) {
  return Reader(source).read();
}

Result<Snapshot> read_segment(const fs::path &path) {
  const File file(path);
  if (!file.is_plain())
    return fail(FI_ENOENT, "%s: %s", path.c_str(),
                file.fd() < 0 ? strerror(errno) : "this is no plain file");
  // Reads, and does not map: a mapped file that shrinks causes a SIGBUS.
  const Source source = [&](uint64_t offset, void *to, size_t size) {
    return pread(file.fd(), to, size, static_cast<off_t>(offset)) == static_cast<ssize_t>(size);
  };
  Result<Snapshot> snapshot = read_segment(source);
  if (!snapshot)
    return fail(snapshot.error().code, "%s: %s", path.c_str(), snapshot.error().text.c_str());
  return snapshot;
}

std::vector<fs::path> segments(const fs::path &folder) {
  std::map<uint64_t, fs::path> found;
  const sdk::UniqueFd folder_fd(open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  std::error_code failed;
  for (fs::directory_iterator at(folder, failed), end; !failed && at != end; at.increment(failed)) {
    const fs::path path = at->path();
    const std::string name = path.filename();
    const size_t dot = name.find('.');
    uint64_t pid = 0;
    const auto [rest, error] = std::from_chars(name.data(), name.data() + name.size(), pid);
    if (error != std::errc() || rest != name.data() + dot) continue;
    const std::string_view suffix = std::string_view(name).substr(dot);
    if (suffix != ".profile") continue;
    // The process holds the lock as long as it lives. The PID alone may be another process's by
    // now.
    if (!remove_abandoned(folder_fd.get(), name.c_str(), [](int) { return true; }))
      found.emplace(pid, path);
  }
  std::vector<fs::path> paths;
  for (auto &[pid, path] : found) paths.push_back(std::move(path));
  return paths;
}

Result<std::vector<Snapshot>> snapshots_of(uint64_t pid) {
  WEFT_TRY(const std::string folder, runtime_directory());
  std::vector<Snapshot> snapshots;
  for (const fs::path &path : segments(folder)) {
    if (pid != 0 && path.stem() != std::to_string(pid)) continue;
    Result<Snapshot> snapshot = read_segment(path);
    if (snapshot) {
      snapshots.push_back(*std::move(snapshot));
    } else if (pid != 0) {
      return tl::unexpected<Error>(snapshot.error());
    } else if (snapshot.error().code != FI_ENOENT) {  // the process may have just ended
      std::fprintf(stderr, "weft: %s\n", printable(snapshot.error().text).c_str());
    }
  }
  if (pid != 0 && snapshots.empty())
    return fail(FI_ENOENT,
                "process %llu counts nothing (in %s): start it with FI_HOOK=profile, or `weft hook "
                "attach %llu profile`",
                static_cast<unsigned long long>(pid), folder.c_str(),
                static_cast<unsigned long long>(pid));
  return snapshots;
}

std::vector<Row> merged(std::vector<Row> rows, const std::vector<std::string> &drop) {
  std::vector<Row> sums;
  std::map<std::pair<std::string, std::string>, size_t> places;
  for (Row &row : rows) {
    std::erase_if(row.labels, [&](const Label &label) {
      return std::find(drop.begin(), drop.end(), label.name) != drop.end();
    });
    std::string key;
    for (const Label &label : row.labels) key += label.text + '\0';
    const auto [place, is_new] = places.try_emplace({row.schema->name, key}, sums.size());
    if (is_new) {
      sums.push_back(std::move(row));
    } else {
      sums[place->second].add(row);
    }
  }
  return sums;
}

uint64_t total(const std::vector<uint64_t> &buckets) {
  uint64_t sum = 0;
  for (const uint64_t one : buckets) sum += one;
  return sum;
}

double quantile(const Field &field, const std::vector<uint64_t> &buckets, double part) {
  const uint64_t all = total(buckets);
  const double wanted = part * static_cast<double>(all);
  uint64_t seen = 0;
  for (uint32_t i = 0; i < buckets.size(); ++i) {
    seen += buckets[i];
    if (buckets[i] == 0 || static_cast<double>(seen) < wanted) continue;
    const auto start = static_cast<double>(bucket_start(i, field.sub_bits));
    const auto next = static_cast<double>(bucket_start(i + 1, field.sub_bits));
    return start + (next - start - 1) / 2;
  }
  return 0;
}

}  // namespace weft::stats
