// One batch element and one slice of channels: where its data lie, the tiles and states it works on, and the recurrence
// over one chunk of tokens, which the forward and the backward pass share.
#pragma once

#include <cstdlib>
#include <new>

#include "methods.hpp"
#include "scan.h"
#include "slices.hpp"
#include "tiles.hpp"

namespace TUSTIN_LEVEL {

constexpr int kChunk = TUSTIN_CHUNK;
constexpr int kMaxChannel = 6;  // vectors in the largest Method::Channel

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

template <class Real>
struct Task;

// B or C of one token: one number per state, the same for all channels; or, constant in time, one per state and channel.
template <class Real, bool constant>
struct Entries;
template <class Real>
struct Entries<Real, false> {
  const Real* row;
  TUSTIN_INLINE Real operator[](int n) const { return row[n]; }
};
template <class Real>
struct Entries<Real, true> {
  const Real* row;
  bool per_token;
  TUSTIN_INLINE Vec<Real> operator[](int n) const { return per_token ? splat(row[n]) : load(row + n * kLanes<Real>); }
};

// The states of one block of channels, with everything the inner loops read at hand.
template <class Real, class Method, bool constant>
struct States {
  const typename Method::Channel* channel;
  const Real *B, *C;
  const int64_t step_B, step_C;

  States(const Task<Real>& t, int m)
      : channel((const typename Method::Channel*)t.channels_of_method + int64_t(m) * t.N),
        B(t.a.groups_B ? t.B : t.at(t.B, m)),
        C(t.a.groups_C ? t.C : t.at(t.C, m)),
        step_B(t.a.groups_B ? t.pitch : 0),
        step_C(t.a.groups_C ? t.pitch : 0) {}
  Entries<Real, constant> B_of(int k) const { return entries(B + k * step_B, step_B); }
  Entries<Real, constant> C_of(int k) const { return entries(C + k * step_C, step_C); }

 private:
  static Entries<Real, constant> entries(const Real* row, [[maybe_unused]] int64_t step) {
    if constexpr (constant)
      return {row, step != 0};
    else
      return {row};
  }
};

// A task: its place in the arguments, and the tiles and states it works on.
template <class Real>
struct Task {
  using V = Vec<Real>;
  static constexpr int W = kLanes<Real>;

  const TustinScan& a;
  const int64_t batch, slice, first, end;
  const int N, pitch, blocks;  // pitch: N rounded up to whole registers
  Real *B, *C;                 // per token [kChunk][pitch], or constant [blocks][N][W]
  Real* h;                     // [blocks][N][W]
  void* channels_of_method;    // Method::Channel[blocks][N]
  Real* reach;                 // [blocks][W]: the largest |A| of a channel; infinite in a block with an exact one
  Real *u, *delta, *slope, *z, *gate, *out;  // [kChunk][W]; slope is softplus', gate is sigmoid(z)

  Task(const TustinScan& a, Arena& arena, int64_t index)
      : a(a),
        batch(index / Slices(a).count()),
        slice(index % Slices(a).count()),
        first(Slices(a).first(slice)),
        end(Slices(a).end(slice)),
        N(int(a.N)),
        pitch(int(rounded_states(a.N))),
        blocks(int((end - first + W - 1) / W)) {
    arena.reset();
    B = arena.take<Real>(input_matrix_size());
    C = arena.take<Real>(input_matrix_size());
    h = arena.take<Real>(states());
    channels_of_method = arena.take<Real>(kMaxChannel * states());
    reach = arena.take<Real>(blocks * W);
    u = arena.take<Real>(kChunk * W);
    delta = arena.take<Real>(kChunk * W);
    slope = arena.take<Real>(kChunk * W);
    z = arena.take<Real>(kChunk * W);
    gate = arena.take<Real>(kChunk * W);
    out = arena.take<Real>(kChunk * W);

    for (int m = 0; m < blocks; ++m) {
      if (!a.groups_B) load_constant(a.B, m, B);
      if (!a.groups_C) load_constant(a.C, m, C);
      for (int n = 0; n < N; ++n)
        for (int i = 0; i < W; ++i) {
          const int64_t d = channel(m) + i;
          const Real* initial = (const Real*)a.initial_state;
          at(h, m)[n * W + i] = initial && d < end ? initial[(batch * a.D + d) * N + n] : Real(0);
        }
    }
  }

  template <class Method>
  void prepare_channels() {
    using Channel = typename Method::Channel;
    static_assert(sizeof(Channel) <= kMaxChannel * sizeof(V));
    for (int m = 0; m < blocks; ++m) {
      V largest{};
      for (int n = 0; n < N; ++n) {
        const V A = partial((const Real*)a.A + channel(m) * N + n, N, m, Real(-1)), size = magnitude(A);
        const auto* c =
            new ((Channel*)channels_of_method + int64_t(m) * N + n) Channel(A, select(size > Real(1e-30), 1 / A, V{}));
        largest = at_least(c->exact ? splat(Real(__builtin_inf())) : size, largest);
      }
      store(reach + m * W, largest);
    }
  }

  static size_t arena_bytes(const TustinScan& a, int64_t extra_states, int64_t extra) {
    const int64_t padded = Slices(a).channels + W, pitch = rounded_states(a.N);
    const int64_t matrix = padded * a.N > kChunk * pitch ? padded * a.N : kChunk * pitch;
    const int64_t reals =
        2 * matrix + (1 + kMaxChannel + extra_states) * padded * a.N + padded + 6 * kChunk * W + extra;
    return size_t(reals) * sizeof(Real) + 64 * 32;
  }

  static int64_t rounded_states(int64_t N) {
    constexpr int64_t lanes = kRegisterLanes<Real>;
    return (N + lanes - 1) / lanes * lanes;
  }
  int64_t states() const { return int64_t(blocks) * N * W; }
  int64_t input_matrix_size() const { return states() > kChunk * pitch ? states() : kChunk * pitch; }
  int64_t channel(int block) const { return first + int64_t(block) * W; }
  int channels(int block) const { return end - channel(block) < W ? int(end - channel(block)) : W; }
  Real* at(Real* states, int block) const { return states + int64_t(block) * N * W; }

  // Offset of (batch, channel, token) and step per token, in scan order.
  int64_t offset(const TustinTensor& t, int64_t d, int64_t k) const {
    return batch * t.stride[0] + d * t.stride[1] + (a.reverse ? a.L - 1 - k : k) * t.stride[2];
  }
  int64_t step(int64_t stride) const { return a.reverse ? -stride : stride; }

  void load_channels(const TustinTensor& t, int block, int64_t k, int tokens, Real* tile) const {
    load_tile<Real>(t, offset(t, channel(block), k), t.stride[1], step(t.stride[2]), channels(block), tokens, tile, W);
  }
  void store_channels(const TustinTensor& t, int block, int64_t k, int tokens, const Real* tile) const {
    store_tile<Real>(t, offset(t, channel(block), k), t.stride[1], step(t.stride[2]), channels(block), tokens, tile, W);
  }
  void load_constant(const TustinTensor& t, int m, Real* matrix) const {
    load_tile<Real>(t, channel(m) * t.stride[0], t.stride[0], t.stride[1], channels(m), N, at(matrix, m), W);
  }
  void load_per_token(const TustinTensor& t, int64_t groups, int64_t k, int tokens, Real* tile) const {
    const int64_t group = first / (a.D / groups), token = a.reverse ? a.L - 1 - k : k;
    load_tile<Real>(t, batch * t.stride[0] + group * t.stride[1] + token * t.stride[3], t.stride[2], step(t.stride[3]),
                    N, tokens, tile, pitch);
  }
  void load_matrices(int64_t k, int tokens) const {
    if (a.groups_B) load_per_token(a.B, a.groups_B, k, tokens, B);
    if (a.groups_C) load_per_token(a.C, a.groups_C, k, tokens, C);
  }

  // A vector of a per-channel parameter; zero where it is not given.
  V parameter(const void* p, int block) const {
    return p ? partial((const Real*)p + channel(block), 1, block, Real(0)) : V{};
  }
  // One number per channel of a block, `step` apart; `beyond` in the lanes after the last.
  V partial(const Real* p, int64_t step, int block, Real beyond) const {
    Real v[W];
    for (int i = 0; i < W; ++i) v[i] = i < channels(block) ? p[i * step] : beyond;
    return load(v);
  }

  // The element-wise functions run in several short passes over the tiles: one long chain of operations per element would
  // leave the CPU waiting for results.
  void load_inputs(int m, int64_t k, int tokens, bool with_slope) const {
    load_channels(a.u, m, k, tokens, u);
    load_channels(a.delta, m, k, tokens, delta);
    if (a.delta_bias) {
      const V bias = parameter(a.delta_bias, m);
      each(tokens, [&](int i) { store(delta + i, load(delta + i) + bias); });
    }
    if (a.delta_softplus) {
      Real* e = slope;
      each(tokens, [&](int i) { store(e + i, exp<Real>(-magnitude(load(delta + i)))); });
      each(tokens, [&](int i) {
        const V x = load(delta + i), e_x = load(e + i);
        store(delta + i, softplus(x, e_x));
        if (with_slope) store(slope + i, softplus_slope(x, e_x));
      });
    }
    if (a.z.data) {
      load_channels(a.z, m, k, tokens, z);
      each(tokens, [&](int i) { store(gate + i, exp<Real>(-load(z + i))); });
      each(tokens, [&](int i) { store(gate + i, 1 / (1 + load(gate + i))); });
    }
  }

  template <class Pass>
  static TUSTIN_INLINE void each(int tokens, Pass pass) {
    for (int i = 0; i < tokens * W; i += W) pass(i);
  }

  // Whether every e^z of the loaded chunk is a normal number, and no channel of the block wants the exact ladder.
  bool may_be_fast(int m, int tokens) const {
    V largest{};
    for (int k = 0; k < tokens; ++k) largest = at_least(magnitude(load(delta + k * W)), largest);
    Real z[W];
    store(z, largest * load(reach + m * W));
    bool normal = true;
    for (const Real lane : z) normal &= lane < Constants<Real>::kMaxExponent - 1;
    return normal;
  }

  // The recurrence over one chunk, y = Σ C h into out. Either the states at `from` are updated in place, or, where there
  // is room for what the backward pass wants to know, those after each token and what the method keeps are written there.
  template <class Method, bool constant, bool fast>
  TUSTIN_INLINE void recur(int m, int tokens, Real* from, Real* kept) const {
    const States<Real, Method, constant> states(*this, m);
    const int N = this->N, next = kept ? N * W : 0;
    for (int k = 0; k < tokens; ++k) {
      const typename Method::Token token(load(delta + k * W), load(u + k * W));
      const auto B = states.B_of(k);
      const auto C = states.C_of(k);
      const Real* before = from + k * next;
      Real* after = from + (k + 1) * next;
      V y{};
      for (int n = 0; n < N; ++n) {
        V keep{};
        const V state = Method::template step<fast>(token, states.channel[n], load(before + n * W), B[n], keep);
        store(after + n * W, state);
        if (kept) store(kept + k * next + n * W, keep);
        y += state * C[n];
      }
      store(out + k * W, y);
    }
  }

  void add_skip(int m, int tokens) const {
    if (!a.D_skip) return;
    const V skip = parameter(a.D_skip, m);
    each(tokens, [&](int i) { store(out + i, load(out + i) + skip * load(u + i)); });
  }

  Real* chunk_state(int64_t chunk, int m, int n) const {
    const int64_t chunks = (a.L + kChunk - 1) / kChunk;
    return (Real*)a.chunk_states + ((batch * chunks + chunk) * N + n) * a.D + channel(m);
  }

  void write_state(void* state, const Real* from) const {
    for (int m = 0; state && m < blocks; ++m)
      for (int i = 0; i < channels(m); ++i)
        for (int n = 0; n < N; ++n)
          ((Real*)state)[(batch * a.D + channel(m) + i) * N + n] = at((Real*)from, m)[n * W + i];
  }
};

}  // namespace TUSTIN_LEVEL
