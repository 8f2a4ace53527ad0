/* Macros of the text of kernels, kernels.inc.h and others. */
#define ALWAYS_INLINE static inline __attribute__((always_inline))
#define NOT_INLINED   __attribute__((noinline))

/* UNROLL is for loops of constant bounds; UNROLL_IF_CONSTANT for loops whose bounds are constant in some instances
 * only. */
#if defined(__clang__)
#define UNROLL _Pragma("clang loop unroll(full)")
#define UNROLL_IF_CONSTANT
#else
#define UNROLL             _Pragma("GCC unroll 16")
#define UNROLL_IF_CONSTANT UNROLL
#endif

/* Keeps a vector that is used more than once in a register: gcc loads it anew where an instruction can do so. */
#if defined(__x86_64__)
#define IN_REGISTER(vector) __asm__("" : "+v"(vector))
#elif defined(__aarch64__)
#define IN_REGISTER(vector) __asm__("" : "+w"(vector))
#else
#define IN_REGISTER(vector) (void)0
#endif

#if defined(__has_builtin)
#if __has_builtin(__builtin_shufflevector) /* clang, gcc 12 */
#define HAVE_SHUFFLE 1
#endif
#endif

#define JOIN_(a, b) a##_##b
#define JOIN(a, b)  JOIN_(a, b)

/* MICROTILES is written with these: micro-tiles of so many channels with 1 to n vectors. */
#define UP_TO_2(microtile, channels) microtile(channels, 1) microtile(channels, 2)
#define UP_TO_3(microtile, channels) UP_TO_2(microtile, channels) microtile(channels, 3)
#define UP_TO_4(microtile, channels) UP_TO_3(microtile, channels) microtile(channels, 4)
#define UP_TO_5(microtile, channels) UP_TO_4(microtile, channels) microtile(channels, 5)
#define UP_TO_6(microtile, channels) UP_TO_5(microtile, channels) microtile(channels, 6)
#define UP_TO_8(microtile, channels) UP_TO_6(microtile, channels) microtile(channels, 7) microtile(channels, 8)
#define UP_TO_12(microtile, first)                                                                                     \
    UP_TO_8(microtile, first) microtile(first, 9) microtile(first, 10) microtile(first, 11) microtile(first, 12)
