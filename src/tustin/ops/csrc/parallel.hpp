// Tasks that do not depend on each other, on several threads, each with scratch memory of its own.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#ifdef _OPENMP
#include <omp.h>
#else
#include <system_error>
#include <thread>
#include <vector>
#endif
#ifdef _WIN32
#include <malloc.h>
#endif

namespace TUSTIN_LEVEL {

#ifdef _WIN32
inline void* aligned_memory(size_t bytes) { return _aligned_malloc(bytes, 64); }
inline void free_aligned(void* memory) { _aligned_free(memory); }
#else
inline void* aligned_memory(size_t bytes) { return aligned_alloc(64, bytes); }
inline void free_aligned(void* memory) { free(memory); }
#endif

// Scratch memory of one thread, handed out in vector-aligned pieces.
class Arena {
 public:
  explicit Arena(size_t bytes) : begin_((char*)aligned_memory((bytes + 63) / 64 * 64)) {}
  ~Arena() { free_aligned(begin_); }
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

// Calls work(number, count) on `count` threads at once, this one among them; count is at most `threads`.
template <class Work>
void on_threads(int threads, Work work) {
#ifdef _OPENMP
#pragma omp parallel num_threads(threads) if (threads > 1)
  work(omp_get_thread_num(), omp_get_num_threads());
#else
  // Threads wait for their number until it is known how many the system gave.
  std::vector<std::thread> others;
  std::atomic<int> count{0};
  const auto wait_and_work = [&](int number) {
    while (!count.load(std::memory_order_acquire)) std::this_thread::yield();
    work(number, count.load(std::memory_order_relaxed));
  };
  try {
    for (int number = 1; number < threads; ++number) others.emplace_back(wait_and_work, number);
  } catch (const std::system_error&) {  // fewer, then
  }
  count.store(int(others.size()) + 1, std::memory_order_release);
  work(0, int(others.size()) + 1);
  for (std::thread& other : others) other.join();
#endif
}

// Runs run(i) for every i, on threads that have equal shares of them.
template <class Run>
void for_each(int64_t count, int threads, Run run) {
  on_threads(threads, [&](int thread, int of) {
    for (int64_t i = count * thread / of; i < count * (thread + 1) / of; ++i) run(i);
  });
}

// Runs task(i, arena) for every i, in any order, on whichever thread is free. Returns 1 if the memory was not enough,
// like the functions of the library.
template <class Run>
int for_each_task(int64_t tasks, int threads, size_t scratch_bytes, Run task) {
  std::atomic<int64_t> next{0};
  std::atomic<int> failed{0};
  on_threads(tasks > 1 ? threads : 1, [&](int, int) {
    Arena arena(scratch_bytes);
    if (arena.failed()) {
      failed = 1;
      return;
    }
    for (int64_t i; (i = next.fetch_add(1, std::memory_order_relaxed)) < tasks;) task(i, arena);
  });
  return failed;
}

}  // namespace TUSTIN_LEVEL
