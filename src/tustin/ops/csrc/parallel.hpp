// Tasks that do not depend on each other, on several threads, each with scratch memory of its own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>

namespace TUSTIN_LEVEL {

// Scratch memory of one thread, handed out in vector-aligned pieces.
class Arena {
 public:
  explicit Arena(size_t bytes) : begin_((char*)aligned_alloc(64, (bytes + 63) / 64 * 64)) {}
  ~Arena() { free(begin_); }
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;
  bool failed() const { return !begin_; }
  void reset() { used_ = 0; }
  template <class Real>
  Real* take(int64_t count) {
    Real* piece = (Real*)(begin_ + used_);
    used_ += (count * sizeof(Real) + 63) / 64 * 64;
    return piece;
  }

 private:
  char* begin_;
  size_t used_ = 0;
};

// Runs task(i, arena) for every i, in any order. Returns 1 if the memory was not enough, like the functions of the library.
template <class Run>
int for_each_task(int64_t tasks, int threads, size_t scratch_bytes, Run task) {
  int failed = 0;
#pragma omp parallel num_threads(threads) if (threads > 1 && tasks > 1)
  {
    Arena arena(scratch_bytes);
    if (arena.failed()) {
#pragma omp atomic write
      failed = 1;
    }
#pragma omp for schedule(dynamic)
    for (int64_t i = 0; i < tasks; ++i)
      if (!arena.failed()) task(i, arena);
  }
  return failed;
}

}  // namespace TUSTIN_LEVEL
