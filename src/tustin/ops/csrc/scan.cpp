// The selective scan and its gradient. Compiled once per CPU level.
//
// First B and C are brought into rows of N numbers, one per token, unless they already have that layout. Then the work is cut into tasks: one
// batch element and one slice of channels. A task walks time in chunks; for each chunk it takes the slice's channels a
// vector at a time: inputs into tiles, the recurrence over the chunk with the N states in the first-level cache, outputs
// out of the tile. Nothing of size (batch, L, D, N) ever exists: the backward pass starts from the state before each chunk,
// which the forward pass kept, and recomputes the states inside it.
//
// Walking time backwards is walking forwards with negative strides, so nothing here knows the direction. No sum depends on
// the number of threads: each is either made by one task, or of partial sums added in a fixed order.
#include "passes.hpp"

namespace TUSTIN_LEVEL {

// These are compiled in scheduled.cpp.
#define TUSTIN_ELSEWHERE(name)                                                          \
  extern template void run_task<float, name>(const TustinScan&, Arena&, int64_t, bool); \
  extern template void run_task<double, name>(const TustinScan&, Arena&, int64_t, bool);
TUSTIN_SCHEDULED(TUSTIN_ELSEWHERE)
#undef TUSTIN_ELSEWHERE

// Whether the N numbers that a per-token B or C has for a token lie side by side, as Reals; a constant one need not.
template <class Real>
bool in_rows(const TustinTensor& matrix, int64_t groups) {
  return !groups || (matrix.dtype == kDtype<Real> && matrix.stride[2] == 1);
}

// Copies such a matrix into rows, which then take its place.
template <class Real>
void bring_into_rows(const TustinScan& a, TustinTensor& matrix, int64_t groups, Real* rows) {
  const int64_t pitch = Task<Real>::rounded_states(a.N), chunks = (a.L + kChunk - 1) / kChunk;
  for_each(a.batch * groups * chunks, a.threads, [&](int64_t i) {
    const int64_t k = i % chunks * kChunk, group = i / chunks % groups, batch = i / chunks / groups;
    load_tile<Real>(matrix, batch * matrix.stride[0] + group * matrix.stride[1] + k * matrix.stride[3],
                    matrix.stride[2], matrix.stride[3], int(a.N), a.L - k < kChunk ? int(a.L - k) : kChunk,
                    rows + (i / chunks * a.L + k) * pitch, int(pitch));
  });
  matrix = {rows, kDtype<Real>, {groups * a.L * pitch, a.L * pitch, 1, pitch}};
}

// sum[i] = Σ_batch partial[batch][i]
template <class Real>
void sum_over_batch(const TustinScan& a, const void* partial, int64_t count, void* sum) {
  if (!sum) return;
  for (int64_t i = 0; i < count; ++i) ((Real*)sum)[i] = 0;
  for (int64_t b = 0; b < a.batch; ++b)
    for (int64_t i = 0; i < count; ++i) ((Real*)sum)[i] += ((const Real*)partial)[b * count + i];
}

// The gradient of a per-token B or C of one batch element and group: the sum of its slices, a chunk of tokens at a time.
template <class Real>
void sum_over_slices(const TustinScan& a, const void* partial, int64_t groups, const TustinTensor& d, int64_t index) {
  constexpr int W = kRegisterLanes<Real>;
  const Slices slices(a);
  const int64_t batch = index / groups, group = index % groups, per_group = slices.count() / groups;
  const Real* p = (const Real*)partial + (batch * slices.count() + group * per_group) * a.L * a.N;
  alignas(64) Real tile[kChunk * W];
  for (int64_t k0 = 0; k0 < a.L; k0 += kChunk)
    for (int64_t n = 0; n < a.N; n += W) {
      const int tokens = a.L - k0 < kChunk ? int(a.L - k0) : kChunk, states = a.N - n < W ? int(a.N - n) : W;
      for (Real& total : tile) total = 0;
      for (int64_t s = 0; s < per_group; ++s)
        for (int k = 0; k < tokens; ++k) {
          const Real* row = p + (s * a.L + k0 + k) * a.N + n;
          if (states == W)
            store_register(tile + k * W,
                           load_register<Register<Real>>(tile + k * W) + load_register<Register<Real>>(row));
          else
            for (int i = 0; i < states; ++i) tile[k * W + i] += row[i];
        }
      const int64_t token = a.reverse ? a.L - 1 - k0 : k0;
      store_tile<Real>(d, batch * d.stride[0] + group * d.stride[1] + n * d.stride[2] + token * d.stride[3],
                       d.stride[2], a.reverse ? -d.stride[3] : d.stride[3], states, tokens, tile, W);
    }
}

template <class Real>
using Run = void (*)(const TustinScan&, Arena&, int64_t, bool);

template <class Real>
Run<Real> discretization_runner(int discretization) {
#define TUSTIN_RUNNER(name) run_task<Real, name>,
  static constexpr Run<Real> runners[] = {TUSTIN_DISCRETIZATIONS(TUSTIN_RUNNER)};
#undef TUSTIN_RUNNER
  return runners[discretization];
}

template <class Real>
int run(TustinScan a, bool gradient) {
  const int64_t row_reals = a.batch * a.L * Task<Real>::rounded_states(a.N);
  const int64_t reals_B = in_rows<Real>(a.B, a.groups_B) ? 0 : a.groups_B * row_reals;
  const int64_t reals_C = in_rows<Real>(a.C, a.groups_C) ? 0 : a.groups_C * row_reals;
  Arena rows((reals_B + reals_C) * sizeof(Real) + 64);  // where C begins is rounded up
  if (rows.failed()) return 1;
  if (reals_B) bring_into_rows(a, a.B, a.groups_B, rows.take<Real>(reals_B));
  if (reals_C) bring_into_rows(a, a.C, a.groups_C, rows.take<Real>(reals_C));

  const int64_t tasks = a.batch * Slices(a).count();
  const Run<Real> run_one = discretization_runner<Real>(a.discretization);
  const size_t bytes = Task<Real>::arena_bytes(a, gradient ? 5 : 0, gradient ? Adjoint<Real>::extra(a) : 0);
  const int failed =
      for_each_task(tasks, a.threads, bytes, [&](int64_t i, Arena& arena) { run_one(a, arena, i, gradient); });
  if (failed || !gradient) return failed;

  const int64_t sums_B = a.groups_B * a.batch, sums_C = a.groups_C * a.batch;
  for_each(sums_B + sums_C, a.threads, [&](int64_t i) {
    if (i < sums_B)
      sum_over_slices<Real>(a, a.partial_B, a.groups_B, a.d_B, i);
    else
      sum_over_slices<Real>(a, a.partial_C, a.groups_C, a.d_C, i - sums_B);
  });
  if (!a.groups_B) sum_over_batch<Real>(a, a.partial_B, a.D * a.N, a.d_B.data);
  if (!a.groups_C) sum_over_batch<Real>(a, a.partial_C, a.D * a.N, a.d_C.data);
  sum_over_batch<Real>(a, a.partial_A, a.D * a.N, a.d_A);
  sum_over_batch<Real>(a, a.partial_D, a.D, a.d_D);
  sum_over_batch<Real>(a, a.partial_bias, a.D, a.d_delta_bias);
  return 0;
}

int run_scan(const TustinScan* a, bool gradient) {
  return a->real == TUSTIN_FLOAT64 ? run<double>(*a, gradient) : run<float>(*a, gradient);
}

}  // namespace TUSTIN_LEVEL
