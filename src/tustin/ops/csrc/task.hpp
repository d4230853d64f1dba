// One batch element and one slice of channels: where its data lie, the tiles and states it works on, and the recurrence
// over one chunk of tokens, which the forward and the backward pass share.
#pragma once

#include <new>

#include "discretizations.hpp"
#include "parallel.hpp"
#include "rows.hpp"
#include "slices.hpp"

namespace TUSTIN_LEVEL {

constexpr int kChunk = TUSTIN_CHUNK;
constexpr int kMaxChannel = 12;  // vectors in the largest Discretization::Channel

// A task: its place in the arguments, and the tiles and states it works on.
template <class Real>
struct Task {
  using V = Vec<Real>;
  static constexpr int W = kLanes<Real>;

  const TustinScan& a;
  const int64_t batch, slice, first, end;
  const int N, pitch, blocks;     // pitch: N rounded up to whole registers and HalfVecs
  Real *constant_B, *constant_C;  // [blocks][N][W]
  Real *h, *h_before;             // [blocks][N][W]: the states; [N][W]: those of one block before the chunk at hand
  void* channels_of_discretization;       // Discretization::Channel[blocks][N]
  Real* reach;                    // [blocks][W]: the largest |A| of a channel; infinite in a block with an exact one
  Rows<Real> B, C;                // of the chunk at hand, where they are not constant
  Rows<Real> u, delta, z, out;    // of the block and chunk at hand
  Real *slope, *sigmoid, *gate;   // [kChunk][W]: softplus', sigmoid(z), silu(z)
  Real *tile_u, *tile_delta, *tile_z, *tile_out;  // [kChunk][W]: the rows, where they need room

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
    constant_B = arena.take<Real>(a.groups_B ? 0 : states());
    constant_C = arena.take<Real>(a.groups_C ? 0 : states());
    h = arena.take<Real>(states());
    h_before = arena.take<Real>(int64_t(N) * W);
    channels_of_discretization = arena.take<Real>(kMaxChannel * states());
    reach = arena.take<Real>(blocks * W);
    Real** const tiles[] = {&slope, &sigmoid, &gate, &tile_u, &tile_delta, &tile_z, &tile_out};
    for (Real** tile : tiles) *tile = arena.take<Real>(kChunk * W);

    for (int m = 0; m < blocks; ++m) {
      if (!a.groups_B) load_constant(a.B, m, constant_B);
      if (!a.groups_C) load_constant(a.C, m, constant_C);
    }
  }

  template <class Discretization>
  void prepare_channels() {
    using Channel = typename Discretization::Channel;
    static_assert(sizeof(Channel) <= kMaxChannel * sizeof(V));
    read_state(a.A, 0, h);  // for a moment
    for (int m = 0; m < blocks; ++m) {
      V largest{};
      for (int n = 0; n < N; ++n) {
        Real* row = at(h, m) + n * W;
        for (int i = channels(m); i < W; ++i) row[i] = -1;
        const V A = load(row), size = magnitude(A);
        const auto* c =
            new ((Channel*)channels_of_discretization + int64_t(m) * N + n) Channel(A, select(size > Real(1e-30), 1 / A, V{}));
        largest = at_least(c->exact ? splat(Real(__builtin_inf())) : size, largest);
      }
      store(reach + m * W, largest);
    }
  }
  void start_states() {
    if (a.initial_state)
      read_state(a.initial_state, batch, h);
    else
      for (int64_t i = 0; i < states(); ++i) h[i] = 0;
  }

  static size_t arena_bytes(const TustinScan& a, int64_t extra_states, int64_t extra) {
    const int64_t padded = Slices(a).channels + W;
    const int64_t reals = (4 + kMaxChannel + extra_states) * padded * a.N + padded + 7 * kChunk * W + extra;
    return size_t(reals) * sizeof(Real) + 64 * 32;
  }

  static int64_t rounded_states(int64_t N) {
    constexpr int64_t lanes = kRegisterLanes<Real> > kHalfLanes<Real> ? kRegisterLanes<Real> : kHalfLanes<Real>;
    return (N + lanes - 1) / lanes * lanes;
  }
  int64_t states() const { return int64_t(blocks) * N * W; }
  int64_t channel(int block) const { return first + int64_t(block) * W; }
  int channels(int block) const { return end - channel(block) < W ? int(end - channel(block)) : W; }
  Real* at(Real* states, int block) const { return states + int64_t(block) * N * W; }

  // Offset of (batch, channel, token) and step per token, in scan order.
  int64_t offset(const TustinTensor& t, int64_t d, int64_t k) const {
    return batch * t.stride[0] + d * t.stride[1] + (a.reverse ? a.L - 1 - k : k) * t.stride[2];
  }
  int64_t step(int64_t stride) const { return a.reverse ? -stride : stride; }

  // Where the rows lie as they are wanted there is nothing to move.
  bool in_place(const TustinTensor& t, int block) const {
    const bool convertible = sizeof(Real) == 4 && (t.dtype == TUSTIN_BFLOAT16 || t.dtype == TUSTIN_FLOAT16);
    return (t.dtype == kDtype<Real> || convertible) && t.stride[1] == 1 && channels(block) == W;
  }
  Rows<Real> rows(const TustinTensor& t, int block, int64_t k, Real* tile) const {
    if (!in_place(t, block)) return {tile, W};
    const int64_t bytes = t.dtype == kDtype<Real> ? sizeof(Real) : sizeof(BFloat16);
    return {(char*)t.data + offset(t, channel(block), k) * bytes, step(t.stride[2]), t.dtype};
  }
  Rows<Real> load_rows(const TustinTensor& t, int block, int64_t k, int tokens, Real* tile) const {
    if (!in_place(t, block))
      load_tile<Real>(t, offset(t, channel(block), k), t.stride[1], step(t.stride[2]), channels(block), tokens, tile, W);
    return rows(t, block, k, tile);
  }
  void store_rows(const TustinTensor& t, int block, int64_t k, int tokens, const Real* tile) const {
    if (!in_place(t, block))
      store_tile<Real>(t, offset(t, channel(block), k), t.stride[1], step(t.stride[2]), channels(block), tokens, tile,
                       W);
  }
  void load_constant(const TustinTensor& t, int m, Real* matrix) const {
    load_tile<Real>(t, channel(m) * t.stride[0], t.stride[0], t.stride[1], channels(m), N, at(matrix, m), W);
  }
  // The rows of B and C from token k on, which lie as `in_rows` wants them.
  void find_matrices(int64_t k) {
    if (a.groups_B) B = matrix_rows(a.B, a.groups_B, k);
    if (a.groups_C) C = matrix_rows(a.C, a.groups_C, k);
  }
  Rows<Real> matrix_rows(const TustinTensor& t, int64_t groups, int64_t k) const {
    const int64_t group = first / (a.D / groups), token = a.reverse ? a.L - 1 - k : k;
    const int64_t offset = batch * t.stride[0] + group * t.stride[1] + token * t.stride[3];
    return {(Real*)t.data + offset, step(t.stride[3])};
  }

  // A vector of a per-channel parameter; zero where it is not given.
  V parameter(const void* p, int block) const {
    return p ? load_channels((const Real*)p + channel(block), block) : V{};
  }
  // One number per channel of a block; zero in the lanes after the last.
  V load_channels(const Real* p, int block) const {
    if (channels(block) == W) return load(p);
    Real v[W] = {};
    for (int i = 0; i < channels(block); ++i) v[i] = p[i];
    return load(v);
  }
  void store_channels(Real* p, int block, V v) const {
    if (channels(block) == W) return store(p, v);
    Real lanes[W];
    store(lanes, v);
    for (int i = 0; i < channels(block); ++i) p[i] = lanes[i];
  }

  // Asks for the rows of the chunk to come: they lie too far apart for the CPU to see them coming.
  void prefetch(const TustinTensor& t, int block, int64_t k) const {
    if (k < 0 || k >= a.L || !in_place(t, block)) return;
    const Rows<Real> later = rows(t, block, k, nullptr);
    const int64_t bytes = later.step * (t.dtype == kDtype<Real> ? sizeof(Real) : sizeof(BFloat16));
    const int tokens = a.L - k < kChunk ? int(a.L - k) : kChunk;
    for (int i = 0; i < tokens; ++i) __builtin_prefetch((char*)later.first + i * bytes);
  }

  // The element-wise functions run in several short passes over the tiles: one long chain of operations per element would
  // leave the CPU waiting for results.
  void load_inputs(int m, int64_t k, int tokens, bool with_slope) {
    u = load_rows(a.u, m, k, tokens, tile_u);
    delta = load_rows(a.delta, m, k, tokens, tile_delta);
    if (a.delta_bias) {
      const V bias = parameter(a.delta_bias, m);
      each(tokens, [&](int i) { store(tile_delta + i * W, delta.get(i) + bias); });
      delta = {tile_delta, W};
    }
    if (a.delta_softplus) {
      Real* e = slope;
      each(tokens, [&](int i) { store(e + i * W, exp<Real>(-magnitude(delta.get(i)))); });
      each(tokens, [&](int i) {
        const V x = delta.get(i), e_x = load(e + i * W);
        store(tile_delta + i * W, softplus(x, e_x));
        if (with_slope) store(slope + i * W, softplus_slope(x, e_x));
      });
      delta = {tile_delta, W};
    }
    if (a.z.data) {
      z = load_rows(a.z, m, k, tokens, tile_z);
      each(tokens, [&](int i) { store(sigmoid + i * W, exp<Real>(-z.get(i))); });
      each(tokens, [&](int i) {
        const V s = 1 / (1 + load(sigmoid + i * W));
        store(sigmoid + i * W, s);
        store(gate + i * W, z.get(i) * s);
      });
    }
  }

  template <class Pass>
  static TUSTIN_INLINE void each(int tokens, Pass pass) {
    for (int i = 0; i < tokens; ++i) pass(i);
  }

  // The recurrence over one chunk; returns whether it could be fast. Looking at every step beforehand would mean to wait
  // for all of them to arrive, so it is tried, and done again in the few cases where some step was too long.
  template <class Discretization, bool constant, bool keep>
  TUSTIN_INLINE bool advance(int m, int tokens, const Real* gate, Real* from, Real* kept) const {
    if (Discretization::kHasFast && !a.careful && may_be_fast(m, V{})) {
      for (int n = 0; !keep && n < N; ++n) store(h_before + n * W, load(from + n * W));
      if (may_be_fast(m, recur<Discretization, constant, true, keep>(m, tokens, gate, from, kept))) return true;
      for (int n = 0; !keep && n < N; ++n) store(from + n * W, load(h_before + n * W));
    }
    recur<Discretization, constant, false, keep>(m, tokens, gate, from, kept);
    return false;
  }

 private:
  // Whether with steps up to `longest` every e^z is a normal number, and no channel of the block wants the exact ladder.
  bool may_be_fast(int m, V longest) const { return all(longest * load(reach + m * W) < kBound<Real>); }

  // The recurrence over one chunk, and its output y = (C·h + D u)·gate into `out`; without a gate where that is NULL.
  // Either the states at `from` are updated in place, or, with `keep`, those after each token and what the rule keeps
  // are written for the backward pass, which wants the output only for the gradient of the gate. Returns the longest steps.
  template <class Discretization, bool constant, bool fast, bool keep>
  TUSTIN_APART V recur(int m, int tokens, const Real* gate, Real* from, Real* kept) const {
    const States<Real, Discretization, constant> states(*this, m);
    const V skip = parameter(a.D_skip, m);
    const int N = this->N, next = keep ? N * W : 0;
    const bool output = !keep || a.z.data;
    V longest{};
    for (int k = 0; k < tokens; ++k) {
      const V u_k = u.get(k);
      const V delta_k = delta.get(k);
      if (fast) longest = at_least(longest, magnitude(delta_k));
      const typename Discretization::Token token(delta_k, u_k);
      const auto B = states.B_of(k);
      const auto C = states.C_of(k);
      const Real* before = from + k * next;
      Real* after = from + (k + 1) * next;
      V y{};
      for (int n = 0; n < N; ++n) {
        V note{};
        const V state = Discretization::template step<fast>(token, states.channel[n], load(before + n * W), B[n], note);
        store(after + n * W, state);
        if (keep) store(kept + k * next + n * W, note);
        if (output) y = fma(state, C[n], y);
      }
      if (!output) continue;
      if (a.D_skip) y = fma(skip, u_k, y);
      if (gate) y *= load(gate + k * W);
      out.put(k, y);
    }
    return longest;
  }

 public:
  Real* chunk_state(int64_t chunk, int m, int n) const {
    const int64_t chunks = (a.L + kChunk - 1) / kChunk;
    return (Real*)a.chunk_states + ((batch * chunks + chunk) * N + n) * a.D + channel(m);
  }

  // (batch, D, N) in memory, [blocks][N][W] here.
  void read_state(const void* state, int64_t batch, Real* to) const {
    for (int m = 0; m < blocks; ++m) {
      const Real* from = (const Real*)state + (batch * a.D + channel(m)) * N;
      for (int i = 0; i < W; i += kRegisterLanes<Real>)
        load_tile(from + int64_t(i) * N, N, 1, lanes(m, i), N, at(to, m) + i, W);
    }
  }
  void write_state(void* state, Real* from) const {
    for (int m = 0; state && m < blocks; ++m) {
      Real* to = (Real*)state + (batch * a.D + channel(m)) * N;
      for (int i = 0; i < W; i += kRegisterLanes<Real>)
        store_tile(to + int64_t(i) * N, N, 1, lanes(m, i), N, at(from, m) + i, W);
    }
  }
  // How many channels of a block lie in its register that begins at lane i.
  int lanes(int block, int i) const {
    const int left = channels(block) - i;
    return left < 0 ? 0 : left < kRegisterLanes<Real> ? left : kRegisterLanes<Real>;
  }
};

}  // namespace TUSTIN_LEVEL
