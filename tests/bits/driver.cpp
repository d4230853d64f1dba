// Prints one line for each call of the native library on made-up numbers: the case, and a hash of all its results, bit by
// bit. Two builds of the library that print the same lines give the same bits, whatever CPU they were built for.
//
//   driver [LEVEL]
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "conv.h"
#include "rowwise.h"
#include "scan.h"

namespace {

// Numbers k/64 with |k| ≤ 127: exact in every dtype, also in the 16-bit ones.
struct Random {
  uint64_t state;
  int next(int low, int high) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return low + int((state >> 33) % uint64_t(high - low + 1));
  }
};

constexpr size_t kBytes[] = {4, 8, 2, 2};

void put(void* data, int dtype, size_t i, double x) {
  const float f = float(x);
  uint32_t bits;
  memcpy(&bits, &f, 4);
  uint16_t half = 0;
  switch (dtype) {
    case TUSTIN_FLOAT32:
      ((float*)data)[i] = f;
      return;
    case TUSTIN_FLOAT64:
      ((double*)data)[i] = x;
      return;
    case TUSTIN_BFLOAT16:
      half = uint16_t(bits >> 16);
      break;
    case TUSTIN_FLOAT16:
      half = f == 0 ? 0 : uint16_t((bits >> 16 & 0x8000) | ((bits & 0x7fffffff) - (112u << 23)) >> 13);
      break;
  }
  ((uint16_t*)data)[i] = half;
}

// What a call reads or writes. Results start as garbage, so that a number never written shows.
struct Buffer {
  int dtype;
  size_t count;
  std::vector<char> bytes;
  Buffer(int dtype, size_t count) : dtype(dtype), count(count), bytes(count * kBytes[dtype] + 64, char(0x55)) {}
  void* data() { return bytes.data(); }
  Buffer& fill(Random& random, int low, int high, double unit = 1. / 64) {
    for (size_t i = 0; i < count; ++i) put(data(), dtype, i, random.next(low, high) * unit);
    return *this;
  }
};

// FNV-1a over the bits; every NaN counts as the same one, because the CPUs' own differ.
void add(uint64_t& hash, Buffer& b) {
  for (size_t i = 0; i < b.count; ++i) {
    unsigned char number[8] = {};
    memcpy(number, b.bytes.data() + i * kBytes[b.dtype], kBytes[b.dtype]);
    uint64_t bits = 0;
    memcpy(&bits, number, 8);
    const int mantissa[] = {23, 52, 7, 10};
    const uint64_t sign = uint64_t(1) << (8 * kBytes[b.dtype] - 1), infinity = (sign - 1) >> mantissa[b.dtype] << mantissa[b.dtype];
    if ((bits & (sign - 1)) > infinity) bits = infinity + 1;
    hash = (hash ^ bits) * 1099511628211u;
  }
}

constexpr uint64_t kStart = 14695981039346656037u;
const char* const kNames[] = {"float32", "float64", "bfloat16", "float16"};
int failures = 0;

void report(const std::string& name, int failed, std::initializer_list<Buffer*> results) {
  uint64_t hash = kStart;
  for (Buffer* b : results) add(hash, *b);
  printf("%-60s %016llx\n", name.c_str(), (unsigned long long)hash);
  failures += failed;
}

// Steps of several kinds; `huge` ones leave the fast path, in some chunks and channels and not in others.
struct Steps {
  const char* name;
  int low, high;
  double unit;
  int every;  // every so many steps one is `far`
  double far;
};
constexpr Steps kSteps[] = {{"ordinary", 1, 100, 1. / 64, 0, 0},
                            {"tiny", 1, 127, 1. / 65536, 0, 0},
                            {"mixed", 0, 127, 1. / 64, 37, 500},
                            {"huge", 1, 127, 8, 11, 0}};

struct Shape {
  int64_t batch, D, L, N, groups_B, groups_C;
};
constexpr Shape kShapes[] = {{2, 37, 70, 5, 1, 1}, {1, 64, 33, 16, 1, 2}, {2, 18, 40, 9, 0, 3}, {1, 33, 65, 4, 0, 0}};

void scans() {
  for (int discretization = 0; tustin_discretization_name(discretization); ++discretization)
    for (const Shape& s : kShapes)
      for (int dtype = 0; dtype < 4; ++dtype)
        for (const Steps& steps : kSteps)
          for (int reverse = 0; reverse < 2; ++reverse) {
            if (!strcmp(tustin_discretization_name(discretization), "rk4_raw") && steps.far + steps.unit > 1) continue;  // diverges
            const int real = dtype == TUSTIN_FLOAT64 ? TUSTIN_FLOAT64 : TUSTIN_FLOAT32;
            Random random{uint64_t(discretization * 1000 + dtype * 100 + reverse)};
            const char* rule = tustin_discretization_name(discretization);
            const bool mixes = !strcmp(rule, "exptrap"), two_samples = mixes || !strncmp(rule, "true_", 5);
            const size_t tokens = s.batch * s.D * s.L, state = s.batch * s.D * s.N * (two_samples ? 2 : 1);
            const auto matrix = [&](int64_t groups) { return groups ? s.batch * groups * s.N * s.L : s.D * s.N; };
            Buffer u(dtype, tokens), delta(dtype, tokens), z(dtype, tokens), d_out(dtype, tokens);
            u.fill(random, -127, 127), z.fill(random, -127, 127), d_out.fill(random, -127, 127);
            delta.fill(random, steps.low, steps.high, steps.unit);
            for (size_t i = 0; steps.every && i < tokens; i += steps.every) put(delta.data(), dtype, i, steps.far);
            Buffer A(real, s.D * s.N), D(real, s.D), bias(real, s.D), initial(real, state), d_last(real, state);
            A.fill(random, -127, -1, 1. / 8), D.fill(random, -127, 127), bias.fill(random, -20, 20);
            for (size_t i = 0; i < A.count; i += 29) put(A.data(), real, i, i % 2 ? 0 : -1. / 1024);  // the exact ladder
            initial.fill(random, -127, 127), d_last.fill(random, -127, 127);
            Buffer B(dtype, matrix(s.groups_B)), C(dtype, matrix(s.groups_C));
            B.fill(random, -127, 127), C.fill(random, -127, 127);

            const int64_t chunks = (s.L + tustin_chunk_length() - 1) / tustin_chunk_length();
            const int64_t slices = tustin_slices(s.D, s.groups_B, s.groups_C);
            Buffer mix(dtype, tokens), d_mix(dtype, mixes ? tokens : 0);
            mix.fill(random, 0, 64);
            Buffer out(dtype, tokens), last(real, state), kept(real, s.batch * chunks * s.N * s.D);
            Buffer d_u(dtype, tokens), d_delta(dtype, tokens), d_z(dtype, tokens), d_initial(real, state);
            Buffer d_B(s.groups_B ? dtype : real, B.count), d_C(s.groups_C ? dtype : real, C.count);
            Buffer d_A(real, A.count), d_D(real, s.D), d_bias(real, s.D);
            const size_t partial = s.batch * (s.D * s.N + slices * s.L * s.N);
            Buffer p_A(real, partial), p_B(real, partial), p_C(real, partial), p_D(real, partial), p_bias(real, partial);

            const auto tensor = [&](Buffer& b) -> TustinTensor { return {b.data(), b.dtype, {s.D * s.L, s.L, 1, 0}}; };
            const auto of_matrix = [&](Buffer& b, int64_t groups) -> TustinTensor {
              if (!groups) return {b.data(), b.dtype, {s.N, 1, 0, 0}};
              return {b.data(), b.dtype, {groups * s.N * s.L, s.N * s.L, s.L, 1}};
            };
            TustinScan a = {};
            a.discretization = discretization, a.real = real, a.delta_softplus = steps.every == 0, a.reverse = reverse, a.threads = 2;
            a.batch = s.batch, a.D = s.D, a.L = s.L, a.N = s.N, a.groups_B = s.groups_B, a.groups_C = s.groups_C;
            a.u = tensor(u), a.delta = tensor(delta), a.z = tensor(z), a.out = tensor(out);
            a.B = of_matrix(B, s.groups_B), a.C = of_matrix(C, s.groups_C);
            a.A = A.data(), a.D_skip = D.data(), a.delta_bias = bias.data(), a.initial_state = initial.data();
            if (mixes) a.mix = tensor(mix), a.d_mix = tensor(d_mix);
            a.last_state = last.data(), a.chunk_states = kept.data();
            int failed = tustin_scan_forward(&a);
            a.d_out = tensor(d_out), a.d_u = tensor(d_u), a.d_delta = tensor(d_delta), a.d_z = tensor(d_z);
            a.d_B = of_matrix(d_B, s.groups_B), a.d_C = of_matrix(d_C, s.groups_C);
            a.d_last_state = d_last.data(), a.d_initial_state = d_initial.data();
            a.d_A = d_A.data(), a.d_D = d_D.data(), a.d_delta_bias = d_bias.data();
            a.partial_A = p_A.data(), a.partial_B = p_B.data(), a.partial_C = p_C.data();
            a.partial_D = p_D.data(), a.partial_bias = p_bias.data();
            failed += tustin_scan_backward(&a);
            const std::string name = std::string(tustin_discretization_name(discretization)) + " " + kNames[dtype] + " " + steps.name +
                                     (reverse ? " reverse" : "") + " D" + std::to_string(s.D) + " N" + std::to_string(s.N);
            report(name + " forward", failed, {&out, &last, &kept});
            report(name + " backward", 0,
                   {&d_u, &d_delta, &d_z, &d_initial, &d_A, &d_B, &d_C, &d_D, &d_bias, &d_mix});
          }
}

void convolutions() {
  for (int dtype = 0; dtype < 4; ++dtype)
    for (int64_t K : {4, 3})
      for (int silu = 0; silu < 2; ++silu)
        for (int reverse = 0; reverse < 2; ++reverse) {
          const int64_t batch = 2, D = 37, L = 130;
          Random random{uint64_t(dtype * 10 + K)};
          Buffer x(dtype, batch * D * L), d_out(dtype, batch * D * L), weight(dtype, D * K), bias(dtype, D);
          x.fill(random, -127, 127), d_out.fill(random, -127, 127), weight.fill(random, -127, 127);
          bias.fill(random, -127, 127);
          Buffer out(dtype, x.count), d_x(dtype, x.count), d_weight(dtype, weight.count), d_bias(dtype, D);
          const auto tensor = [&](Buffer& b) -> TustinTensor { return {b.data(), dtype, {D * L, L, 1, 0}}; };
          const auto matrix = [&](Buffer& b, int64_t step) -> TustinTensor { return {b.data(), dtype, {step, 1, 0, 0}}; };
          TustinConv a = {};
          a.real = dtype == TUSTIN_FLOAT64 ? TUSTIN_FLOAT64 : TUSTIN_FLOAT32, a.silu = silu, a.reverse = reverse;
          a.threads = 2, a.batch = batch, a.D = D, a.L = L, a.K = K;
          a.x = tensor(x), a.out = tensor(out), a.weight = matrix(weight, K), a.bias = matrix(bias, 1);
          int failed = tustin_conv_forward(&a);
          a.d_out = tensor(d_out), a.d_x = tensor(d_x), a.d_weight = matrix(d_weight, K), a.d_bias = matrix(d_bias, 1);
          failed += tustin_conv_backward(&a);
          report(std::string("convolution ") + kNames[dtype] + " K" + std::to_string(K) + (silu ? " silu" : "") +
                     (reverse ? " reverse" : ""),
                 failed, {&out, &d_x, &d_weight, &d_bias});
        }
}

void rows() {
  for (int dtype = 0; dtype < 4; ++dtype)
    for (int64_t D : {192, 37}) {
      const int64_t count = 70 * D;
      Random random{uint64_t(dtype)};
      Buffer a(dtype, count), b(dtype, count), gate(dtype, count), d_out(dtype, count);
      a.fill(random, -127, 127), b.fill(random, -127, 127), gate.fill(random, -127, 127, 1. / 8);
      d_out.fill(random, -127, 127);
      Buffer out(dtype, count), d_sum(dtype, count), d_gate(dtype, count);
      TustinGate g = {dtype,        2,           count, a.data(), b.data(), gate.data(), out.data(), d_out.data(),
                      d_sum.data(), d_gate.data()};
      const std::string which = std::string(kNames[dtype]) + " D" + std::to_string(D);
      report("gate " + which, tustin_gate_forward(&g) + tustin_gate_backward(&g), {&out, &d_sum, &d_gate});

      Buffer weight(dtype, D), normed(dtype, count), d_x(dtype, count), d_weight(dtype, D);
      weight.fill(random, -127, 127);
      TustinNorm n = {dtype,         dtype,        2,        70,        D, 1e-5, a.data(), weight.data(),
                      normed.data(), d_out.data(), d_x.data(), d_weight.data()};
      report("norm " + which, tustin_norm_forward(&n) + tustin_norm_backward(&n), {&normed, &d_x, &d_weight});
    }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc > 1 && tustin_set_cpu_level(argv[1])) {
    fprintf(stderr, "level %s is not in this library, or not on this CPU\n", argv[1]);
    return 2;
  }
  scans();
  convolutions();
  rows();
  return failures != 0;
}
