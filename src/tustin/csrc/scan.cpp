// The selective scan and its gradient. Compiled once per CPU level.
//
// The work is cut into tasks: one batch element and one slice of channels. A task walks time in chunks; for each chunk it
// brings B and C into dense tiles once, then takes the slice's channels a vector at a time: inputs into tiles, the
// recurrence over the chunk with the N states in the first-level cache, outputs out of the tile. Nothing of size
// (batch, L, D, N) ever exists: the backward pass starts from the state before each chunk, which the forward pass kept,
// and recomputes the states inside it.
//
// Walking time backwards is walking forwards with negative strides, so nothing here knows the direction. No sum depends on
// the number of threads: each is either made by one task, or of partial sums added in a fixed order.
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
        B(t.a.groups_B ? t.B : t.at(t.B, m)), C(t.a.groups_C ? t.C : t.at(t.C, m)), step_B(t.a.groups_B ? t.pitch : 0),
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
      : a(a), batch(index / Slices(a).count()), slice(index % Slices(a).count()), first(Slices(a).first(slice)),
        end(Slices(a).end(slice)), N(int(a.N)), pitch(int(rounded_states(a.N))), blocks(int((end - first + W - 1) / W)) {
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
        const auto* c = new ((Channel*)channels_of_method + int64_t(m) * N + n)
            Channel(A, select(size > Real(1e-30), 1 / A, V{}));
        largest = at_least(c->exact ? splat(Real(__builtin_inf())) : size, largest);
      }
      TUSTIN_LEVEL::store(reach + m * W, largest);
    }
  }

  static size_t arena_bytes(const TustinScan& a, int64_t extra_states, int64_t extra) {
    const int64_t padded = Slices(a).channels + W, pitch = rounded_states(a.N);
    const int64_t matrix = padded * a.N > kChunk * pitch ? padded * a.N : kChunk * pitch;
    const int64_t reals = 2 * matrix + (1 + kMaxChannel + extra_states) * padded * a.N + padded + 6 * kChunk * W + extra;
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

  void load(const TustinTensor& t, int block, int64_t k, int tokens, Real* tile) const {
    load_tile<Real>(t, offset(t, channel(block), k), t.stride[1], step(t.stride[2]), channels(block), tokens, tile, W);
  }
  void store(const TustinTensor& t, int block, int64_t k, int tokens, const Real* tile) const {
    store_tile<Real>(t, offset(t, channel(block), k), t.stride[1], step(t.stride[2]), channels(block), tokens, tile, W);
  }
  void load_constant(const TustinTensor& t, int m, Real* matrix) const {
    load_tile<Real>(t, channel(m) * t.stride[0], t.stride[0], t.stride[1], channels(m), N, at(matrix, m), W);
  }
  void load_per_token(const TustinTensor& t, int64_t groups, int64_t k, int tokens, Real* tile) const {
    const int64_t group = first / (a.D / groups), token = a.reverse ? a.L - 1 - k : k;
    load_tile<Real>(t, batch * t.stride[0] + group * t.stride[1] + token * t.stride[3], t.stride[2], step(t.stride[3]), N,
                    tokens, tile, pitch);
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
    return TUSTIN_LEVEL::load(v);
  }

  // The element-wise functions run in several short passes over the tiles: one long chain of operations per element would
  // leave the CPU waiting for results.
  void load_inputs(int m, int64_t k, int tokens, bool with_slope) const {
    load(a.u, m, k, tokens, u);
    load(a.delta, m, k, tokens, delta);
    if (a.delta_bias) {
      const V bias = parameter(a.delta_bias, m);
      each(tokens, [&](int i) { TUSTIN_LEVEL::store(delta + i, TUSTIN_LEVEL::load(delta + i) + bias); });
    }
    if (a.delta_softplus) {
      Real* e = slope;
      each(tokens, [&](int i) { TUSTIN_LEVEL::store(e + i, exp<Real>(-magnitude(TUSTIN_LEVEL::load(delta + i)))); });
      each(tokens, [&](int i) {
        const V x = TUSTIN_LEVEL::load(delta + i), e_x = TUSTIN_LEVEL::load(e + i);
        TUSTIN_LEVEL::store(delta + i, softplus(x, e_x));
        if (with_slope) TUSTIN_LEVEL::store(slope + i, softplus_slope(x, e_x));
      });
    }
    if (a.z.data) {
      load(a.z, m, k, tokens, z);
      each(tokens, [&](int i) { TUSTIN_LEVEL::store(gate + i, exp<Real>(-TUSTIN_LEVEL::load(z + i))); });
      each(tokens, [&](int i) { TUSTIN_LEVEL::store(gate + i, 1 / (1 + TUSTIN_LEVEL::load(gate + i))); });
    }
  }

  template <class Pass>
  static TUSTIN_INLINE void each(int tokens, Pass pass) {
    for (int i = 0; i < tokens * W; i += W) pass(i);
  }

  // Whether every e^z of the loaded chunk is a normal number, and no channel of the block wants the exact ladder.
  bool may_be_fast(int m, int tokens) const {
    V largest{};
    for (int k = 0; k < tokens; ++k) largest = at_least(magnitude(TUSTIN_LEVEL::load(delta + k * W)), largest);
    Real z[W];
    TUSTIN_LEVEL::store(z, largest * TUSTIN_LEVEL::load(reach + m * W));
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
      const typename Method::Token token(TUSTIN_LEVEL::load(delta + k * W), TUSTIN_LEVEL::load(u + k * W));
      const auto B = states.B_of(k);
      const auto C = states.C_of(k);
      const Real* before = from + k * next;
      Real* after = from + (k + 1) * next;
      V y{};
      for (int n = 0; n < N; ++n) {
        V keep{};
        const V state =
            Method::template step<fast>(token, states.channel[n], TUSTIN_LEVEL::load(before + n * W), B[n], keep);
        TUSTIN_LEVEL::store(after + n * W, state);
        if (kept) TUSTIN_LEVEL::store(kept + k * next + n * W, keep);
        y += state * C[n];
      }
      TUSTIN_LEVEL::store(out + k * W, y);
    }
  }

  void add_skip(int m, int tokens) const {
    if (!a.D_skip) return;
    const V skip = parameter(a.D_skip, m);
    each(tokens, [&](int i) {
      TUSTIN_LEVEL::store(out + i, TUSTIN_LEVEL::load(out + i) + skip * TUSTIN_LEVEL::load(u + i));
    });
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

template <class Real, class Method, bool constant>
void forward(Task<Real>& t) {
  constexpr int W = kLanes<Real>;
  for (int64_t k = 0; k < t.a.L; k += kChunk) {
    const int tokens = t.a.L - k < kChunk ? int(t.a.L - k) : kChunk;
    t.load_matrices(k, tokens);
    for (int m = 0; m < t.blocks; ++m) {
      t.load_inputs(m, k, tokens, false);
      if (t.a.chunk_states)
        for (int n = 0; n < t.N; ++n)
          for (int i = 0; i < t.channels(m); ++i) t.chunk_state(k / kChunk, m, n)[i] = t.at(t.h, m)[n * W + i];
      if (Method::kHasFast && t.may_be_fast(m, tokens))
        t.template recur<Method, constant, true>(m, tokens, t.at(t.h, m), nullptr);
      else
        t.template recur<Method, constant, false>(m, tokens, t.at(t.h, m), nullptr);
      t.add_skip(m, tokens);
      if (t.a.z.data)
        t.each(tokens, [&](int i) { store(t.out + i, load(t.out + i) * (load(t.z + i) * load(t.gate + i))); });
      t.store(t.a.out, m, k, tokens, t.out);
    }
  }
  t.write_state(t.a.last_state, t.h);
}

// What the backward pass needs beside a Task.
template <class Real>
struct Adjoint {
  using V = Vec<Real>;
  static constexpr int W = kLanes<Real>;
  Real *g;                 // [blocks][N][W]: gradient of the state, carried to earlier tokens
  Real *d_A, *d_B, *d_C;   // [blocks][N][W] each; of B and C where they are constant
  Real *d_D, *d_bias;      // [blocks][W]
  Real *states, *kept;     // [kChunk + 1][N][W], [kChunk][N][W]: the recomputed states of one chunk, and Method's notes
  Real *tile_B, *tile_C;   // [kChunk][pitch]: sums over the slice's channels
  Real *row_B, *row_C;     // [pitch][W]: one token's summands, state by state
  Real *d_out, *d_u, *d_delta;  // [kChunk][W]

  Adjoint(const Task<Real>& t, Arena& arena) {
    const int64_t all = t.states();
    g = zeros(arena, all), d_A = zeros(arena, all), d_B = zeros(arena, all), d_C = zeros(arena, all);
    d_D = zeros(arena, t.blocks * W), d_bias = zeros(arena, t.blocks * W);
    states = arena.take<Real>(int64_t(kChunk + 1) * t.N * W), kept = arena.take<Real>(int64_t(kChunk) * t.N * W);
    tile_B = arena.take<Real>(kChunk * t.pitch), tile_C = arena.take<Real>(kChunk * t.pitch);
    row_B = zeros(arena, t.pitch * W), row_C = zeros(arena, t.pitch * W);
    d_out = arena.take<Real>(kChunk * W), d_u = arena.take<Real>(kChunk * W), d_delta = arena.take<Real>(kChunk * W);

    const Real* last = (const Real*)t.a.d_last_state;
    for (int m = 0; last && m < t.blocks; ++m)
      for (int i = 0; i < t.channels(m); ++i)
        for (int n = 0; n < t.N; ++n)
          t.at(g, m)[n * W + i] = last[(t.batch * t.a.D + t.channel(m) + i) * t.N + n];
  }
  static int64_t extra(const TustinScan& a) {
    const int64_t pitch = Task<Real>::rounded_states(a.N);
    return (2 * kChunk + 1) * a.N * W + 2 * kChunk * pitch + 2 * pitch * W + 3 * kChunk * W +
           2 * (Slices(a).channels + W);
  }
  static Real* zeros(Arena& arena, int64_t count) {
    Real* p = arena.take<Real>(count);
    for (int64_t i = 0; i < count; ++i) p[i] = 0;
    return p;
  }
};

// One token, all states: the adjoint recurrence g_k = C_k dy_k + α_{k+1} g_{k+1}, and every gradient that hangs on it.
template <class Real, class Method, bool constant, bool fast>
TUSTIN_INLINE void adjoint_token(const Task<Real>& t, const Adjoint<Real>& adj, int m, int k, Vec<Real> d_y, Vec<Real>& d_u,
                          Vec<Real>& d_delta) {
  using V = Vec<Real>;
  constexpr int W = kLanes<Real>;
  const V u = load(t.u + k * W), delta = load(t.delta + k * W);
  const typename Method::Token token(delta, u);
  const States<Real, Method, constant> states(t, m);
  const auto B = states.B_of(k);
  const auto C = states.C_of(k);
  const int N = t.N;
  const Real *before = adj.states + k * N * W, *after = before + N * W, *kept = adj.kept + k * N * W;
  Real *g = t.at(adj.g, m), *d_A = t.at(adj.d_A, m), *row_B = adj.row_B, *row_C = adj.row_C;
  for (int n = 0; n < N; ++n) {
    const typename Method::Channel& channel = states.channel[n];
    const Gradients<Real> method = Method::template gradients<fast>(token, channel, load(kept + n * W));
    const V d_h = load(g + n * W) + d_y * C[n];
    const V d_v = d_h * method.beta;
    const V d_beta = d_h * (u * B[n]);
    const V d_z = d_h * load(before + n * W) * method.alpha_z;
    d_u += d_v * B[n];
    d_delta += d_z * channel.A + d_beta * method.beta_delta;
    store(d_A + n * W, load(d_A + n * W) + (d_z * delta + d_beta * method.beta_A));
    store(row_B + n * W, d_v * u);
    store(row_C + n * W, load(after + n * W) * d_y);
    store(g + n * W, d_h * method.alpha);
  }
}

// Adds one token's summands to the gradient of B or C: over the channels where it varies in time, else over time.
template <class Real>
TUSTIN_INLINE void add_rows(const Task<Real>& t, const Real* row, int64_t groups, int m, int k, Real* tile, Real* constant) {
  constexpr int W = kLanes<Real>;
  if (groups) {
    for (int n = 0; n < t.pitch; n += kRegisterLanes<Real>) {
      Real* sum = tile + k * t.pitch + n;
      store_register(sum, load_register<Register<Real>>(sum) + sum_rows<Real>(row + n * W));
    }
  } else {
    Real* sum = t.at(constant, m);
    for (int i = 0; i < t.N * W; i += W) store(sum + i, load(sum + i) + load(row + i));
  }
}

template <class Real, class Method, bool constant, bool fast>
void backward_block(const Task<Real>& t, const Adjoint<Real>& adj, int m, int64_t k0, int tokens) {
  using V = Vec<Real>;
  constexpr int W = kLanes<Real>;
  t.load(t.a.d_out, m, k0, tokens, adj.d_out);
  for (int n = 0; n < t.N; ++n) {
    store(adj.states + n * W, t.partial(t.chunk_state(k0 / kChunk, m, n), 1, m, Real(0)));
  }
  t.template recur<Method, constant, fast>(m, tokens, adj.states, adj.kept);
  t.add_skip(m, tokens);

  const V skip = t.parameter(t.a.D_skip, m);
  if (t.a.z.data)  // out = y·z·s with s = sigmoid(z); its derivative by z is y·s·(1 + z(1 − s))
    t.each(tokens, [&](int i) {
      const V d_out = load(adj.d_out + i), z = load(t.z + i), s = load(t.gate + i);
      store(t.z + i, d_out * load(t.out + i) * (s * (1 + z * (1 - s))));
      store(adj.d_out + i, d_out * (z * s));
    });
  V d_D = load(adj.d_D + m * W), d_bias = load(adj.d_bias + m * W);
  for (int k = tokens - 1; k >= 0; --k) {
    const V d_y = load(adj.d_out + k * W);
    V d_u = skip * d_y, d_delta{};
    d_D += d_y * load(t.u + k * W);
    adjoint_token<Real, Method, constant, fast>(t, adj, m, k, d_y, d_u, d_delta);
    add_rows(t, adj.row_B, t.a.groups_B, m, k, adj.tile_B, adj.d_B);
    add_rows(t, adj.row_C, t.a.groups_C, m, k, adj.tile_C, adj.d_C);
    if (t.a.delta_softplus) d_delta *= load(t.slope + k * W);
    d_bias += d_delta;
    store(adj.d_u + k * W, d_u);
    store(adj.d_delta + k * W, d_delta);
  }
  store(adj.d_D + m * W, d_D);
  store(adj.d_bias + m * W, d_bias);
  t.store(t.a.d_u, m, k0, tokens, adj.d_u);
  t.store(t.a.d_delta, m, k0, tokens, adj.d_delta);
  if (t.a.z.data) t.store(t.a.d_z, m, k0, tokens, t.z);
}

template <class Real>
void write_partial_tile(const Task<Real>& t, const Real* tile, void* partial, int64_t k0, int tokens) {
  Real* p = (Real*)partial + (t.batch * Slices(t.a).count() + t.slice) * t.a.L * t.N;
  for (int k = 0; k < tokens; ++k)
    for (int n = 0; n < t.N; ++n) p[(k0 + k) * t.N + n] = tile[k * t.pitch + n];
}

template <class Real, class Method, bool constant>
void backward(Task<Real>& t, Arena& arena) {
  constexpr int W = kLanes<Real>;
  const Adjoint<Real> adj(t, arena);
  for (int64_t chunk = (t.a.L - 1) / kChunk; chunk >= 0; --chunk) {
    const int64_t k0 = chunk * kChunk;
    const int tokens = t.a.L - k0 < kChunk ? int(t.a.L - k0) : kChunk;
    t.load_matrices(k0, tokens);
    for (int i = 0; i < kChunk * t.pitch; ++i) adj.tile_B[i] = adj.tile_C[i] = 0;
    for (int m = 0; m < t.blocks; ++m) {
      t.load_inputs(m, k0, tokens, true);
      if (Method::kHasFast && t.may_be_fast(m, tokens))
        backward_block<Real, Method, constant, true>(t, adj, m, k0, tokens);
      else
        backward_block<Real, Method, constant, false>(t, adj, m, k0, tokens);
    }
    if (t.a.groups_B) write_partial_tile(t, adj.tile_B, t.a.partial_B, k0, tokens);
    if (t.a.groups_C) write_partial_tile(t, adj.tile_C, t.a.partial_C, k0, tokens);
  }
  t.write_state(t.a.d_initial_state, adj.g);
  t.write_state(t.a.partial_A, adj.d_A);
  if (!t.a.groups_B) t.write_state(t.a.partial_B, adj.d_B);
  if (!t.a.groups_C) t.write_state(t.a.partial_C, adj.d_C);
  for (int m = 0; m < t.blocks; ++m)
    for (int i = 0; i < t.channels(m); ++i) {
      const int64_t d = t.batch * t.a.D + t.channel(m) + i;
      ((Real*)t.a.partial_D)[d] = adj.d_D[m * W + i];
      ((Real*)t.a.partial_bias)[d] = adj.d_bias[m * W + i];
    }
}

// sum[i] = Σ_batch partial[batch][i]
template <class Real>
void sum_over_batch(const TustinScan& a, const void* partial, int64_t count, void* sum) {
  for (int64_t i = 0; sum && i < count; ++i) {
    Real total = 0;
    for (int64_t b = 0; b < a.batch; ++b) total += ((const Real*)partial)[b * count + i];
    ((Real*)sum)[i] = total;
  }
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
        for (int k = 0; k < tokens; ++k)
          for (int i = 0; i < states; ++i) tile[k * W + i] += p[(s * a.L + k0 + k) * a.N + n + i];
      const int64_t token = a.reverse ? a.L - 1 - k0 : k0;
      store_tile<Real>(d, batch * d.stride[0] + group * d.stride[1] + n * d.stride[2] + token * d.stride[3],
                       d.stride[2], a.reverse ? -d.stride[3] : d.stride[3], states, tokens, tile, W);
    }
}

template <class Real, template <class> class Method>
void run_task(const TustinScan& a, Arena& arena, int64_t index, bool gradient) {
  Task<Real> t(a, arena, index);
  t.template prepare_channels<Method<Real>>();
  const bool constant = !a.groups_B || !a.groups_C;
  if (gradient)
    constant ? backward<Real, Method<Real>, true>(t, arena) : backward<Real, Method<Real>, false>(t, arena);
  else
    constant ? forward<Real, Method<Real>, true>(t) : forward<Real, Method<Real>, false>(t);
}

template <class Real>
using Run = void (*)(const TustinScan&, Arena&, int64_t, bool);

template <class Real>
Run<Real> method_runner(int method) {
#define TUSTIN_RUNNER(name) run_task<Real, name>,
  static constexpr Run<Real> runners[] = {TUSTIN_METHODS(TUSTIN_RUNNER)};
#undef TUSTIN_RUNNER
  return runners[method];
}

template <class Real>
int run(const TustinScan& a, bool gradient) {
  const int64_t tasks = a.batch * Slices(a).count();
  const Run<Real> run_one = method_runner<Real>(a.method);
  const size_t bytes = Task<Real>::arena_bytes(a, gradient ? 4 : 0, gradient ? Adjoint<Real>::extra(a) : 0);
  int failed = 0;
#pragma omp parallel num_threads(a.threads) if (a.threads > 1 && tasks > 1)
  {
    Arena arena(bytes);
    if (arena.failed()) {
#pragma omp atomic write
      failed = 1;
    }
#pragma omp for schedule(dynamic)
    for (int64_t i = 0; i < tasks; ++i)
      if (!arena.failed()) run_one(a, arena, i, gradient);
  }
  if (failed || !gradient) return failed;

  const int64_t sums_B = a.groups_B * a.batch, sums_C = a.groups_C * a.batch;
#pragma omp parallel for num_threads(a.threads) if (a.threads > 1) schedule(dynamic)
  for (int64_t i = 0; i < sums_B + sums_C; ++i) {
    if (i < sums_B)
      sum_over_slices<Real>(a, a.partial_B, a.groups_B, a.d_B, i);
    else
      sum_over_slices<Real>(a, a.partial_C, a.groups_C, a.d_C, i - sums_B);
  }
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
